// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/tcp_interface.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ucs/log.h"
#include "ucs/runtime.h"
#include "uct/base/gather.h"
#include "uct/tcp/tcp_endpoint.h"

namespace uct::tcp {

namespace {

// Processor time of a message: a system call at either end.
constexpr double kOverhead = 2e-6;
// How much an interface that is not the default route's is put behind it, if nothing else differs.
constexpr double kOtherRoute = 0.2e-6;

uint64_t hash_of(const std::string& text) {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char letter : text) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3u;
    return hash;
}

uint64_t nonzero_id() {
    for (;;) {
        if (const uint64_t drawn = ucs::unique_id(); drawn != 0) return drawn;
    }
}

}  // namespace

ucs_status_t TcpInterface::open(RegionTable& regions, const NetworkDevice& device,
                                const Config& config, const InterfaceParams& params,
                                std::unique_ptr<Interface>* interface) {
    std::unique_ptr<TcpInterface> made(new TcpInterface(regions, device, config, params));
    if (!made->poll_ || !made->alarm_) {
        ucs::log_error("{}: no event descriptor: raise the limit of open files", device.name);
        return UCS_ERR_IO_ERROR;
    }
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(made->poll_.get(), EPOLL_CTL_ADD, made->alarm_.get(), &event) != 0) {
        return UCS_ERR_IO_ERROR;
    }
    if (const ucs_status_t status = made->listener_.open(); status != UCS_OK) return status;
    if (made->carrier_.open()) {
        made->watch(made->carrier_.socket(), made->carrier_, EPOLLIN, true);
    }
    made->address_.port = made->listener_.port();
    ucs::log_debug("{}: listens on {} port {}", device.name, device.address.text(),
                   made->address_.port);
    *interface = std::move(made);
    return UCS_OK;
}

TcpInterface::TcpInterface(RegionTable& regions, const NetworkDevice& device, const Config& config,
                           const InterfaceParams& params)
    : regions_(regions),
      device_(device),
      config_(config),
      params_(params),
      place_(network_namespace_id()),
      job_key_(config.job_key.empty() ? 0 : hash_of(config.job_key)),
      receive_pool_(config.rx_seg_size),
      output_pools_(config.tx_seg_size + 64),
      operations_("tcp operations", 16),
      staging_(new std::byte[std::max<size_t>(config.tx_seg_size + 64, 4096)]),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      alarm_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      listener_(*this),
      carrier_(device),
      family_(Family::of(params.am_table)) {
    family_->members.push_back(this);
    address_.id = nonzero_id();
    address_.secret = {ucs::unique_id(), ucs::unique_id()};
    fill_attributes();
}

void TcpInterface::fill_attributes() {
    constexpr uint8_t kAllAtomics = 0x3f;
    constexpr size_t kMaxHeader = 256;
    const size_t copied = config_.tx_seg_size;
    const size_t iov = config_.max_iov;
    const size_t bulk = config_.stripe_size * kMaxParts;
    attributes_.transport = "tcp";
    attributes_.device = device_.name;
    attributes_.device_type = DeviceType::kNetwork;
    attributes_.reach = Reach::kInterface;
    attributes_.capabilities =
        kAmShort | kAmBcopy | kAmZcopy | kGetBcopy | kGetZcopy | kAtomicCpu | kCheckPeer | kEventFd;
    attributes_.capabilities |= kGetChain;
    if (config_.put_enable) {
        attributes_.capabilities |= kPutShort | kPutBcopy | kPutZcopy | kPutChain;
    }
    attributes_.atomic32_ops = attributes_.atomic64_ops = kAllAtomics;
    attributes_.am = {copied - sizeof(uint64_t), copied, max_message() - kMaxHeader, iov,
                      kMaxHeader};
    attributes_.put = {copied, copied, bulk, iov, 0};
    attributes_.get = {0, copied, bulk, iov, 0};
    attributes_.device_address_length = DeviceAddress::kLength;
    attributes_.interface_address_length = ListenerAddress::kLength;
    attributes_.latency = {device_.latency, 0};
    if (config_.prefer_default && !device_.default_route) attributes_.latency.base += kOtherRoute;
    attributes_.bandwidth = device_.bandwidth;
    attributes_.overhead = kOverhead;
    attributes_.max_endpoints = config_.max_num_eps;
}

TcpInterface::~TcpInterface() {
    std::erase(family_->members, this);
    listener_.close();
    // All endpoints are gone, and their operations with them.
    for (Link& link : links_) link.leave();
    // A peer that sends to a closed connection resets it, and what it has not received is lost.
    constexpr int kPatience = 100;  // milliseconds
    const auto lingers = [this] {
        bool any = false;
        for (Link& link : links_) any |= link.lingers();
        return any;
    };
    for (int i = 0; i < kPatience && lingers(); ++i) ::poll(nullptr, 0, 1);
    for (Link& link : links_) link.end_output();
    links_.clear_and_dispose([](Link* link) { delete link; });
}

// --- addresses
// ------------------------------------------------------------------------------

ucs_status_t TcpInterface::get_device_address(std::span<std::byte> address) const {
    if (address.size() < DeviceAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    own_device_address().write(address);
    return UCS_OK;
}

ucs_status_t TcpInterface::get_interface_address(std::span<std::byte> address) const {
    if (address.size() < ListenerAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    address_.write(address);
    return UCS_OK;
}

std::optional<Link::Target> TcpInterface::read_target(const RemoteAddress& remote) const {
    const auto device = DeviceAddress::read(remote.device);
    const auto listener = ListenerAddress::read(remote.interface);
    if (!device || !listener || !reaches(*device)) return std::nullopt;
    return Link::Target{*device, *listener};
}

bool TcpInterface::reaches(const DeviceAddress& device) const {
    if (device.ip.version != device_.address.version) return false;
    if (device.loopback || device_.loopback) {
        return device.loopback && device_.loopback && device.place == place_;
    }
    return device_.address.shares_prefix(device.ip, device_.prefix) || device.place == place_ ||
           routes_through(device_, device.ip);
}

bool TcpInterface::is_on_link(const DeviceAddress& device) const {
    return !device_.loopback && device.place != place_ &&
           device_.address.shares_prefix(device.ip, device_.prefix);
}

// --- sessions
// ------------------------------------------------------------------------------

TcpInterface* TcpInterface::relative(uint64_t id) const {
    const auto found = std::ranges::find(family_->members, id, &TcpInterface::id);
    return found == family_->members.end() ? nullptr : *found;
}

uint8_t TcpInterface::session_flags() const {
    using ucs::config::Ternary;
    if (config_.failover == Ternary::kNo) return 0;
    const auto others = std::ranges::count_if(
        family_->members, [](const TcpInterface* member) { return !member->device().loopback; });
    const bool many = config_.failover == Ternary::kYes || (!device_.loopback && others > 1);
    return many ? wire::kCanResume | wire::kManyWays : wire::kCanResume;
}

bool TcpInterface::keeps_sessions_with(uint8_t peer_flags) const {
    const uint8_t own = session_flags();
    return (own & peer_flags & wire::kCanResume) != 0 &&
           ((own | peer_flags) & wire::kManyWays) != 0;
}

void TcpInterface::check_sessions() {
    const ucs::Time time = now();
    if (time < next_watch_) return;
    next_watch_ = time + kWatch;
    // Sessions live as long as their links, which go at the end of progress(). One may end others.
    std::vector<Session*> due;
    for (Session& session : watched_) due.push_back(&session);
    for (Session* session : due) {
        if (!session->is_over()) session->check(time);
    }
}

void TcpInterface::on_carrier(const NetworkDevice& device, bool is_up) {
    for (Link& link : links_) {
        if (Session* session = link.session()) session->on_carrier(device, is_up);
    }
}

bool TcpInterface::is_reachable(const RemoteAddress& remote) const {
    return read_target(remote).has_value();
}

ucs_status_t TcpInterface::create_endpoint(const RemoteAddress& remote,
                                           std::unique_ptr<Endpoint>* endpoint) {
    const auto target = read_target(remote);
    if (!target) return UCS_ERR_UNREACHABLE;
    Link& link = link_to(target->listener.id);
    if (!link.target()) link.set_target(*target);
    *endpoint = std::make_unique<TcpEndpoint>(link);
    return UCS_OK;
}

// --- links
// ------------------------------------------------------------------------------

uint32_t TcpInterface::new_link_number() {
    if (++next_link_ == 0) ++next_link_;
    return next_link_;
}

Link& TcpInterface::make_link(uint64_t peer, bool mapped) {
    auto* made = new Link(*this, peer, new_link_number(), mapped);
    links_.push_back(*made);
    if (mapped) by_peer_.emplace(peer, made);
    return *made;
}

Link& TcpInterface::link_to(uint64_t peer) {
    const auto found = by_peer_.find(peer);
    return found != by_peer_.end() ? *found->second : make_link(peer, true);
}

void TcpInterface::unmap(Link& link) {
    if (!link.is_mapped()) return;
    const auto found = by_peer_.find(link.peer());
    if (found != by_peer_.end() && found->second == &link) by_peer_.erase(found);
}

wire::Answer TcpInterface::answer_to(const wire::Hello& hello) {
    if (hello.max_frame != max_message()) {
        ucs::log_error(
            "{}: a peer sends messages of another size: UCX_TCP_RX_SEG_SIZE must be the "
            "same everywhere",
            device_.name);
        return wire::Answer::kMismatch;
    }
    const auto cut = cut_off_.find(hello.sender);
    if (cut != cut_off_.end() && hello.link <= cut->second) return wire::Answer::kCutOff;
    const auto known = by_peer_.find(hello.sender);
    if (hello.sender == id() || known == by_peer_.end()) return wire::Answer::kWelcome;
    Link& link = *known->second;
    Channel& channel = link.channel(hello.channel);
    if (link.peer_number() != 0 && link.peer_number() != hello.link) {
        // The peer began anew. What it still sent before counts; what waits for it is lost.
        if (Channel* first = link.existing(0)) first->drain();
        channel.drain();
        if (!link.is_failed()) link.fail(UCS_ERR_CONNECTION_RESET);
        return wire::Answer::kWelcome;
    }
    if (hello.channel > 0 && link.peer_number() != 0) {
        if (hello.bulk_epoch < link.bulk_epoch()) return wire::Answer::kStale;
        if (hello.bulk_epoch > link.bulk_epoch()) link.end_bulk(hello.bulk_epoch);
        if (link.is_failed()) return wire::Answer::kCutOff;
    }
    // Open: the peer made this attempt before it knew of the connection that stands.
    return channel.is_open() || !channel.must_yield_to(hello.sender) ? wire::Answer::kYield
                                                                     : wire::Answer::kWelcome;
}

void TcpInterface::resume(const wire::Hello& hello, Descriptor socket, bool is_new) {
    const auto known = by_peer_.find(hello.sender);
    Link* link = known == by_peer_.end() ? nullptr : known->second;
    Session* session = link == nullptr ? nullptr : link->session();
    wire::Welcome refusal{};
    refusal.magic = wire::kMagic;
    refusal.version = wire::kVersion;
    refusal.answer = wire::Answer::kUnknown;
    if (session != nullptr && link->number() == hello.peer_link &&
        link->peer_number() == hello.link && hello.channel == 0) {
        refusal.answer = session->judge(hello);
    }
    if (refusal.answer == wire::Answer::kWelcome) {
        session->accept(hello, std::move(socket), is_new);
    } else {
        [[maybe_unused]] const ssize_t sent =
            ::send(socket.get(), &refusal, sizeof(refusal), MSG_NOSIGNAL);
    }
    look_at_links();
}

void TcpInterface::welcome(const wire::Hello& hello, Descriptor socket, bool is_new) {
    if ((hello.flags & wire::kResumes) != 0) {
        resume(hello, std::move(socket), is_new);
        return;
    }
    wire::Welcome welcome{};
    welcome.magic = wire::kMagic;
    welcome.version = wire::kVersion;
    welcome.channel = hello.channel;
    welcome.max_frame = static_cast<uint32_t>(max_message());
    welcome.answer = answer_to(hello);
    Link* link = nullptr;
    if (welcome.answer == wire::Answer::kWelcome) {
        // What this worker sends to itself arrives on a link of its own.
        link = hello.sender == id() ? &make_link(hello.sender, false) : &link_to(hello.sender);
        if (link->peer_number() == 0) link->set_bulk_epoch(hello.bulk_epoch);
        link->set_peer_number(hello.link);
        welcome.link = link->number();
        welcome.flags = link->is_mapped() ? session_flags() : uint8_t{0};
    }
    const bool sent = ::send(socket.get(), &welcome, sizeof(welcome), MSG_NOSIGNAL) ==
                      static_cast<ssize_t>(sizeof(welcome));
    if (sent && link != nullptr) {
        const bool resumes =
            hello.channel == 0 && link->is_mapped() && keeps_sessions_with(hello.flags);
        link->channel(hello.channel).adopt(std::move(socket), is_new, resumes);
    }
    look_at_links();
}

ucs_status_t TcpInterface::cut_off(const RemoteAddress& remote, uint64_t) {
    const auto listener = ListenerAddress::read(remote.interface);
    if (!listener) return UCS_ERR_INVALID_PARAM;
    // Links are freed at the end of progress() only.
    for (Link& link : links_) {
        if (link.peer() != listener->id) continue;
        const uint32_t number = link.peer_number();
        if (link.cut() && number != 0) cut_off_[listener->id] = number;
    }
    return UCS_OK;
}

uint32_t TcpInterface::add_endpoint(TcpEndpoint& endpoint) {
    while (!endpoints_.emplace(++next_endpoint_, &endpoint).second) {
    }
    return next_endpoint_;
}

TcpEndpoint* TcpInterface::find_endpoint(uint32_t name) const {
    const auto found = endpoints_.find(name);
    return found == endpoints_.end() ? nullptr : found->second;
}

void TcpInterface::report_failure(TcpEndpoint& endpoint, ucs_status_t status) {
    params_.error_handler(params_.error_arg, &endpoint, status);
}

void TcpInterface::abandon() {
    listener_.close();
    for (Link& link : links_) {
        if (Session* session = link.session()) session->stop();
        for (unsigned i = 0; i < Link::kMaxChannels; ++i) {
            if (Channel* channel = link.existing(i)) channel->close();
        }
    }
}

size_t TcpInterface::open_channels() const {
    size_t count = 0;
    for (const Link& link : links_) {
        for (unsigned i = 0; i < Link::kMaxChannels; ++i) {
            const Channel* channel = link.existing(i);
            count += channel != nullptr && channel->is_open();
        }
    }
    return count;
}

std::vector<int> TcpInterface::sockets(unsigned index) const {
    std::vector<int> found;
    for (const Link& link : links_) {
        const Channel* channel = link.existing(index);
        if (channel != nullptr && channel->is_open()) found.push_back(channel->socket());
    }
    return found;
}

void TcpInterface::reap() {
    listener_.reap();
    if (!links_changed_) return;
    links_changed_ = false;
    for (auto next = links_.begin(); next != links_.end();) {
        Link& link = *next++;
        if (link.has_endpoints() || !link.is_idle()) continue;
        unmap(link);
        delete &link;
    }
}

// --- progress
// ------------------------------------------------------------------------------

bool TcpInterface::watch(int socket, EventTarget& target, uint32_t events, bool is_new) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = &target;
    if (epoll_ctl(poll_.get(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event) == 0) {
        return true;
    }
    ucs::log_error("{}: a socket cannot be watched: {}", device_.name, std::strerror(errno));
    return false;
}

void TcpInterface::stop_watching(int socket) {
    epoll_ctl(poll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

unsigned TcpInterface::poll() {
    std::array<epoll_event, 32> events;
    const int ready = epoll_wait(poll_.get(), events.data(), events.size(), 0);
    unsigned count = 0;
    for (int i = 0; i < ready; ++i) {
        auto* target = static_cast<EventTarget*>(events[static_cast<size_t>(i)].data.ptr);
        if (target != nullptr) {
            count += target->on_event(events[static_cast<size_t>(i)].events);
            continue;
        }
        uint64_t expirations;
        [[maybe_unused]] const ssize_t got = read(alarm_.get(), &expirations, sizeof(expirations));
        watch_calls_ = kWatchCalls - 1;  // it may be for the sessions
    }
    if (carrier_.take_change()) [[unlikely]] {
        for (TcpInterface* member : family_->members) {
            member->on_carrier(device_, carrier_.is_up());
        }
    }
    return count;
}

void TcpInterface::run_timers() {
    const ucs::Time time = now();
    listener_.on_deadline(time);
    for (;;) {
        const auto due = std::ranges::find_if(
            timers_, [&](const Timer& timer) { return timer.deadline() <= time; });
        if (due == timers_.end()) return;
        due->on_deadline();
    }
}

bool TcpInterface::rests() {
    if (!pending_.empty() || !timers_.empty() || listener_.has_timers()) return false;
    if (++rest_calls_ % kRestCalls != 0) return true;
    const ucs::Time time = now();
    if (time < next_poll_ && rest_calls_ % kMostRestCalls != 0) return true;
    next_poll_ = time + (links_.empty() ? kLongRest : kRest);
    return false;
}

unsigned TcpInterface::progress() {
    if (empty_polls_ >= kRestless && rests()) return 0;
    unsigned count = 0;
    if (hot_ != nullptr && hot_polls_ > 0) {
        --hot_polls_;
        count = hot_->receive();
    } else {
        hot_polls_ = kHotPolls;
        count = poll();
    }
    if (count > 0) {
        be_alert();
    } else if (empty_polls_ < kRestless) {
        ++empty_polls_;
    }
    if (!timers_.empty() || listener_.has_timers()) [[unlikely]]
        run_timers();
    if (!watched_.empty() && ++watch_calls_ % kWatchCalls == 0) [[unlikely]]
        check_sessions();
    if (!pending_.empty()) [[unlikely]] {
        const auto endpoint = [](PendingQueue::Group& group) -> TcpEndpoint& {
            return static_cast<TcpEndpoint&>(group);
        };
        pending_.dispatch(
            [&](PendingQueue::Group& group) { return endpoint(group).has_some_room(); },
            [](PendingQueue::Group&) { return false; }, [] { return true; });
    }
    reap();
    return count;
}

ucs_status_t TcpInterface::flush(Completion* completion) {
    Gather* all = Gather::start(completion);
    for (Link& link : links_) {
        if (link.is_failed()) continue;
        Completion* one = all->add();
        const ucs_status_t status = link.flush(nullptr, one);
        if (status == UCS_INPROGRESS) continue;
        all->cancel();
        if (status == UCS_OK) continue;
        all->abandon();
        return status;
    }
    return all->finish();
}

ucs::Time TcpInterface::next_deadline() const {
    ucs::Time next = listener_.next_deadline();
    for (const Timer& timer : timers_) next = std::min(next, timer.deadline());
    if (!watched_.empty()) next = std::min(next, next_watch_);
    return next;
}

ucs_status_t TcpInterface::arm() {
    const ucs::Time next = next_deadline();
    itimerspec when{};
    if (next != ucs::kNever) {
        const auto span = std::max(next - now(), ucs::Duration(1));
        when.it_value.tv_sec = span.count() / 1000000000;
        when.it_value.tv_nsec = span.count() % 1000000000;
    }
    timerfd_settime(alarm_.get(), 0, &when, nullptr);
    epoll_event event;
    return epoll_wait(poll_.get(), &event, 1, 0) > 0 ? UCS_ERR_BUSY : UCS_OK;
}

}  // namespace uct::tcp

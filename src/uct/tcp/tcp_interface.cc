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

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "ucs/type/bits.h"
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
      receive_pool_(ucs::align_up(size_t{config.rx_seg_size}, wire::kAlignment)),
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
    // All endpoints are gone, and their operations with them.
    is_leaving_ = true;
    for (Link& link : links_) link.leave();
    linger();
    listener_.close();
    std::erase(family_->members, this);
    for (Link& link : links_) link.end_output();
    links_.clear_and_dispose([](Link* link) { delete link; });
}

/** What was sent has still to arrive, over another connection if need be. */
void TcpInterface::linger() {
    // A peer that sends to a closed connection resets it, and what it has not received is lost.
    constexpr int kPatience = 100, kSessionsPatience = 2000;  // milliseconds
    for (int i = 0; i < kSessionsPatience; ++i) {
        bool any = false, keeps = false;
        for (Link& link : links_) {
            any |= link.lingers();
            keeps |= link.session() != nullptr && !link.session()->has_all_arrived();
        }
        if (!any || (i >= kPatience && !keeps)) return;
        ::poll(nullptr, 0, 1);
        if (!keeps) continue;
        poll();
        run_timers();
        check_sessions();
    }
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

}  // namespace uct::tcp

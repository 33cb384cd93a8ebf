// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/interface/tcp_interface.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>

#include "ucs/log/log.h"
#include "uct/tcp/interface/tcp_connected_endpoint.h"
#include "uct/tcp/interface/tcp_endpoint.h"

namespace uct::tcp {

namespace {

// Processor time of a message: a system call at either end.
constexpr double kOverhead = 2e-6;
// How much an interface that is not the default route's is put behind it, if nothing else differs.
constexpr double kOtherRoute = 0.2e-6;

}  // namespace

ucs_status_t TcpInterface::open(RegionTable& regions, const NetworkDevice& device,
                                const Config& config, const InterfaceParams& params,
                                std::unique_ptr<Interface>* interface) {
    std::unique_ptr<TcpInterface> made(new TcpInterface(regions, device, config, params));
    if (!made->events_.is_open()) {
        ucs::log_error("{}: no event descriptor: raise the limit of open files", device.name);
        return UCS_ERR_IO_ERROR;
    }
    if (made->encryption() != nullptr && !made->encryption()->is_ready()) {
        ucs::log_error(
            "{}: UCX_TCP_ENCRYPT: OpenSSL offers no TLS 1.3 with AES here, or there is "
            "no memory for it",
            device.name);
        return UCS_ERR_NO_MEMORY;
    }
    if (const ucs_status_t status = made->listener_.open(); status != UCS_OK) return status;
    Carrier& carrier = made->carrier();
    if (carrier.open()) made->events_.watch(carrier.socket(), carrier, EPOLLIN, true);
    made->set_port(made->listener_.port());
    ucs::log_debug("{}: listens on {} port {}", device.name, device.address.text(), made->port());
    *interface = std::move(made);
    return UCS_OK;
}

TcpInterface::TcpInterface(RegionTable& regions, const NetworkDevice& device, const Config& config,
                           const InterfaceParams& params)
    : Rail(device, config, params),
      buffers_(regions, config),
      events_(device.name),
      listener_(*this, events_),
      associations_(*this, events_, buffers_, attention_) {
    fill_attributes();
}

void TcpInterface::fill_attributes() {
    constexpr uint8_t kAllAtomics = 0x3f;
    constexpr size_t kMaxHeader = 256;
    const size_t copied = config().tx_seg_size;
    const size_t iov = config().max_iov;
    const size_t bulk = config().stripe_size * TcpEndpoint::kMaxParts;
    attributes_ = attributes_of(kDeclaration);
    attributes_.device = device().name;
    if (!config().put_enable) {
        attributes_.capabilities &= ~uint32_t{kPutShort | kPutBcopy | kPutZcopy | kPutChain};
    }
    // Several connections for large transfers share a message chain by chain.
    constexpr unsigned kOneForBulk = 2;
    if (config().connections > kOneForBulk) attributes_.capabilities &= ~uint32_t{kJoinedChain};
    attributes_.atomic32_ops = attributes_.atomic64_ops = kAllAtomics;
    attributes_.am = {.max_short = copied - sizeof(uint64_t),
                      .max_bcopy = copied,
                      .max_zcopy = max_message() - kMaxHeader,
                      .max_iov = iov,
                      .max_header = kMaxHeader,
                      .max_long_bcopy = max_message()};
    attributes_.put = {.max_short = copied, .max_bcopy = copied, .max_zcopy = bulk, .max_iov = iov};
    attributes_.get = {.max_bcopy = copied, .max_zcopy = bulk, .max_iov = iov};
    attributes_.device_address_length = DeviceAddress::kLength;
    attributes_.interface_address_length = ListenerAddress::kLength;
    attributes_.endpoint_address_length = ListenerAddress::kLength;
    attributes_.latency = {device().latency, 0};
    if (config().prefer_default && !device().default_route) attributes_.latency.base += kOtherRoute;
    attributes_.bandwidth = device().bandwidth;
    attributes_.overhead = kOverhead;
    attributes_.max_endpoints = config().max_num_eps;
}

TcpInterface::~TcpInterface() {
    // All endpoints are gone, and their operations with them.
    begin_to_leave();
    for (Association& association : associations_) association.leave();
    linger();
    listener_.close();
    leave_set();
    for (Association& association : associations_) association.end_output();
    associations_.clear();
}

// What was sent has still to arrive, over another connection if need be.
void TcpInterface::linger() {
    // A peer that sends to a closed connection resets it, and what it has not received is lost.
    constexpr int kLinger = 100, kSessionLinger = 2000;  // milliseconds
    for (int i = 0; i < kSessionLinger; ++i) {
        bool any = false, keeps = false;
        for (Association& association : associations_) {
            any |= association.lingers();
            keeps |= association.session() != nullptr && !association.session()->has_all_arrived();
        }
        if (!any || (i >= kLinger && !keeps)) return;
        ::poll(nullptr, 0, 1);
        if (!keeps) continue;
        poll();
        run_timers();
        events_.check_watched(now());
    }
}

// --- addresses

ucs_status_t TcpInterface::get_device_address(std::span<std::byte> address) const {
    if (address.size() < DeviceAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    Rail::device_address().write(address);
    return UCS_OK;
}

ucs_status_t TcpInterface::get_interface_address(std::span<std::byte> address) const {
    if (address.size() < ListenerAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    listener_address().write(address);
    return UCS_OK;
}

std::optional<Association::Target> TcpInterface::read_target(const RemoteAddress& remote) const {
    const auto device = DeviceAddress::read(remote.device);
    const auto listener = ListenerAddress::read(remote.interface);
    if (!device || !listener || !reaches(*device)) return std::nullopt;
    return Association::Target{*device, *listener};
}

void TcpInterface::on_carrier(const NetworkDevice& device, bool is_up) {
    for (Association& association : associations_) {
        if (Session* session = association.session()) session->on_carrier(device, is_up);
    }
}
ucs_status_t TcpInterface::create_endpoint(const RemoteAddress& remote,
                                           std::unique_ptr<Endpoint>* endpoint) {
    if (remote.device.empty() && remote.interface.empty()) {
        *endpoint = std::make_unique<TcpConnectedEndpoint>(*this);
        return UCS_OK;
    }
    Association* association = associate(remote);
    if (association == nullptr) return UCS_ERR_UNREACHABLE;
    *endpoint = std::make_unique<TcpEndpoint>(*association);
    return UCS_OK;
}

Association* TcpInterface::associate(const RemoteAddress& remote) {
    const auto target = read_target(remote);
    if (!target) return nullptr;
    Association& association = associations_.to(target->listener.id);
    // A guest that is invited again has another secret.
    association.set_target(*target);
    return &association;
}

ucs_status_t TcpInterface::cut_off(const RemoteAddress& remote, uint64_t) {
    const auto listener = ListenerAddress::read(remote.interface);
    if (!listener) return UCS_ERR_INVALID_PARAM;
    associations_.cut_off(listener->id);
    return UCS_OK;
}

ucs_status_t TcpInterface::guest_address(std::span<std::byte> address) const {
    if (address.size() < ListenerAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    ListenerAddress own = listener_address();
    own.secret = {};
    own.write(address);
    return UCS_OK;
}

ucs_status_t TcpInterface::invite(const RemoteAddress& guest, std::span<std::byte> address) {
    if (address.size() < ListenerAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    const auto target = read_target(guest);
    if (!target) return UCS_ERR_UNREACHABLE;
    ListenerAddress own = listener_address();
    const ucs_status_t status = associations_.invite(target->listener.id, &own.secret);
    if (status == UCS_OK) own.write(address);
    return status;
}

void TcpInterface::end_invitation(const RemoteAddress& guest) {
    const auto listener = ListenerAddress::read(guest.interface);
    if (listener) associations_.end_invitation(listener->id);
}

uint64_t TcpInterface::name_of(const RemoteAddress& remote) const {
    const auto listener = ListenerAddress::read(remote.interface);
    return listener ? peer_name(NameKind::kTcp, listener->id) : 0;
}

// --- progress

unsigned TcpInterface::poll() {
    const unsigned count = events_.poll();
    if (carrier().take_change()) [[unlikely]] {
        for (Rail* member : rails()) member->forget_routes();
        for (Rail* member : rails()) member->on_carrier(device(), has_carrier());
    }
    return count;
}

void TcpInterface::run_timers() {
    const ucs::Time time = now();
    listener_.on_deadline(time);
    events_.run_timers(time);
}

bool TcpInterface::rests() {
    if (!attention_.pending.empty() || events_.has_timers() || listener_.has_timers()) return false;
    if (++rest_calls_ % kRestCalls != 0) return true;
    const ucs::Time time = now();
    if (time < next_poll_ && rest_calls_ % kMostRestCalls != 0) return true;
    next_poll_ = time + (associations_.empty() ? kLongRest : kRest);
    return false;
}

// @return what was found; 0 also if it was too soon for another look
unsigned TcpInterface::look() {
    const bool expects_answer = attention_.hot != nullptr && attention_.is_answer_due;
    ucs::Time time{};
    if (expects_answer) {
        time = now();
        if (time < next_look_ && ++calls_without_look_ < kMostCallsWithoutLook) return 0;
        calls_without_look_ = 0;
    }
    unsigned count;
    if (expects_answer && hot_looks_ > 0) {
        --hot_looks_;
        count = attention_.hot->receive(attention_.turn);
    } else {
        hot_looks_ = kHotLooks;
        count = poll();
    }
    if (count > 0) {
        be_alert();
        return count;
    }
    if (expects_answer) next_look_ = time + kLookSpacing;
    if (attention_.empty_polls < Attention::kRestless) ++attention_.empty_polls;
    return 0;
}

unsigned TcpInterface::progress() {
    ++attention_.bursts.calls;
    if (attention_.bursts.any()) [[unlikely]]
        attention_.bursts.on_progress(clock());
    if (attention_.empty_polls >= Attention::kRestless && rests()) return 0;
    attention_.turn = config().turn;
    unsigned count = look();
    if (events_.has_timers() || listener_.has_timers()) [[unlikely]]
        run_timers();
    if (events_.is_check_due()) [[unlikely]]
        events_.check_watched(now());
    if (!attention_.pending.empty()) [[unlikely]] {
        const bool has_more = attention_.pending.dispatch(
            [](PendingQueue::Group& group) {
                return static_cast<TcpEndpoint&>(group).has_some_room();
            },
            [](PendingQueue::Group&) { return false; }, [] { return true; });
        if (has_more) ++count;
    }
    listener_.reap();
    associations_.reap();
    return count;
}
// --- for tests

void TcpInterface::abandon() {
    listener_.close();
    for (Association& association : associations_) {
        if (Session* session = association.session()) session->stop();
        for (unsigned i = 0; i < Association::kMaxConnections; ++i) {
            if (TcpConnection* connection = association.existing(i)) connection->close();
        }
    }
}

size_t TcpInterface::open_connections() const {
    size_t count = 0;
    for (const Association& association : associations_) {
        for (unsigned i = 0; i < Association::kMaxConnections; ++i) {
            const TcpConnection* connection = association.existing(i);
            count += connection != nullptr && connection->is_open();
        }
    }
    return count;
}

std::vector<int> TcpInterface::sockets(unsigned index) const {
    std::vector<int> found;
    for (const Association& association : associations_) {
        const TcpConnection* connection = association.existing(index);
        if (connection != nullptr && connection->is_open())
            found.push_back(connection->socket().descriptor());
    }
    return found;
}

}  // namespace uct::tcp

// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_interface.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "ucs/sys/random.h"
#include "uct/base/completion_group.h"
#include "uct/base/per_worker.h"
#include "uct/ib/base/transports.h"

namespace uct::ib::ud {

namespace {

using ucs::config::field;

constexpr ucs::config::Field<Settings> kUdFields[] = {
    field<&Settings::timeout>("TIMEOUT", "5m",
                              "A peer that does not answer for so long counts as dead. A peer "
                              "answers when its program calls the library."),
    field<&Settings::tick>("TIMER_TICK", "200us",
                           "Shortest wait for an acknowledgement before a retransmission; "
                           "measured round trips make it longer.",
                           {.least = "1ns"}),
    field<&Settings::backoff>("TIMER_BACKOFF", "2.0",
                              "Factor on the wait after each retransmission in a row.",
                              {.least = "1"}),
    field<&Settings::max_window>("MAX_WINDOW", "256", "Packets in flight to a peer at most.",
                                 {"4", "256"}),
};

const ucs::config::Table<Settings> reliability_table("ud_verbs reliability", {"UD_VERBS_", "UD_"},
                                                     kUdFields);

const ucs::config::Table<TransportConfig> transport_table("ud_verbs transport",
                                                          {"UD_VERBS_", "UD_", "IB_"},
                                                          datagram_fields());

constexpr size_t kShortHeader = sizeof(uint64_t);

constexpr size_t mtu_bytes(int code) {
    return size_t{128} << code;
}

// A queue pair of datagrams in the reset state, on the interface's queues.
// @param max_inline  in: bytes asked for; out: granted
// @return null, with errno
QpPtr create_queue_pair(IbInterface& interface, uint32_t* max_inline) {
    ibv_qp_init_attr attributes{};
    attributes.send_cq = interface.send_cq();
    attributes.recv_cq = interface.receive_cq();
    attributes.srq = interface.srq();
    attributes.qp_type = IBV_QPT_UD;
    attributes.cap.max_send_wr = interface.config().tx_queue_len;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_inline_data = *max_inline;
    QpPtr qp(ibv_create_qp(interface.domain().pd(), &attributes));
    *max_inline = attributes.cap.max_inline_data;
    return qp;
}

// From the reset state to ready to send. @param key  its Q_Key
bool start_queue_pair(ibv_qp* qp, const Device& device, const Device::Path& path, uint32_t key) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.pkey_index = path.pkey_index;
    attributes.port_num = device.port();
    attributes.qkey = key;
    if (ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0) {
        return false;
    }
    attributes.qp_state = IBV_QPS_RTR;
    if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE) != 0) return false;
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 0;
    return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0;
}

}  // namespace

// --- opening

const Transport ud_verbs{kUdVerbs, transport_table, [](const Device&) { return true; },
                         UdInterface::open};

UdInterface::UdInterface(IbDomain& domain, const TransportConfig& config, const Settings& settings,
                         const InterfaceParams& params)
    : IbInterface(domain, kUdVerbs, config, params),
      settings_(settings),
      buckets_(std::make_unique<ByTarget::bucket_type[]>(bucket_count_)),
      by_target_(ByTarget::bucket_traits(buckets_.get(), bucket_count_)),
      name_key_(shared_by_worker<NameKey>(params.am_table)) {
    attributes_.interface_address_length = UdAddress::kLength;
    // More than dc's: the work of the reliable transport is done by the processor (UCX's estimate
    // for posting), and packets carry our headers.
    attributes_.latency.base += 160e-9;
    attributes_.overhead = 105e-9;
}

ucs_status_t UdInterface::open(IbDomain& domain, const TransportConfig& config,
                               const ucs::config::Source& source, const InterfaceParams& params,
                               std::unique_ptr<Interface>* interface) {
    Settings settings;
    std::string error;
    if (reliability_table.load(source, settings, error) != UCS_OK) {
        ucs::log_error("{}", error);
        return UCS_ERR_INVALID_PARAM;
    }
    std::unique_ptr<UdInterface> opened(new UdInterface(domain, config, settings, params));
    const size_t mtu = mtu_bytes(domain.device().port_attributes().active_mtu);
    const ucs_status_t status = opened->open_queues({kReceiveFront, kGrh + mtu});
    if (status != UCS_OK) return status;
    if (opened->open_queue_pair() != UCS_OK || !opened->open_events()) {
        ucs::log_error(
            "ud_verbs on {} cannot create its queue pair with UCX_UD_TX_QUEUE_LEN={}: {}",
            domain.device().name(), config.tx_queue_len, std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    *interface = std::move(opened);
    return UCS_OK;
}

ucs_status_t UdInterface::open_queue_pair() {
    uint32_t max_inline = config_.tx_min_inline + static_cast<uint32_t>(Header::kMaxLength);
    QpPtr qp = create_queue_pair(*this, &max_inline);
    constexpr uint64_t kKeys = uint64_t{1} << 31;  // the highest bit would mean a privileged one
    const auto key = static_cast<uint32_t>(params_.random.below(kKeys - 1) + 1);
    if (!qp || !start_queue_pair(qp.get(), device(), path_, key)) return UCS_ERR_IO_ERROR;
    hello_ = {path_.address, {qp->qp_num, key}, 0};
    queue_ = std::make_unique<SendQueue>(*this, credits(), queue_depth(), moderation());
    queue_->attach_datagrams(std::move(qp), add_queue(*queue_));
    set_message_limits(max_inline);
    return UCS_OK;
}

bool UdInterface::open_events() {
    events_.reset(epoll_create1(EPOLL_CLOEXEC));
    alarm_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    for (const int source : {IbInterface::event_fd(), alarm_.get()}) {
        epoll_event event{};
        event.events = EPOLLIN;
        if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, source, &event) != 0) return false;
    }
    return true;
}

void UdInterface::set_message_limits(uint32_t max_inline) {
    set_limits(max_inline);
    constexpr size_t kFront = Header::kMaxLength + kShortHeader;
    const size_t segment = config_.segment_size;
    attributes_.am.max_short = max_inline > kFront ? max_inline - kFront : 0;
    if (attributes_.am.max_short == 0) attributes_.capabilities &= ~uint32_t{kAmShort};
    attributes_.am.max_bcopy = segment;
    attributes_.am.max_zcopy = segment - attributes_.am.max_header;
    attributes_.put = {};
    attributes_.get = {};

    backlog_limit_ = config_.tx_queue_len;
    max_held_ = static_cast<int>(config_.rx_queue_len / 4);
    short_packets_ = std::make_unique<ucs::MemoryPool>(ucs::MemoryPool::Options{
        .name = "short packets",
        .object_size = Packet::payload_offset() + kShortHeader + attributes_.am.max_short,
        .alignment = 16});
    packet_chunks_ = std::make_unique<RegisteredChunks>(domain_.pd(), Packet::key_offset());
    packets_ = std::make_unique<ucs::MemoryPool>(
        ucs::MemoryPool::Options{.name = "packets",
                                 .object_size = Packet::payload_offset() + segment,
                                 .alignment = 64,
                                 .objects_per_chunk = 32,
                                 .source = packet_chunks_.get()});
}

UdInterface::~UdInterface() {
    if (queue_ == nullptr) return;
    for (UdPeer& peer : by_target_) {
        // Last acknowledgements: peers that wait for them would do so for ever.
        if (peer.connection().receiver().deadline() != ucs::kNever) peer.acknowledge();
    }
    end_failed();
    by_deadline_.clear();
    for (size_t slot = 0; slot < names_.size(); ++slot) {
        UdPeer* peer = names_[slot];
        if (peer == nullptr) continue;
        peer->fail(UCS_ERR_CANCELED);
        peer->end();
    }
    by_target_.clear();
    for (UdPeer* peer : names_) delete peer;
    remove_queue(queue_->token());
    OperationList rest = queue_->take_all();
    queue_.reset();  // the adapter reads no packet after this
    finish_all(rest, UCS_ERR_CANCELED);
}

ucs_status_t UdInterface::get_interface_address(std::span<std::byte> address) const {
    if (address.size() < UdAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    hello_.address.write(address);
    return UCS_OK;
}

bool UdInterface::is_reachable(const RemoteAddress& remote) const {
    const auto port = PortAddress::read(remote.device);
    return port && port->reachable_from(path_.address) && UdAddress::read(remote.interface);
}

ucs_status_t UdInterface::create_endpoint(const RemoteAddress& remote,
                                          std::unique_ptr<Endpoint>* endpoint) {
    const auto port = PortAddress::read(remote.device);
    const auto address = UdAddress::read(remote.interface);
    if (!port || !address) return UCS_ERR_INVALID_ADDR;
    if (!port->reachable_from(path_.address)) return UCS_ERR_UNREACHABLE;
    UdPeer* peer = peer_at(*port, *address);
    if (peer == nullptr) return UCS_ERR_UNREACHABLE;
    *endpoint = std::make_unique<UdEndpoint>(*peer);
    return UCS_OK;
}

ucs_status_t UdInterface::flush(Completion* completion) {
    CompletionGroup* gather = CompletionGroup::start(completion);
    for (UdPeer& peer : by_target_) {
        if (peer.flush(gather->add()) != UCS_INPROGRESS) gather->cancel();
    }
    return gather->finish();
}

// --- peers

uint64_t UdInterface::name_of(const PortAddress& port, const UdAddress& address) const {
    uint64_t gid[2];
    static_assert(sizeof(gid) == sizeof(port.gid));
    std::memcpy(gid, port.gid.data(), sizeof(gid));
    uint64_t name = name_key_->key;
    for (const uint64_t part :
         {gid[0], gid[1], uint64_t{port.lid}, uint64_t{address.number} << 32 | address.key}) {
        name = ucs::mix64(name ^ part);
    }
    return peer_name(NameKind::kUd, name);
}

uint64_t UdInterface::name_of(const RemoteAddress& remote) const {
    const auto port = PortAddress::read(remote.device);
    const auto address = UdAddress::read(remote.interface);
    return port && address ? name_of(*port, *address) : 0;
}

size_t UdInterface::TargetHash::operator()(const PeerTarget& target) const {
    return ucs::mix64(reinterpret_cast<uintptr_t>(target.handle) ^
                      (uint64_t{target.address.number} << 32 | target.address.key));
}

UdPeer* UdInterface::peer_named(uint32_t name) const {
    const uint32_t slot = name % kSlots;
    return slot < names_.size() && generations_[slot] == name ? names_[slot] : nullptr;
}

// A name is a slot and a count of its uses; 0 is nobody's.
uint32_t UdInterface::add_name(UdPeer* peer) {
    if (free_names_.empty()) {
        if (names_.size() == kSlots) return 0;
        const auto make_room = [&](auto& list) {
            if (list.capacity() <= names_.size())
                list.reserve(std::max<size_t>(2 * names_.size(), 8));
        };
        make_room(generations_);
        make_room(free_names_);
        make_room(names_);
        free_names_.push_back(static_cast<uint32_t>(names_.size()));
        names_.push_back(nullptr);
        generations_.push_back(free_names_.back() + ucs::first_number() / kSlots * kSlots);
    }
    const uint32_t slot = free_names_.back();
    free_names_.pop_back();
    generations_[slot] += kSlots;
    if (generations_[slot] == 0) generations_[slot] += kSlots;
    names_[slot] = peer;
    return generations_[slot];
}

void UdInterface::remove_name(uint32_t name) {
    names_[name % kSlots] = nullptr;
    free_names_.push_back(name % kSlots);
}

uint64_t UdInterface::new_start() {
    const auto now = static_cast<uint64_t>(params_.clock.now().time_since_epoch().count());
    last_start_ = std::max(now, last_start_ + 1);
    return last_start_;
}

UdPeer* UdInterface::peer_at(const PortAddress& port, const UdAddress& address) {
    const PeerTarget target{address_handle(port), address};
    if (target.handle == nullptr) return nullptr;
    const auto found = by_target_.find(target);
    if (found != by_target_.end()) return &*found;
    const size_t mtu = std::min(mtu_bytes(port.mtu), mtu_bytes(path_.mtu));
    grow_table();
    make_room_for_peer();
    const uint32_t name = add_name(nullptr);
    if (name == 0) return nullptr;
    auto* peer = new (std::nothrow) UdPeer(*this, target, {port, name_of(port, address)},
                                           mtu - Header::kMaxLength, name, new_start());
    if (peer == nullptr) {
        remove_name(name);
        throw std::bad_alloc();
    }
    names_[name % kSlots] = peer;
    by_target_.insert(*peer);
    return peer;
}

// Reserves what a failure or a timer of the peer takes later: those must not need memory.
void UdInterface::make_room_for_peer() {
    const size_t peers = by_target_.size() + failed_.size() + 1;
    for (auto* list : {&failed_, &ready_, &due_}) {
        if (list->capacity() < peers) list->reserve(2 * peers);
    }
}

void UdInterface::grow_table() {
    if (by_target_.size() < bucket_count_) return;
    const size_t count = bucket_count_ * 4;
    auto buckets = std::make_unique<ByTarget::bucket_type[]>(count);
    by_target_.rehash(ByTarget::bucket_traits(buckets.get(), count));
    buckets_ = std::move(buckets);
    bucket_count_ = count;
}

void UdInterface::endpoint_gone(UdPeer& peer) {
    // A peer that failed is in no table: its endpoints alone keep it.
    const bool is_ended =
        peer.status() != UCS_OK && std::ranges::find(failed_, &peer) == failed_.end();
    if (is_ended && !peer.has_endpoints() && ending_ != &peer) delete &peer;
}

void UdInterface::fail(UdPeer& peer, ucs_status_t status) {
    ucs::log_debug("{}: peer with queue pair {:#x} failed: {}", device().name(),
                   peer.target().address.number, ucs_status_string(status));
    peer.fail(status);
    by_target_.erase(by_target_.iterator_to(peer));
    remove_name(peer.connection().name());
    if (peer.scheduled() != ucs::kNever) by_deadline_.erase(by_deadline_.iterator_to(peer));
    peer.set_scheduled(ucs::kNever);
    if (peer.is_ready) std::erase(ready_, &peer);
    failed_.push_back(&peer);
}

void UdInterface::end_failed() {
    while (!failed_.empty()) {
        UdPeer* const peer = failed_.back();
        failed_.pop_back();
        ending_ = peer;
        peer->end();
        ending_ = nullptr;
        if (!peer->has_endpoints()) delete peer;
    }
}

// --- arrivals

// The adapter that sent a packet has written into it from which queue pair and port it came.
UdPeer* UdInterface::find(const Header& header, const ibv_wc& completion, const std::byte* grh) {
    const bool has_grh = (completion.wc_flags & IBV_WC_GRH) != 0;
    const std::span<const std::byte> global{grh, has_grh ? kGrh : 0};
    if (header.destination != 0) {
        UdPeer* peer = peer_named(header.destination);
        const bool is_his = peer != nullptr && peer->target().address.number == completion.src_qp &&
                            peer->port().is_source(completion.slid, global);
        return is_his ? peer : nullptr;
    }
    if (header.hello->address.number != completion.src_qp) return nullptr;
    if (!header.hello->port.is_source(completion.slid, global)) return nullptr;
    if (!header.hello->port.reachable_from(path_.address)) return nullptr;
    return peer_at(header.hello->port, header.hello->address);
}

void UdInterface::received(const ibv_wc& completion, ReceiveBuffer* buffer) {
    std::byte* const data = packet_in(buffer);
    const uint32_t length =
        completion.byte_len > kGrh ? completion.byte_len - static_cast<uint32_t>(kGrh) : 0;
    const auto header = Header::read({data, length});
    UdPeer* peer = nullptr;
    try {
        if (header) peer = find(*header, completion, data - kGrh);
    } catch (const std::bad_alloc&) {
        ucs::log_debug("{}: no memory for a peer: it sends again", device().name());
    }
    if (peer == nullptr) {
        receives_.recycle(buffer);
        return;
    }
    UdConnection::Match match = peer->connection().match(*header);
    if (match == UdConnection::Match::kReplaced) {
        if (!peer->connection().sender().is_idle()) {
            fail(*peer, UCS_ERR_CONNECTION_RESET);
            receives_.recycle(buffer);  // its sender repeats it to the next connection
            return;
        }
        remove_name(peer->connection().name());
        peer->restart(add_name(peer), new_start());
        match = peer->connection().match(*header);
    }
    if (match == UdConnection::Match::kStale) {
        receives_.recycle(buffer);
        return;
    }
    if (match == UdConnection::Match::kAnew) peer->drop_received();
    peer->arrived(*header, buffer, data, length);
    reschedule(*peer);
}

// --- time

void UdInterface::reschedule(UdPeer& peer) {
    if (peer.status() != UCS_OK) return;
    const ucs::Time deadline = peer.connection().deadline();
    // A deadline that has moved later stays in the tree at its old time, where run_timers() finds
    // that out.
    if (deadline >= peer.scheduled()) return;
    if (peer.scheduled() != ucs::kNever) by_deadline_.erase(by_deadline_.iterator_to(peer));
    peer.set_scheduled(deadline);
    by_deadline_.insert(peer);
}

void UdInterface::transmit_later(UdPeer& peer) {
    if (peer.is_ready) return;
    peer.is_ready = true;
    ready_.push_back(&peer);
}

void UdInterface::run_timer(UdPeer& peer, ucs::Time now) {
    switch (peer.connection().sender().on_timer(now)) {
        case Sender::Verdict::kDead:
            fail(peer, UCS_ERR_ENDPOINT_TIMEOUT);
            return;
        case Sender::Verdict::kSendAgain:
            transmit_later(peer);
            break;
        case Sender::Verdict::kNothing:
            break;
    }
    // If the queue is full the next call tries again.
    if (peer.connection().receiver().deadline() <= now) peer.acknowledge();
    reschedule(peer);
}

void UdInterface::run_timers() {
    if (by_deadline_.empty()) return;
    const ucs::Time now = clock();
    // Each peer once: one that is due again at once waits for the next call.
    while (!by_deadline_.empty() && by_deadline_.begin()->scheduled() <= now) {
        UdPeer& peer = *by_deadline_.begin();
        by_deadline_.erase(by_deadline_.begin());
        peer.set_scheduled(ucs::kNever);
        due_.push_back(&peer);
    }
    for (size_t i = 0; i < due_.size(); ++i) run_timer(*due_[i], now);
    due_.clear();
}

void UdInterface::transmit_ready() {
    size_t done = 0;
    while (done < ready_.size() && ready_[done]->transmit()) {
        UdPeer& peer = *ready_[done++];
        peer.is_ready = false;
        reschedule(peer);
    }
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(done));
}

bool UdInterface::after_poll() {
    run_timers();
    if (!ready_.empty()) transmit_ready();
    if (!failed_.empty()) [[unlikely]]
        end_failed();
    if (pending_.empty()) return false;
    return pending_.dispatch(
        [](PendingQueue::Group& group) {
            return static_cast<UdEndpoint&>(group).peer().has_room();
        },
        [](PendingQueue::Group&) { return false; }, [] { return true; });
}

ucs_status_t UdInterface::arm() {
    for (UdPeer& peer : by_deadline_) {
        if (peer.connection().receiver().deadline() != ucs::kNever) peer.acknowledge();
    }
    if (!failed_.empty() || (!ready_.empty() && queue_->has_room())) return UCS_ERR_BUSY;
    // A program that sleeps on the descriptor must wake for retransmissions, too.
    itimerspec when{};
    if (const ucs::Time next = next_deadline(); next != ucs::kNever) {
        const auto span = std::max(next - clock(), ucs::Duration(1));
        when.it_value.tv_sec = span.count() / 1000000000;
        when.it_value.tv_nsec = span.count() % 1000000000;
    }
    timerfd_settime(alarm_.get(), 0, &when, nullptr);
    return IbInterface::arm();
}

ucs::Time UdInterface::next_deadline() const {
    return by_deadline_.empty() ? ucs::kNever : by_deadline_.begin()->scheduled();
}

void UdInterface::device_gone() {
    while (!by_target_.empty()) fail(*by_target_.begin(), UCS_ERR_IO_ERROR);
}

void UdInterface::on_failed(SendQueue& queue, uint32_t, ucs_status_t status) {
    // Without a route each send may fail: to say so once in a while is enough.
    constexpr auto kBetweenWarnings = std::chrono::seconds(10);
    if (clock() >= next_warning_) {
        next_warning_ = clock() + kBetweenWarnings;
        ucs::log_warn("{}: the queue pair of ud_verbs failed ({}) and is started again",
                      device().name(), ucs_status_string(status));
    }
    keep_receives();
    const uint32_t token = queue.token();
    OperationList done, rest;
    queue.reset(queue.posted(), &done, &rest);
    remove_queue(token);
    finish_all(done, status);
    finish_all(rest, status);
    if (!start_queue_pair(queue.qp(), device(), path_, hello_.address.key)) {
        // Nothing more can be sent: operations end by their time-outs.
        ucs::log_error("{}: the queue pair of ud_verbs cannot be started again", device().name());
        return;
    }
    queue.restart(add_queue(queue));
}

}  // namespace uct::ib::ud

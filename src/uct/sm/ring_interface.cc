// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/ring_interface.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "ucs/log/log.h"
#include "ucs/memory/pages.h"
#include "ucs/type/bits.h"
#include "uct/sm/placement.h"

namespace uct::sm {

namespace {

// A sender publishes a message, then looks whether the receiver sleeps; a receiver says that it
// sleeps, then looks for messages. One of them must see the other, which takes a fence on both
// sides. Senders do not pay for it: the receiver makes the kernel run one on all of them.
bool register_for_barriers() {
    static const bool registered =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    return registered;
}

void barrier_everywhere() {
    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

// The gate of a queue whose endpoint went while its gate was closed: drops messages.
struct NobodyWaits : ReceiveGate {
    void hold(uint8_t id, const void* data, size_t length) override {}
} nobody_waits;

}  // namespace

RingInterface::RingInterface(const Config& config, const InterfaceParams& params)
    : SmInterface(config, params, kDeclaration) {
    attributes_.endpoint_address_length = SegmentName::kLength;
    attributes_.latency = {80e-9, 0.5e-9};  // one more queue to look into
    attributes_.overhead = 8e-9;
    if (!register_for_barriers()) attributes_.capabilities &= ~uint32_t{kEventFd};
}

RingInterface::~RingInterface() = default;

ucs_status_t RingInterface::open(const Config& config, const InterfaceParams& params,
                                 std::unique_ptr<Interface>* interface) {
    constexpr size_t kMostSpares = 4;
    std::unique_ptr<RingInterface> opened(new RingInterface(config, params));
    if (const ucs_status_t status = opened->open_pipe(); status != UCS_OK) return status;
    // The program counts itself as well, or does not say.
    const size_t peers = std::max<size_t>(params.estimated_endpoints, 2) - 1;
    opened->spares_.resize(std::min(peers, kMostSpares));
    for (auto& spare : opened->spares_) {
        // One that cannot be made now is tried again when it is wanted.
        if (opened->make_queue(peers <= kMostSpares, &spare) != UCS_OK) break;
    }
    std::erase(opened->spares_, nullptr);
    *interface = std::move(opened);
    return UCS_OK;
}

bool RingInterface::is_reachable(const RemoteAddress& remote) const {
    return host_.is(remote.device);
}

ucs_status_t RingInterface::make_queue(bool is_filled, std::unique_ptr<Inbox>* queue) const {
    return Inbox::create({.slots = config_.ring_size,
                          .buffer_size = static_cast<uint32_t>(config_.segment_size),
                          .buffers = config_.ring_buffers,
                          .senders = 0,
                          .is_near = config_.places_queues.value_or(false),
                          .is_filled = is_filled},
                         queue);
}

ucs_status_t RingInterface::create_endpoint(const RemoteAddress& remote,
                                            std::unique_ptr<Endpoint>* endpoint) {
    auto inbox = std::make_unique<RingInbox>();
    if (!spares_.empty()) {
        inbox->queue = std::move(spares_.back());
        spares_.pop_back();
    } else if (make_queue(false, &inbox->queue) != UCS_OK) {
        return UCS_ERR_NO_RESOURCE;
    }
    inbox->queue->set_wake_descriptor(wake_descriptor());
    auto made = std::make_unique<RingEndpoint>(*this, *inbox);
    watches_.reserve(inboxes_.size() + 1);
    inboxes_.push_back(std::move(inbox));
    watches_.push_back(inboxes_.back()->queue->awaited());
    await_messages();
    *endpoint = std::move(made);
    return UCS_OK;
}

void RingInterface::abandon(RingInbox& inbox) {
    inbox.queue->close();
    if (inbox.gate != nullptr) inbox.gate = &nobody_waits;
    inbox.is_orphan = true;
    has_orphans_ = true;
    interest_.mark();
}

void RingInterface::drop_orphans() {
    has_orphans_ = false;
    const auto gone = std::erase_if(inboxes_, [this](const std::unique_ptr<RingInbox>& inbox) {
        if (!inbox->is_orphan) return false;
        if (inbox->queue->has_message() || inbox->queue->has_kept()) {
            has_orphans_ = true;
            return false;
        }
        if (inbox->gate != nullptr && inbox->queue->taken() != inbox->gated_from)
            inbox->queue->disown();
        return true;
    });
    if (gone == 0) return;
    watches_.clear();
    for (const auto& inbox : inboxes_) watches_.push_back(inbox->queue->awaited());
    await_messages();
}

// Inlined into progress(): most calls take one message of one queue.
[[gnu::always_inline]] inline unsigned RingInterface::take_messages(size_t index, size_t* bytes) {
    RingInbox& inbox = *inboxes_[index];
    SenderScope sender(params_.am_table);
    sender.set(inbox.peer);
    // Runs also when a handler throws. By index, since handlers may make queues.
    struct Watching {
        std::vector<AwaitedWord>& watches;
        const size_t index;
        const Inbox& queue;
        ~Watching() { watches[index] = queue.awaited(); }
    } const watching{watches_, index, *inbox.queue};
    return inbox.queue->poll(
        config_.max_poll,
        [this, bytes, &sender, &inbox](uint8_t id, void* data, size_t length,
                                       ReceiveDescriptor* kept, uint32_t) {
            *bytes += length;
            if (!sender.admits_next(inbox.peer, id, data, length)) [[unlikely]]
                return false;
            if (inbox.gate == nullptr) [[likely]]
                return deliver(id, data, length, kept);
            inbox.gate->hold(id, data, length);
            return false;
        },
        [](uint32_t, const std::byte*, size_t) {}, is_enough());
}

unsigned RingInterface::progress() {
    unsigned count = 0;
    size_t bytes = 0;
    // Handlers may make and abandon queues; none is freed before the loop ends.
    const size_t queues = watches_.size();
    size_t next = first_ < queues ? first_ : 0;
    for (size_t left = queues; left != 0; --left) {
        const size_t i = next;
        next = i + 1 == queues ? 0 : i + 1;
        if (!watches_[i].is_as_expected(control::kNumberMask)) [[likely]]
            continue;
        count += take_messages(i, &bytes);
        // A call copies so much at most, or ends where the program has something to do first. The
        // next call begins with the queues that were not looked at.
        if (bytes >= copies().turn_bytes() || is_enough()) {
            first_ = next;
            break;
        }
    }
    if (has_orphans_) [[unlikely]]
        drop_orphans();
    count += after_poll();
    if (has_orphans_) [[unlikely]]
        interest_.mark();
    return count;
}

ucs_status_t RingInterface::fall_asleep() {
    for (const auto& inbox : inboxes_) inbox->queue->set_sleeping(true);
    barrier_everywhere();
    const bool is_busy = std::ranges::any_of(
        inboxes_, [](const auto& inbox) { return inbox->queue->has_message(); });
    return is_busy ? UCS_ERR_BUSY : UCS_OK;
}

void RingInterface::wake_up() {
    for (const auto& inbox : inboxes_) inbox->queue->set_sleeping(false);
}

// --- endpoints

ucs_status_t RingEndpoint::get_address(std::span<std::byte> address) const {
    if (address.size() < SegmentName::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    inbox_.queue->name().write(address);
    return UCS_OK;
}

ucs_status_t RingEndpoint::connect(const RemoteAddress& remote) {
    if (!ring_interface_.is_reachable(remote)) return UCS_ERR_UNREACHABLE;
    const auto name = SegmentName::read(remote.endpoint);
    if (!name) return UCS_ERR_INVALID_ADDR;
    if (status_ != UCS_ERR_NOT_CONNECTED) return UCS_ERR_ALREADY_EXISTS;
    std::unique_ptr<Outbox> opened;
    const ucs_status_t status = Outbox::open(*name, Outbox::Kind::kOneSender, {}, &opened);
    if (status != UCS_OK) return status;
    if (opened->buffer_size() != ring_interface_.segment_size()) return UCS_ERR_UNREACHABLE;
    outbox_ = std::move(opened);
    limit_ = outbox_->limit();
    area_ = outbox_->area();
    status_ = UCS_OK;
    return UCS_OK;
}

bool RingEndpoint::is_connected(const RemoteAddress& remote) const {
    return status_ == UCS_OK && SegmentName::read(remote.endpoint) == outbox_->name();
}

void RingEndpoint::set_peer(uint64_t worker) {
    inbox_.peer = {.worker = worker, .is_lane = true};
}

void RingEndpoint::set_receive_gate(ReceiveGate* gate) {
    inbox_.gate = gate;
    inbox_.gated_from = inbox_.queue->taken();
}

ucs_status_t RingEndpoint::make_room(bool for_long) {
    if (status_ != UCS_OK) return status_;
    const uint64_t limit = outbox_->limit();
    // The receiver claims to have read what was never sent: nothing more is sent to it.
    if (limit - next_ - 1 >= outbox_->slots()) return UCS_ERR_NO_RESOURCE;
    limit_ = limit;
    if (!for_long) return UCS_OK;
    look_at_area();
    return area_.has_room(area_tail_) ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

// How far the receiver is. It does not know yet of what was left out by beginning anew, which
// counts as consumed.
void RingEndpoint::look_at_area() {
    const uint64_t told = outbox_->area_tail();
    if (static_cast<int64_t>(told - area_tail_) > 0) area_tail_ = told;
}

void RingEndpoint::try_begin_anew() {
    look_at_area();
    keeps_up_ = area_tail_ == area_.count;
    if (!keeps_up_) return;
    area_.begin_anew();
    area_tail_ = area_.count;
    from_start_ = control::kFromStart;
}

// As much again as there is: a pair that sends little has few pages, and one that sends much waits
// for the system a few times.
void RingEndpoint::touch_ahead() {
    constexpr size_t kMost = 64 * 1024;
    const size_t needed = area_.next() + area_.piece;
    const size_t end = std::min(area_.size, std::max(needed, touched_ + std::min(touched_, kMost)));
    touch_pages(outbox_->area_at(touched_), end - touched_);
    touched_ = ucs::align_up(end, ucs::page_size());
}

ucs_status_t RingEndpoint::am_short(uint8_t id, uint64_t header, const void* payload,
                                    uint32_t length) {
    const uint64_t number = next_;
    if (number == limit_ || length > kInlinePayload) [[unlikely]]
        return am_short_slow(id, header, payload, length);
    Outbox& outbox = *outbox_;
    Slot& slot = outbox.slot(number);
    write_inline(slot, header, payload, length);
    publish(outbox, slot, number, control::word(number, id, sizeof(header) + length, 0));
    Outbox::send_for_later(slot);
    return UCS_OK;
}

ucs_status_t RingEndpoint::am_short_slow(uint8_t id, uint64_t header, const void* payload,
                                         uint32_t length) {
    if (next_ == limit_) {
        const ucs_status_t status = make_room(false);
        if (status != UCS_OK) return status;
    }
    if (length <= kInlinePayload) return am_short(id, header, payload, length);
    const ssize_t sent = send(id, [&](std::byte* to) {
        std::memcpy(to, &header, sizeof(header));
        std::memcpy(to + sizeof(header), payload, length);
        return sizeof(header) + length;
    });
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

template <typename Write>
ssize_t RingEndpoint::send(uint8_t id, Write write) {
    if (!interface_.copies().has_room()) return status_ != UCS_OK ? status_ : UCS_ERR_NO_RESOURCE;
    if (next_ == limit_ || !area_.has_room(area_tail_)) {
        const ucs_status_t status = make_room(true);
        if (status != UCS_OK) return status;
    }
    if (area_.is_far()) try_begin_anew();
    const size_t place = area_.next();
    if (place + area_.piece > touched_) [[unlikely]]
        touch_ahead();
    const size_t length = write(outbox_->area_at(place));
    interface_.spend(length);
    area_.advance(length);
    Slot& slot = outbox_->slot(next_);
    publish(*outbox_, slot, next_,
            control::word(next_, id, length, control::kInBuffer | from_start_));
    from_start_ = 0;
    Outbox::send_for_later(slot);
    const bool is_to_begin_anew = keeps_up_ && area_.is_far();
    Outbox::send_for_later(outbox_->area_at(is_to_begin_anew ? 0 : area_.next()), length);
    return static_cast<ssize_t>(length);
}

ssize_t RingEndpoint::am_bcopy(uint8_t id, PackCallback pack, void* arg) {
    return send(id, [&](std::byte* to) { return pack(to, arg); });
}

ucs_status_t RingEndpoint::am_zcopy(uint8_t id, std::span<const std::byte> header,
                                    std::span<const Iov> iov, Completion* completion) {
    const ssize_t sent = send(id, [&](std::byte* to) { return gather(to, header, iov); });
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

}  // namespace uct::sm

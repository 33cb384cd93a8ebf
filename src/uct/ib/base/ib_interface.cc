// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/ib_interface.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"
#include "uct/base/am.h"

namespace uct::ib {

namespace {

// Bytes before the aligned part of a message in a bounce buffer.
constexpr size_t kBounceFront = 16;

bool is_immediate(const ibv_wc& completion) {
    return completion.status == IBV_WC_SUCCESS && completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
}

// It went well and brought a message: one comparison, as every message passes here.
bool is_message(const ibv_wc& completion) {
    static_assert(offsetof(ibv_wc, opcode) == offsetof(ibv_wc, status) + sizeof(uint32_t));
    constexpr auto kMessage =
        std::bit_cast<uint64_t>(std::array<uint32_t, 2>{IBV_WC_SUCCESS, IBV_WC_RECV});
    uint64_t both;
    std::memcpy(&both, reinterpret_cast<const std::byte*>(&completion) + offsetof(ibv_wc, status),
                sizeof(both));
    return both == kMessage;
}

}  // namespace

IbInterface::IbInterface(IbDomain& domain, const TransportDeclaration& transport,
                         const TransportConfig& config, const InterfaceParams& params)
    : domain_(domain), config_(config), params_(params), sender_(params.am_table) {
    device().events().subscribe(events_);
    moderation_ = std::min(config.tx_cq_moderation, config.tx_queue_len / 4);
    window_ = static_cast<int>(config.fc_window);
    hard_ = std::max(1, static_cast<int>(config.fc_hard_threshold * window_));
    soft_ = std::max(hard_ + 1, window_ / 2);

    attributes_ = attributes_of(transport);
    attributes_.device = device().name();
    if (!device().has_atomics()) attributes_.capabilities &= ~uint32_t{kAtomicDevice};
    if (!device().atomics_reach_cpu()) attributes_.capabilities &= ~uint32_t{kAtomicCpu};
    if ((attributes_.capabilities & kAtomicDevice) != 0) {
        attributes_.atomic64_ops =
            static_cast<uint8_t>(AtomicOp::kAdd) | static_cast<uint8_t>(AtomicOp::kCompareSwap);
    }
    attributes_.device_address_length = PortAddress::kLength;
    // The estimates of UCX's selection for adapters of this kind.
    attributes_.latency.base = 600e-9 + (device().is_ethernet() ? 200e-9 : 0);
    attributes_.bandwidth = device().bandwidth();
    attributes_.overhead = 40e-9;
}

IbInterface::~IbInterface() {
    device().events().unsubscribe(events_);
    if (event_fd_ >= 0) close(event_fd_);
}

ucs_status_t IbInterface::open_queues(const ReceiveLayout& layout) {
    if (const ucs_status_t status = device().make_path(config_, &path_); status != UCS_OK) {
        return status;
    }
    ibv_context* context = device().context();
    // Dedicated endpoints keep one credit each aside, and need some more to send.
    const int wanted = static_cast<int>(
        std::max<size_t>({config_.tx_cq_len, config_.tx_queue_len,
                          attributes_.reach == Reach::kEndpoint
                              ? 4 * std::min<size_t>(params_.estimated_endpoints, 65536)
                              : 0}));
    const int send_entries = std::min(wanted, device().attributes().max_cqe);
    const unsigned receive_length =
        std::min(config_.rx_queue_len, static_cast<unsigned>(device().attributes().max_srq_wr));
    channel_.reset(ibv_create_comp_channel(context));
    if (channel_) {
        fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
        send_cq_.reset(ibv_create_cq(context, send_entries, nullptr, channel_.get(), 0));
        receive_cq_.reset(
            ibv_create_cq(context, static_cast<int>(receive_length), nullptr, channel_.get(), 0));
    }
    bounce_chunks_ = std::make_unique<RegisteredChunks>(domain_.pd(), BounceBuffer::kKeyOffset);
    bounce_ = std::make_unique<ucs::MemoryPool>(ucs::MemoryPool::Options{
        .name = "bounce buffers",
        .object_size = sizeof(BounceBuffer) + kBounceFront + config_.segment_size,
        .alignment = 64,
        .objects_per_chunk = 32,
        .source = bounce_chunks_.get()});
    operations_ = std::make_unique<ucs::MemoryPool>(
        ucs::MemoryPool::Options{.name = "send operations", .object_size = sizeof(SendOperation)});
    if (!send_cq_ || !receive_cq_ ||
        !receives_.open(domain_.pd(), receive_length, config_.rx_queue_initial, layout.bytes,
                        layout.front)) {
        ucs::log_error("{} on {} cannot create its queues: {}", attributes_.transport,
                       device().name(), std::strerror(errno));
        return UCS_ERR_IO_ERROR;
    }
    credits_.available = send_entries;
    return UCS_OK;
}

void IbInterface::set_limits(uint32_t max_inline, size_t front) {
    max_inline_ = max_inline;
    const size_t segment = config_.segment_size;
    const size_t max_message = device().port_attributes().max_msg_sz;
    const size_t short_header = front + sizeof(uint64_t);
    constexpr size_t kMaxHeader = 128;
    attributes_.am.max_short = max_inline > short_header ? max_inline - short_header : 0;
    if (max_inline <= short_header) attributes_.capabilities &= ~uint32_t{kAmShort};
    attributes_.am.max_bcopy = segment - front;
    attributes_.am.max_header = std::min(kMaxHeader, segment / 4);
    attributes_.am.max_zcopy = segment - front - attributes_.am.max_header;
    const unsigned max_iov = max_sge() - 1;
    attributes_.am.max_iov = max_iov;
    attributes_.put = {max_inline, segment, max_message, max_iov, 0};
    attributes_.get = {0, segment, max_message, max_iov, 0};
}

ucs_status_t IbInterface::get_device_address(std::span<std::byte> address) const {
    if (address.size() < PortAddress::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    path_.address.write(address);
    return UCS_OK;
}

uint32_t IbInterface::add_queue(SendQueue& queue) {
    uint32_t slot;
    if (free_slots_.empty()) {
        slot = static_cast<uint32_t>(queues_.size());
        const auto make_room = [&](auto& list) {
            if (list.capacity() <= slot) list.reserve(std::max<size_t>(2 * slot, 8));
        };
        make_room(queues_);
        make_room(tokens_);
        make_room(free_slots_);  // so that a queue can always be removed
        queues_.push_back(nullptr);
        tokens_.push_back(slot + (ucs::first_number() & ~kSlotMask));
    } else {
        slot = free_slots_.back();
        free_slots_.pop_back();
    }
    // The next generation of the slot; they come around after a few thousand, and 0 is no token.
    tokens_[slot] += kSlotMask + 1;
    if (tokens_[slot] == 0) tokens_[slot] += kSlotMask + 1;
    queues_[slot] = &queue;
    return tokens_[slot];
}

void IbInterface::remove_queue(uint32_t token) {
    if (token == 0) return;  // it was never added
    queues_[token & kSlotMask] = nullptr;
    free_slots_.push_back(token & kSlotMask);
}

void IbInterface::reclaim_credits() {
    if (reclaiming_ || credits_.available > 0) return;
    reclaiming_ = true;  // until a completion comes
    signal_all();
}

void IbInterface::signal_all() {
    for (SendQueue* queue : queues_) {
        if (queue != nullptr) queue->owner().signal_rest(*queue);
    }
}

ucs_status_t IbInterface::none_left(const ucs::MemoryPool& pool) {
    if (pool.in_use() == 0) return UCS_ERR_NO_MEMORY;
    waits_for_objects_ = true;
    signal_all();
    return UCS_ERR_NO_RESOURCE;
}

ibv_ah* IbInterface::find_address_handle(const PortAddress& remote) const {
    const auto found = handles_.find(remote);
    return found == handles_.end() ? nullptr : found->second.get();
}

ibv_ah* IbInterface::address_handle(const PortAddress& remote) {
    const auto found = handles_.find(remote);
    if (found != handles_.end()) return found->second.get();
    ibv_ah_attr attributes = device().ah_attributes(path_, remote);
    AhPtr handle(ibv_create_ah(domain_.pd(), &attributes));
    if (!handle) {
        ucs::log_error("{}: no address handle for lid {}: {}", device().name(), remote.lid,
                       std::strerror(errno));
        return nullptr;
    }
    return handles_.emplace(remote, std::move(handle)).first->second.get();
}

unsigned IbInterface::progress() {
    if (--until_events_ == 0) [[unlikely]]
        look_for_events();
    unsigned count = poll_receives();
    sender_.clear();
    count += poll_sends();
    if (after_poll()) ++count;
    receives_.refill();
    return count;
}

// What a handler that throws leaves of them comes first in the next call.
inline void IbInterface::take(const ibv_wc* completions, int count) {
    int taken = 0;
    try {
        for (; taken < count; ++taken) arrived(completions[taken]);
    } catch (...) {
        kept_receives_.insert(kept_receives_.begin(), completions + taken + 1, completions + count);
        throw;
    }
}

unsigned IbInterface::poll_receives() {
    ibv_wc completions[kMaxPoll];
    if (!kept_receives_.empty()) [[unlikely]] {
        std::vector<ibv_wc> kept;
        kept.swap(kept_receives_);
        take(kept.data(), static_cast<int>(kept.size()));
        return static_cast<unsigned>(kept.size());
    }
    const int found =
        ibv_poll_cq(receive_cq_.get(), static_cast<int>(config_.rx_max_poll), completions);
    take(completions, found);
    return static_cast<unsigned>(std::max(found, 0));
}

unsigned IbInterface::poll_sends() {
    ibv_wc completions[kMaxPoll];
    if (!kept_sends_.empty()) [[unlikely]] {
        std::vector<ibv_wc> kept;
        kept.swap(kept_sends_);
        for (const ibv_wc& completion : kept) completed(completion);
        return static_cast<unsigned>(kept.size());
    }
    const int found =
        ibv_poll_cq(send_cq_.get(), static_cast<int>(config_.tx_max_poll), completions);
    for (int i = 0; i < found; ++i) completed(completions[i]);
    return static_cast<unsigned>(std::max(found, 0));
}

void IbInterface::keep_receives() {
    ibv_wc completion;
    while (ibv_poll_cq(receive_cq_.get(), 1, &completion) > 0) {
        // Its queue pair may be gone when the others are looked at.
        if (is_immediate(completion)) become_message(completion);
        kept_receives_.push_back(completion);
    }
}

void IbInterface::drop_kept(uint32_t qp_number) {
    std::erase_if(kept_receives_, [&](const ibv_wc& completion) {
        if (completion.qp_num != qp_number) return false;
        auto* buffer = reinterpret_cast<ReceiveBuffer*>(completion.wr_id);
        receives_.taken(buffer);
        receives_.recycle(buffer);
        return true;
    });
}

void IbInterface::arrived(const ibv_wc& completion) {
    auto* buffer = reinterpret_cast<ReceiveBuffer*>(completion.wr_id);
    receives_.taken(buffer);
    if (!is_message(completion)) [[unlikely]]
        return arrived_otherwise(completion, buffer);
    received(completion, buffer);
}

void IbInterface::arrived_otherwise(const ibv_wc& completion, ReceiveBuffer* buffer) {
    if (is_immediate(completion)) {
        ibv_wc message = completion;
        become_message(message);
        received(message, buffer);
        return;
    }
    ucs::log_debug("{}: receive failed: {}", device().name(), ibv_wc_status_str(completion.status));
    receives_.recycle(buffer);
}

void IbInterface::completed(const ibv_wc& completion) {
    const auto token = static_cast<uint32_t>(completion.wr_id >> 32);
    const auto index = static_cast<uint32_t>(completion.wr_id);
    const uint32_t slot = token & kSlotMask;
    const auto find = [&]() -> SendQueue* {
        if (slot >= queues_.size() || tokens_[slot] != token) return nullptr;
        return queues_[slot];
    };
    reclaiming_ = waits_for_objects_ = false;
    // A queue that was destroyed or reset may have left completions behind.
    SendQueue* queue = find();
    if (queue == nullptr) return;
    queue->complete(index, completion.status, completion.vendor_err);
    queue = find();
    if (queue != nullptr) queue->owner().on_completed(*queue);
}

ucs_status_t IbInterface::arm() {
    ibv_cq* cq;
    void* context;
    while (ibv_get_cq_event(channel_.get(), &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
    if (kept_events_.empty()) kept_events_ = device().events().take(events_);
    if (!kept_events_.empty()) {
        until_events_ = 1;
        return UCS_ERR_BUSY;
    }
    if (!kept_sends_.empty() || !kept_receives_.empty()) return UCS_ERR_BUSY;
    if (ibv_req_notify_cq(send_cq_.get(), 0) != 0 || ibv_req_notify_cq(receive_cq_.get(), 0) != 0) {
        return UCS_ERR_IO_ERROR;
    }
    // What came before the request gives no event: look, and keep what is found.
    ibv_wc completion;
    if (ibv_poll_cq(send_cq_.get(), 1, &completion) > 0) kept_sends_.push_back(completion);
    keep_receives();
    return kept_sends_.empty() && kept_receives_.empty() ? UCS_OK : UCS_ERR_BUSY;
}

bool IbInterface::is_request_due() {
    const ucs::Time now = params_.clock.now();
    if (next_request_ == ucs::Time{})
        next_request_ = ucs::deadline(now, config_.fc_request_timeout);
    if (now < next_request_) return false;
    next_request_ = ucs::deadline(now, config_.fc_request_timeout);
    return true;
}

}  // namespace uct::ib

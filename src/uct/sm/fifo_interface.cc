// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/fifo_interface.h"

#include <algorithm>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "uct/base/am.h"

namespace uct::sm {

namespace {

// Who has not said who he is bears a name that no address lists.
PeerIdentity nobody() {
    return {.name = peer_name(NameKind::kFifo, ucs::unique_id())};
}

}  // namespace

FifoInterface::FifoInterface(const Config& config, const InterfaceParams& params,
                             const KeyTable& keys)
    : SmInterface(config, params, kDeclaration),
      keys_(keys),
      partner_(
          [](const void* its_keys, const JointCopyTerms& terms) {
              return static_cast<const KeyTable*>(its_keys)->allows(terms);
          },
          &keys) {
    attributes_.interface_address_length = SegmentName::kLength;
    attributes_.latency = {150e-9, 1e-9};  // senders take the head's line from each other
    attributes_.overhead = 15e-9;
}

ucs_status_t FifoInterface::open(const Config& config, const InterfaceParams& params,
                                 const KeyTable& keys, std::unique_ptr<Interface>* interface) {
    constexpr size_t kFewSenders = 64, kManySenders = control::kMostSenders;
    std::unique_ptr<FifoInterface> opened(new FifoInterface(config, params, keys));
    const auto senders = static_cast<uint32_t>(
        std::clamp(2 * params.estimated_endpoints, kFewSenders, kManySenders));
    ucs_status_t status =
        Inbox::create({config.fifo_size, static_cast<uint32_t>(config.segment_size),
                       config.kept_buffers, senders, config.places_queues.value_or(false)},
                      &opened->inbox_);
    if (status == UCS_OK) status = opened->open_pipe();
    if (status != UCS_OK) {
        ucs::log_error("sm_fifo has no shared memory for its queue: {}", ucs_status_string(status));
        return status;
    }
    opened->senders_.reset(new PeerIdentity[senders]);
    opened->places_ = senders;
    for (uint32_t place = 0; place < senders; ++place) opened->senders_[place] = nobody();
    opened->inbox_->set_wake_descriptor(opened->wake_descriptor());
    opened->interest_.await({&opened->inbox_->awaited(), 1}, control::kNumberMask);
    *interface = std::move(opened);
    return UCS_OK;
}

ucs_status_t FifoInterface::get_interface_address(std::span<std::byte> address) const {
    if (address.size() < SegmentName::kLength) return UCS_ERR_BUFFER_TOO_SMALL;
    inbox_->name().write(address);
    return UCS_OK;
}

bool FifoInterface::is_reachable(const RemoteAddress& remote) const {
    return host_.is(remote.device) && SegmentName::read(remote.interface);
}

ucs_status_t FifoInterface::create_endpoint(const RemoteAddress& remote,
                                            std::unique_ptr<Endpoint>* endpoint) {
    if (!is_reachable(remote)) return UCS_ERR_UNREACHABLE;
    const SegmentName name = *SegmentName::read(remote.interface);
    std::erase_if(outboxes_, [](const auto& known) { return known.second.expired(); });
    const auto known = outboxes_.find(name.nonce);
    std::shared_ptr<Outbox> outbox = known == outboxes_.end() ? nullptr : known->second.lock();
    if (outbox == nullptr || outbox->name() != name) {
        std::unique_ptr<Outbox> opened;
        const ucs_status_t status =
            Outbox::open(name, Outbox::Kind::kManySenders, inbox_->name(), &opened);
        if (status != UCS_OK) return status;
        if (opened->buffer_size() != config_.segment_size) {
            ucs::log_error("UCX_SM_SEG_SIZE is {} here and {} in process {}: it must be the same",
                           size_t{config_.segment_size}, opened->buffer_size(), name.pid);
            return UCS_ERR_UNREACHABLE;
        }
        outbox = std::move(opened);
        outboxes_[name.nonce] = outbox;
    }
    *endpoint = std::make_unique<FifoEndpoint>(*this, std::move(outbox));
    return UCS_OK;
}

template <typename Take>
[[gnu::always_inline]] inline unsigned FifoInterface::hand_over(Take take) {
    SenderScope sender(params_.am_table);
    return take(
        [&](uint8_t id, void* data, size_t length, ReceiveDescriptor* kept, uint32_t place) {
            if (place >= places_ || !sender.admits(senders_[place], id, data, length)) [[unlikely]]
                return false;
            return deliver(id, data, length, kept);
        },
        [&](uint32_t place, const std::byte* who, size_t length) {
            if (place < places_) announced(place, {who, length});
        });
}

// Mostly called for a message that has come (Interest).
unsigned FifoInterface::progress() {
    unsigned count;
    if (inbox_->has_holes()) [[unlikely]] {
        count = take_among_holes();
    } else {
        count = hand_over([this](auto&& deliver, auto&& announced) {
            return inbox_->poll(config_.max_poll, deliver, announced, is_enough());
        });
    }
    const JointCopyBoard* const board = config_.joint_copies ? keys_.board() : nullptr;
    if (board != nullptr) {
        // It is made with the first key.
        interest_.await_flag(board->open);
        if (board->open.load(std::memory_order_relaxed) != 0) [[unlikely]]
            count += help();
    }
    return count + after_poll();
}

// Helps peers with joint copies from and to memory of this process, unless it has copies of its
// own.
unsigned FifoInterface::help() {
    if (!copies().empty() || !copies().has_room()) return 0;
    const size_t bytes = partner_.help(*keys_.board(), copies().slice());
    if (bytes == 0) return 0;
    spend(bytes);
    return 1;
}

unsigned FifoInterface::take_among_holes() {
    return hand_over([this](auto&& deliver, auto&& announced) {
        return inbox_->take(config_.max_poll, deliver, announced, is_enough());
    });
}

unsigned FifoInterface::take_late() {
    return hand_over(
        [this](auto&& deliver, auto&& announced) { return inbox_->take_late(deliver, announced); });
}

uint64_t FifoInterface::name_of(const RemoteAddress& remote) const {
    const auto name = SegmentName::read(remote.interface);
    return name ? peer_name(NameKind::kFifo, name->nonce) : 0;
}

// Messages from that place of a sender are from the process whose queue has the name in `who`.
void FifoInterface::announced(uint32_t place, std::span<const std::byte> who) {
    const auto name = SegmentName::read(who);
    // A name that another sender here bears already is not believed.
    const bool is_known = name && !inbox_->is_elsewhere(place, name->nonce);
    if (!is_known)
        ucs::log_warn("a sender over shared memory says that it is another: not believed");
    senders_[place] =
        is_known ? PeerIdentity{.name = peer_name(NameKind::kFifo, name->nonce)} : nobody();
    inbox_->watch_sender(place);
}

ucs_status_t FifoInterface::fall_asleep() {
    return inbox_->arm() ? UCS_OK : UCS_ERR_BUSY;
}

// --- endpoints

bool FifoEndpoint::is_connected(const RemoteAddress& remote) const {
    return SegmentName::read(remote.interface) == outbox_->name() && status_ == UCS_OK;
}

ucs_status_t FifoEndpoint::am_short(uint8_t id, uint64_t header, const void* payload,
                                    uint32_t length) {
    Outbox& outbox = *outbox_;
    uint64_t number;
    if (length > kInlinePayload || status_ != UCS_OK || !outbox.reserve_plain(&number)) [[unlikely]]
        return am_short_slow(id, header, payload, length);
    Slot& slot = outbox.slot(number);
    write_inline(slot, header, payload, length);
    slot.control.store(length == sizeof(uint64_t)
                           ? outbox.word_of_eight(number, id)
                           : outbox.word(number, id, sizeof(header) + length, 0),
                       std::memory_order_release);
    Outbox::send_for_later(slot);
    return UCS_OK;
}

ucs_status_t FifoEndpoint::am_short_slow(uint8_t id, uint64_t header, const void* payload,
                                         uint32_t length) {
    if (length > kInlinePayload) {
        const ssize_t sent = send(id, [&](std::byte* to) {
            std::memcpy(to, &header, sizeof(header));
            std::memcpy(to + sizeof(header), payload, length);
            return sizeof(header) + length;
        });
        return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
    }
    if (status_ != UCS_OK) return status_;
    bool sleeps;
    const uint64_t number = outbox_->reserve(false, &sleeps);
    if (number == Outbox::kFull) return UCS_ERR_NO_RESOURCE;
    Slot& slot = outbox_->slot(number);
    write_inline(slot, header, payload, length);
    slot.control.store(outbox_->word(number, id, sizeof(header) + length, 0),
                       std::memory_order_release);
    if (sleeps) outbox_->wake_sleeper();
    return UCS_OK;
}

template <typename Write>
ssize_t FifoEndpoint::send(uint8_t id, Write write) {
    if (status_ != UCS_OK) return status_;
    if (!interface_.copies().has_room()) return UCS_ERR_NO_RESOURCE;
    bool sleeps;
    const uint64_t number = outbox_->reserve(true, &sleeps);
    if (number == Outbox::kFull) return UCS_ERR_NO_RESOURCE;
    std::byte* const buffer = outbox_->reserved_buffer();
    // The slot is reserved and must be filled: by a message without content if the receiver has
    // given no valid buffer.
    Slot& slot = outbox_->slot(number);
    size_t length = 0;
    try {
        if (buffer != nullptr) length = write(buffer);
    } catch (...) {
        // The program's pack function has thrown: fill the slot, so that the receiver does not wait
        // for it.
        slot.control.store(outbox_->word(number, 0, 0, control::kNothing),
                           std::memory_order_release);
        if (sleeps) outbox_->wake_sleeper();
        throw;
    }
    interface_.spend(length);
    slot.control.store(outbox_->word(number, id, length, control::kInBuffer),
                       std::memory_order_release);
    Outbox::send_for_later(slot);
    outbox_->send_for_next(number, length);
    if (sleeps) outbox_->wake_sleeper();
    if (buffer == nullptr) return fail(UCS_ERR_ENDPOINT_TIMEOUT);
    return static_cast<ssize_t>(length);
}

ssize_t FifoEndpoint::am_bcopy(uint8_t id, PackCallback pack, void* arg) {
    return send(id, [&](std::byte* to) { return pack(to, arg); });
}

ucs_status_t FifoEndpoint::am_zcopy(uint8_t id, std::span<const std::byte> header,
                                    std::span<const Iov> iov, Completion* completion) {
    const ssize_t sent = send(id, [&](std::byte* to) { return gather(to, header, iov); });
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

}  // namespace uct::sm

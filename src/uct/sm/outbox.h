// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>

#include "uct/sm/process.h"
#include "uct/sm/queue_layout.h"
#include "uct/sm/segment.h"

namespace uct::sm {

// A queue of another process (or interface) as its senders see it.
//
// Sizes are taken over once, when the queue is opened, and checked; what is read from shared memory
// later (tail, buffer numbers) is checked at each use. Both kinds of sending are here: reserve()
// for queues with many senders, and next_slot() for those with one.
class Outbox {
  public:
    // The queue is one for many senders, or the end of a pair: addresses come from outside.
    enum class Kind { kManySenders, kOneSender };

    // @param own  many senders: the sender's own queue, by which the receiver knows it
    // @return UCS_ERR_UNREACHABLE: there is no such queue, or it is of the other kind;
    //         UCS_ERR_NO_RESOURCE: too many senders
    static ucs_status_t open(const SegmentName& name, Kind kind, const SegmentName& own,
                             std::unique_ptr<Outbox>* outbox);
    ~Outbox();
    Outbox(const Outbox&) = delete;
    Outbox& operator=(const Outbox&) = delete;

    const SegmentName& name() const { return name_; }
    // Who reads the queue.
    bool has_reader() const { return owner_->is_alive(); }
    size_t buffer_size() const { return layout_.buffer_size; }
    uint32_t slots() const { return layout_.slots; }
    bool is_closed() const { return header_->closed.load(std::memory_order_acquire) != 0; }

    static constexpr uint64_t kFull = ~uint64_t{0};

    // --- many senders ---

    // Reserve the slot of the next message. It must be filled and published soon: those behind it
    // wait for up to 200 ms.
    // @param is_long  it needs a buffer, which is reserved_buffer() then
    // @param sleeps   set if the receiver sleeps: wake_sleeper() after the message is published
    // @return the message's number, or kFull
    uint64_t reserve(bool is_long, bool* sleeps) {
        if (!is_announced_ && !announce()) [[unlikely]]
            return kFull;
        return reserve_one(is_long, sleeps);
    }
    // The first message: who sends from this place. @return false if there is no room
    bool announce();
    // The control word of a message in a slot that was reserved.
    uint64_t word(uint64_t number, uint8_t id, size_t length, uint64_t flags) const {
        return control::word(number, id, length, flags) + sender_bits_;
    }
    // The same of a short message of 8 bytes: most are, and what does not change is added up.
    uint64_t word_of_eight(uint64_t number, uint8_t id) const {
        return (number << 32 | uint64_t{id} << control::kIdShift) + eight_bits_;
    }
    // The same where nothing is special: one try, room as far as known, and nobody to be woken.
    bool reserve_plain(uint64_t* number) {
        std::atomic<uint64_t>& shared_head = header_->head;
        uint64_t head = shared_head.load(std::memory_order_relaxed);
        *number = head;
        // As well if the receiver sleeps, which is the highest bit, and before the announcement.
        if (head - tail_ >= plain_room_) [[unlikely]]
            return false;
        sender_->attempt.store(head + 1, std::memory_order_release);
        return shared_head.compare_exchange_strong(head, head + 1, std::memory_order_acq_rel,
                                                   std::memory_order_relaxed);
    }
    // For any message: what waits may be long.
    bool has_room() {
        const uint64_t number =
            header_->head.load(std::memory_order_relaxed) & ~QueueHeader::kArmed;
        return has_room_for(number, true) || refresh(number, true);
    }

    // --- one sender ---

    // The number up to which messages fit now, looked up anew.
    uint64_t limit() {
        tail_ = header_->tail.load(std::memory_order_acquire);
        return tail_ + layout_.slots;
    }
    // The memory of long messages, what is consumed of it, and a place in it.
    Area area() const { return {size_t{layout_.buffers} * layout_.buffer_size, buffer_size()}; }
    uint64_t area_tail() const { return header_->buffer_tail.load(std::memory_order_acquire); }
    std::byte* area_at(size_t offset) const { return buffers_ + offset; }
    // Has the receiver gone without having read all messages before that one?
    bool has_lost(uint64_t number) const {
        return header_->closed.load(std::memory_order_acquire) == QueueHeader::kGone &&
               header_->tail.load(std::memory_order_relaxed) != number;
    }
    // After publishing: is the receiver to be woken?
    bool sleeps() const { return header_->sleeping.load(std::memory_order_relaxed) != 0; }

    // --- both ---

    Slot& slot(uint64_t number) { return slots_[number & mask_]; }
    // A message is written: a later one's slot is sent for.
    static void send_for_later(const Slot& written) { prefetch_to_write(&written + kAhead); }
    // Many senders: of the long message. Null if what the receiver wrote makes no sense.
    std::byte* reserved_buffer() const { return reserved_buffer_; }
    // The place of the next long message, if nobody else's comes before it, is sent for, if that is
    // a few lines: by the time of a longer one others may have written there.
    void send_for_next(uint64_t number, size_t length) {
        constexpr size_t kFew = 18 * kLine, kFirst = 8 * kLine;
        std::byte* const next = length <= kFew ? buffer(number + 1) : nullptr;
        if (next != nullptr) send_for_later(next, std::min(length, kFirst));
    }
    // A message of that length is written, and one like it is likely to follow there: its lines,
    // which the receiver has read in the lap before, are sent for. Lines that this processor's
    // first cache still has, but may not write, do not have its prefetcher do that.
    static void send_for_later(const std::byte* place, size_t length) {
        for (size_t offset = 0; offset < length; offset += kLine) prefetch_to_write(place + offset);
    }
    // @return false: it could not be
    bool wake();
    // Many senders: wake a receiver that was found asleep, unless another sender has.
    void wake_sleeper();

  private:
    // A receiver that keeps up has read the lines of the slots that come next. To take them back
    // takes as long as a few messages, so that is begun early; behind the last slot it is in vain.
    static constexpr size_t kAhead = 8;

    Outbox(const SegmentName& name, MappedMemory mapping, const QueueLayout& layout);
    bool enlist(const SegmentName& own);
    uint64_t reserve_one(bool is_long, bool* sleeps) {
        uint64_t head = header_->head.load(std::memory_order_relaxed);
        for (;;) {
            const uint64_t number = head & ~QueueHeader::kArmed;
            if (!has_room_for(number, is_long) && !refresh(number, is_long)) [[unlikely]] {
                // The slot that was tried for is another's: should that one die, this one must not
                // look like who has it.
                sender_->attempt.store(0, std::memory_order_release);
                return kFull;
            }
            // Until the exchange nobody has the slot, and the receiver gives its place no other
            // buffer: should this sender be stopped behind it, the receiver knows where it writes.
            if (is_long) reserved_buffer_ = buffer(number);
            // Before the exchange, which is a full barrier.
            sender_->attempt.store(number + 1, std::memory_order_release);
            // It stays armed: should this sender be stopped before it wakes the receiver, the next
            // one does.
            if (header_->head.compare_exchange_weak(head, head + 1, std::memory_order_acq_rel,
                                                    std::memory_order_relaxed)) [[likely]] {
                *sleeps = number != head;
                return number;
            }
        }
    }
    std::byte* buffer(uint64_t number) {
        const uint32_t index =
            buffer_table_[number & (places_ - 1)].load(std::memory_order_relaxed);
        return index < layout_.buffers ? buffers_ + size_t{index} * layout_.buffer_size : nullptr;
    }
    bool has_room_for(uint64_t number, bool is_long) const {
        return number - tail_ < layout_.slots && (!is_long || number - buffer_tail_ < places_);
    }
    bool refresh(uint64_t number, bool is_long) {
        tail_ = header_->tail.load(std::memory_order_acquire);
        buffer_tail_ = header_->buffer_tail.load(std::memory_order_acquire);
        return has_room_for(number, is_long);
    }

    Slot* slots_;
    uint64_t mask_;
    uint64_t places_;
    QueueHeader* header_;
    uint64_t tail_ = 0;
    uint64_t buffer_tail_ = 0;
    uint64_t plain_room_ = 0;  // slots, from the announcement on
    uint64_t sender_bits_ = 0;
    uint64_t eight_bits_ = 0;  // word() of message 0 with id 0, of a header and 8 bytes
    SenderRecord* sender_ = nullptr;
    SegmentName own_{};
    bool is_announced_ = false;
    std::byte* reserved_buffer_ = nullptr;
    const QueueLayout layout_;
    std::atomic<uint32_t>* buffer_table_;
    std::byte* buffers_;
    const SegmentName name_;
    const std::shared_ptr<const WatchedProcess> owner_;
    const MappedMemory mapping_;
    int wake_descriptor_ = -1;
    uint64_t unwakeable_sleep_ = UINT64_MAX;  // the number of one that this sender could not end
};

}  // namespace uct::sm

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "ucs/runtime/runtime.h"
#include "uct/api/interface.h"
#include "uct/sm/process.h"
#include "uct/sm/queue_layout.h"
#include "uct/sm/segment.h"

namespace uct::sm {

// A queue of this process: what others send into.
//
// Of many senders, a long message lies in the buffer of its place. A handler that keeps it keeps
// the buffer, and the place gets a spare one instead; when there is none, and for what one sender
// sends (Area), long messages cannot be kept and handlers are told so. Nothing read from shared
// memory is trusted: numbers of buffers are kept in private memory, lengths are checked.
//
// Of many senders, one may be stopped after it has reserved a slot and before it has filled it.
// Such a slot becomes a *hole*: it is passed over in each lap, and its place gets another buffer,
// until its sender has filled it (take_late()) or is dead. Senders cannot reserve it meanwhile,
// since `tail` stands still at it; when all others of a lap are consumed, the receiver reserves it
// itself and goes on. So a hole costs senders nothing to know of; while there is one, they find the
// queue full once a lap.
class Inbox {
  public:
    struct Size {
        uint32_t slots;
        uint32_t buffer_size;
        uint32_t buffers;      // many senders: spare ones beside one a place; one sender: all
        uint32_t senders;      // 0: one sender, who keeps the head for itself
        bool is_near = false;  // its pages on the node of who makes it
        // Buffers have their pages from the start, which those of most queues never need.
        bool is_filled = false;
    };
    static ucs_status_t create(const Size& size, std::unique_ptr<Inbox>* inbox);
    ~Inbox();
    Inbox(const Inbox&) = delete;
    Inbox& operator=(const Inbox&) = delete;

    const SegmentName& name() const { return segment_->name(); }

    bool has_message() const { return awaited_.is_as_expected(control::kNumberMask); }
    // Where the next message will be seen, by control::kNumberMask.
    const AwaitedWord& awaited() const { return awaited_; }

    // Take at most `most` messages, no more after one that sets `is_enough`. deliver(id, data,
    // length, descriptor, sender) -> bool: true if the descriptor was kept; `sender` is the place
    // of who sent it, 0 where there is one alone. It may do anything but destroy the inbox; a
    // message whose handler throws is taken. announced(sender, data, length): who is there now.
    template <typename Deliver, typename Announced>
    [[gnu::always_inline]] unsigned poll(unsigned most, Deliver&& deliver, Announced&& announced,
                                         const bool& is_enough = AmTable::kNever) {
        unsigned count = 0;
        do {
            const uint64_t word = awaited_.word->load(std::memory_order_acquire);
            const uint32_t beyond = control::beyond(word, awaited_.expected);
            if (!control::is_of_message(beyond)) break;
            Slot& slot = awaited_slot();
            if (count == 0) {
                // At the end of a lap this is the line of no slot.
                prefetch_to_read(&slot + 1);
            } else {
                fetch_further(next_, count);
            }
            const size_t length = control::length(word);
            const uint32_t sender = beyond >> control::kNumberBits;
            if ((word & (control::kInBuffer | control::kAnnouncement)) == 0) [[likely]] {
                if (length <= kInline) [[likely]] {
                    try {
                        deliver(control::id(word), slot.data, length, nullptr, sender);
                    } catch (...) {
                        consume();
                        throw;
                    }
                }
            } else if ((word & control::kAnnouncement) == 0) {
                try {
                    take_buffer(word, length, sender, deliver);
                } catch (...) {
                    if (layout_.senders == 0) area_.advance(length);
                    consume();
                    throw;
                }
            } else if (length <= kInline) {
                announced(sender, slot.data, length);
            }
            consume();
        } while (++count < most && !is_enough);
        return count;
    }

    // The same of many senders while has_holes(), with what has come into holes in its place.
    template <typename Deliver, typename Announced>
    unsigned take(unsigned most, Deliver&& deliver, Announced&& announced,
                  const bool& is_enough = AmTable::kNever) {
        unsigned count = 0;
        // Who has filled a hole may have sent more since: what is seen of that comes behind.
        while (count < most && !is_enough && has_message()) {
            count += take_late(deliver, announced);
            count += poll(1, deliver, announced);
        }
        return count;
    }
    // Take messages that have come into holes, as poll() does. None can be kept. Call in each
    // progress while has_holes().
    template <typename Deliver, typename Announced>
    unsigned take_late(Deliver&& deliver, Announced&& announced) {
        unsigned count = 0;
        for (Hole* late = find_late(); late != nullptr; late = find_late(), ++count) {
            late->is_taken = true;
            const Hole hole = *late;
            // However the handler ends.
            struct Closing {
                Inbox& inbox;
                const uint64_t message;
                ~Closing() { inbox.close_hole(message); }
            } const closing{*this, hole.message};
            Slot& slot = slots_[hole.message & mask_];
            const uint64_t word = slot.control.load(std::memory_order_relaxed);
            const size_t length = control::length(word);
            const uint32_t sender = control::sender(word, hole.message);
            if ((word & control::kAnnouncement) != 0) {
                if (length <= kInline) announced(sender, slot.data, length);
                continue;
            }
            const bool is_long = (word & control::kInBuffer) != 0;
            if (length > (is_long ? layout_.buffer_size : kInline)) continue;
            std::byte* const data =
                is_long ? buffers_ + size_t{hole.buffer} * layout_.buffer_size : slot.data;
            deliver(control::id(word), data, length, nullptr, sender);
        }
        return count;
    }
    // Slots were passed over whose senders may still fill them.
    bool has_holes() const { return !holes_.empty(); }

    // No more messages are wanted: senders that look will know.
    void close() { header_->closed.store(QueueHeader::kClosing, std::memory_order_release); }
    // How many messages were taken.
    uint64_t taken() const { return next_; }
    // Some of what was taken has come to nothing. The end follows; a sender finds it so.
    void disown() { move_to(~uint64_t{0}); }
    // Handlers still keep buffers.
    bool has_kept() const { return kept_ != 0; }

    // --- sleeping ---

    void set_wake_descriptor(int descriptor) {
        header_->wake_descriptor.store(descriptor, std::memory_order_release);
    }
    void set_sleeping(bool sleeping) {
        header_->sleeping.store(sleeping, std::memory_order_relaxed);
    }
    // Many senders: ask for a signal. @return false if a message is on its way
    bool arm();
    // No more signals are wanted. Senders leave that to the receiver, as each may be stopped or die
    // before it has given its own.
    void disarm();

    // --- senders ---

    // Who is in that place is looked at from now on: a look opens no file then.
    void watch_sender(uint32_t place);
    // Does a place but that one belong to whoever has the queue of that nonce?
    bool is_elsewhere(uint32_t place, uint64_t nonce) const;

    // Look for a slot that was reserved and is still empty, as in the last call: give it up if who
    // reserved it is dead, pass it over while he lives. Free the places of dead senders. Call now
    // and then; looks at a few senders each time.
    void look_after_senders();

  private:
    // A slot that was passed over.
    struct Hole {
        uint64_t message;  // that its sender may still write
        uint64_t number;   // of the last lap in which the slot was passed over
        uint32_t buffer;   // where that message is, if it is long
        bool is_taken;     // the message has come, and its handler runs
    };
    static constexpr uint32_t kMostHoles = 8;

    class Buffer final : public ReceiveDescriptor {
      public:
        Buffer(Inbox& inbox, uint32_t index) : inbox_(inbox), index_(index) {}
        void release() override {
            inbox_.spares_.push_back(index_);
            --inbox_.kept_;
        }

      private:
        Inbox& inbox_;
        uint32_t index_;
    };

    Inbox(std::unique_ptr<SharedSegment> segment, const QueueLayout& layout);

    template <typename Deliver>
    [[gnu::always_inline]] void take_buffer(uint64_t word, size_t length, uint32_t sender,
                                            Deliver&& deliver) {
        if (length > layout_.buffer_size) return;
        if (layout_.senders == 0) {
            if ((word & control::kFromStart) != 0) area_.begin_anew();
            deliver(control::id(word), buffers_ + area_.next(), length, nullptr, sender);
            area_.advance(length);
            const uint64_t next =
                slots_[(next_ + 1) & mask_].control.load(std::memory_order_relaxed);
            if (area_.is_due(area_told_, !control::is_message(next, next_ + 1))) {
                area_told_ = area_.count;
                header_->buffer_tail.store(area_told_, std::memory_order_release);
            }
            return;
        }
        const size_t place = next_ & (buffer_of_.size() - 1);
        const uint32_t index = buffer_of_[place];
        std::byte* data = buffers_ + size_t{index} * layout_.buffer_size;
        Buffer* descriptor = spares_.empty() ? nullptr : &descriptors_[index];
        if (!deliver(control::id(word), data, length, descriptor, sender) || descriptor == nullptr)
            return;
        ++kept_;
        buffer_of_[place] = spares_.back();
        spares_.pop_back();
        buffer_table_[place].store(buffer_of_[place], std::memory_order_relaxed);
    }
    // A line takes as long as several messages do. One is fetched ahead at first, since those that
    // are not written yet are the sender's; where one message follows the other, the sender is
    // ahead, and more of its lines may be taken.
    void fetch_further(uint64_t number, unsigned consumed) {
        constexpr unsigned kAhead = 8;
        if (consumed == 1) {
            for (unsigned i = 2; i < kAhead; ++i) prefetch_to_read(&slots_[(number + i) & mask_]);
        }
        prefetch_to_read(&slots_[(number + kAhead) & mask_]);
    }
    void consume() {
        move_to(next_ + 1);
        if ((next_ & publish_mask_) == 0) publish();
    }
    // The word that is awaited is the first of its slot.
    Slot& awaited_slot() const {
        return *reinterpret_cast<Slot*>(const_cast<std::atomic<uint64_t>*>(awaited_.word));
    }
    void move_to(uint64_t number) {
        next_ = number;
        awaited_ = {&slots_[number & mask_].control, control::number_bits(number)};
    }
    void publish();
    // The next message is missing for the second time.
    bool is_stuck();
    Process process_in(uint32_t place) const;
    // Does the process that is noted in the place live?
    bool is_alive(uint32_t place) const;
    // Has a sender, or one that lives, tried for the slot of that message last?
    bool is_claimed(uint64_t message, bool by_living) const;
    void open_hole();
    Hole* find_late();
    void close_hole(uint64_t message);
    static uint32_t most_holes(const QueueLayout& layout) {
        return layout.senders == 0 ? 0 : std::min(kMostHoles, layout.slots / 2);
    }

    uint64_t next_ = ucs::first_number();  // number of the next message
    AwaitedWord awaited_{};                // of its slot
    Slot* slots_;
    uint64_t mask_;
    uint64_t publish_mask_;  // 0 while there are holes
    QueueHeader* header_;
    const QueueLayout layout_;
    std::byte* buffers_;
    Area area_;  // one sender
    uint64_t area_told_ = 0;
    std::atomic<uint32_t>* buffer_table_;
    SenderRecord* senders_;
    std::vector<std::shared_ptr<const WatchedProcess>> watched_;  // by place
    std::vector<uint32_t> buffer_of_;
    std::vector<uint32_t> spares_;
    std::vector<Hole> holes_;
    std::vector<uint32_t> hole_spares_;  // one for each hole that there may be yet
    std::vector<Buffer> descriptors_;
    size_t kept_ = 0;
    uint32_t look_at_ = 0;              // the sender to look at next
    uint64_t stuck_at_ = ~uint64_t{0};  // the message that was missing last time
    std::unique_ptr<SharedSegment> segment_;
};

}  // namespace uct::sm

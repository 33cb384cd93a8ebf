// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/inbox.h"

#include <algorithm>
#include <new>
#include <utility>

#include "ucs/log/log.h"
#include "uct/sm/placement.h"

namespace uct::sm {
namespace {

// Pages are touched up to here when a queue is made, of its slots or of all of it. Those behind, of
// a queue that the user has made longer, are touched in its first lap.
constexpr size_t kMostTouched = 64 * 1024, kMostFilled = 512 * 1024;

}  // namespace

ucs_status_t Inbox::create(const Size& size, std::unique_ptr<Inbox>* inbox) {
    QueueLayout layout{size.slots, size.buffers, size.buffer_size, size.senders};
    if (size.senders != 0) layout.buffers += layout.places() + most_holes(layout);
    std::unique_ptr<SharedSegment> segment;
    const ucs_status_t status = SharedSegment::create(layout.size(), nullptr, false, &segment);
    if (status != UCS_OK) return status;
    if (size.is_near) (void)place_near_caller(segment->base(), segment->size());
    // The receiver looks at a slot when its sender writes it.
    touch_pages(segment->base() + layout.slot_table(),
                size.is_filled ? std::min(layout.size() - layout.slot_table(), kMostFilled)
                               : std::min(layout.slots * sizeof(Slot), kMostTouched));
    inbox->reset(new Inbox(std::move(segment), layout));
    return UCS_OK;
}

Inbox::Inbox(std::unique_ptr<SharedSegment> segment, const QueueLayout& layout)
    : slots_(reinterpret_cast<Slot*>(segment->base() + layout.slot_table())),
      mask_(layout.slots - 1),
      publish_mask_(layout.told_after() - 1),
      header_(new (segment->base()) QueueHeader{}),
      layout_(layout),
      buffers_(segment->base() + layout.buffer_area()),
      area_(size_t{layout.buffers} * layout.buffer_size, layout.buffer_size),
      buffer_table_(
          reinterpret_cast<std::atomic<uint32_t>*>(segment->base() + layout.buffer_table())),
      senders_(reinterpret_cast<SenderRecord*>(segment->base() + layout.sender_table())),
      segment_(std::move(segment)) {
    move_to(next_);
    // The other parts of fresh shared memory are zero, which is what they begin with.
    const Process self = Process::self();
    header_->magic = QueueHeader::kMagic;
    header_->version = QueueHeader::kVersion;
    header_->pid = self.pid;
    header_->start_time = self.start_time;
    header_->slots = layout.slots;
    header_->buffers = layout.buffers;
    header_->buffer_size = layout.buffer_size;
    header_->senders = layout.senders;
    header_->wake_descriptor.store(-1, std::memory_order_relaxed);
    header_->head.store(next_, std::memory_order_relaxed);
    header_->tail.store(next_, std::memory_order_relaxed);
    if (layout.senders != 0) header_->buffer_tail.store(next_, std::memory_order_relaxed);
    if (layout.senders == 0) return;
    watched_.resize(layout.senders);
    buffer_of_.reserve(layout.places());
    descriptors_.reserve(layout.buffers);
    spares_.reserve(layout.buffers);
    holes_.reserve(most_holes(layout));
    hole_spares_.reserve(most_holes(layout));
    for (uint32_t i = 0; i < layout.buffers; ++i) {
        descriptors_.emplace_back(*this, i);
        if (i >= layout.places()) {
            (hole_spares_.size() < most_holes(layout) ? hole_spares_ : spares_).push_back(i);
            continue;
        }
        buffer_of_.push_back(i);
        buffer_table_[i].store(i, std::memory_order_relaxed);
    }
}

Inbox::~Inbox() {
    header_->tail.store(next_, std::memory_order_relaxed);
    header_->closed.store(QueueHeader::kGone, std::memory_order_release);
}

void Inbox::publish() {
    uint64_t tail = next_;
    if (!holes_.empty()) [[unlikely]] {
        // The tail stood still at the hole, so senders have found the queue full, and the head
        // stands at this slot.
        const auto is_next = [this](const Hole& hole) {
            return hole.number + layout_.slots == next_;
        };
        for (auto hole = std::ranges::find_if(holes_, is_next); hole != holes_.end();
             hole = std::ranges::find_if(holes_, is_next)) {
            header_->head.fetch_add(1, std::memory_order_acq_rel);
            hole->number = next_;
            move_to(next_ + 1);
        }
        tail = std::ranges::min(holes_, {}, &Hole::number).number;
    }
    if (layout_.senders != 0) header_->buffer_tail.store(next_, std::memory_order_release);
    header_->tail.store(tail, std::memory_order_release);
}

bool Inbox::arm() {
    if (find_late() != nullptr) return false;
    header_->sleeps.fetch_add(1, std::memory_order_relaxed);
    uint64_t expected = next_;
    const uint64_t armed = next_ | QueueHeader::kArmed;
    // Also if it is armed already: a sender that reserves a slot from here on must see another
    // sleep.
    return header_->head.compare_exchange_strong(expected, armed) ||
           (expected == armed && header_->head.compare_exchange_strong(expected, armed));
}

void Inbox::disarm() {
    header_->head.fetch_and(~QueueHeader::kArmed, std::memory_order_acq_rel);
}

bool Inbox::is_stuck() {
    const uint64_t head = header_->head.load(std::memory_order_acquire) & ~QueueHeader::kArmed;
    const bool is_missing = head > next_ && !has_message();
    const bool was_missing = stuck_at_ == next_;
    stuck_at_ = is_missing ? next_ : ~uint64_t{0};
    return is_missing && was_missing;
}

Process Inbox::process_in(uint32_t place) const {
    return {senders_[place].pid.load(std::memory_order_acquire),
            senders_[place].start_time.load(std::memory_order_acquire)};
}

void Inbox::watch_sender(uint32_t place) {
    const Process sender = process_in(place);
    try {
        watched_[place] = sender.pid == 0 ? nullptr : WatchedProcess::of(sender);
    } catch (const std::bad_alloc&) {
        watched_[place].reset();
    }
}

bool Inbox::is_alive(uint32_t place) const {
    const Process sender = process_in(place);
    const WatchedProcess* const watched = watched_[place].get();
    // If another process has taken the place since, it has not been announced yet: ask the system
    // about it.
    return watched != nullptr && watched->process() == sender ? watched->is_alive()
                                                              : sender.is_alive();
}

bool Inbox::is_claimed(uint64_t message, bool by_living) const {
    for (uint32_t i = 0; i < layout_.senders; ++i) {
        if (senders_[i].pid.load(std::memory_order_acquire) == 0 ||
            senders_[i].attempt.load(std::memory_order_acquire) != message + 1)
            continue;
        if (!by_living || is_alive(i)) return true;
    }
    return false;
}

// Passes over the next slot. Its sender may fill it later, and write to its buffer until then.
void Inbox::open_hole() {
    const size_t place = next_ & (buffer_of_.size() - 1);
    holes_.push_back({next_, next_, buffer_of_[place], false});
    buffer_of_[place] = hole_spares_.back();
    hole_spares_.pop_back();
    buffer_table_[place].store(buffer_of_[place], std::memory_order_relaxed);
    publish_mask_ = 0;
    consume();
}

Inbox::Hole* Inbox::find_late() {
    const auto late = std::ranges::find_if(holes_, [this](const Hole& hole) {
        const uint64_t word = slots_[hole.message & mask_].control.load(std::memory_order_acquire);
        return !hole.is_taken && control::is_message(word, hole.message);
    });
    return late == holes_.end() ? nullptr : &*late;
}

void Inbox::close_hole(uint64_t message) {
    const auto hole = std::ranges::find(holes_, message, &Hole::message);
    // A word that is no message of this slot in any lap, whatever was written there.
    slots_[message & mask_].control.store(control::word(message + 1, 0, 0, 0),
                                          std::memory_order_relaxed);
    hole_spares_.push_back(hole->buffer);
    holes_.erase(hole);
    if (holes_.empty()) publish_mask_ = layout_.told_after() - 1;
    publish();
}

bool Inbox::is_elsewhere(uint32_t place, uint64_t nonce) const {
    for (uint32_t i = 0; i < layout_.senders; ++i) {
        if (i != place && senders_[i].name.load(std::memory_order_acquire) == nonce) return true;
    }
    return false;
}

void Inbox::look_after_senders() {
    constexpr uint32_t kSome = 4;
    if (layout_.senders == 0) return;
    if (is_stuck()) {
        if (is_claimed(next_, true)) {
            if (!hole_spares_.empty()) open_hole();
        } else if (is_claimed(next_, false) && !has_message()) {
            // Nobody living claims the slot and nothing is there: its sender died before it wrote.
            ucs::log_debug("a sender died before it wrote message {}", next_);
            consume();
        }
    }
    const auto is_given_up = [this](const Hole& hole) {
        return !hole.is_taken && !is_claimed(hole.message, true);
    };
    for (auto hole = std::ranges::find_if(holes_, is_given_up); hole != holes_.end();
         hole = std::ranges::find_if(holes_, is_given_up)) {
        if (find_late() != nullptr) break;
        close_hole(hole->message);
    }
    for (uint32_t i = 0; i < std::min(kSome, layout_.senders); ++i) {
        const uint32_t place = std::exchange(look_at_, (look_at_ + 1) % layout_.senders);
        SenderRecord& sender = senders_[place];
        if (sender.pid.load(std::memory_order_acquire) == 0) {
            watched_[place].reset();
            continue;
        }
        // The place of a dead sender stays until the slot that it may have reserved is consumed.
        if (sender.attempt.load(std::memory_order_acquire) > next_ || is_alive(place)) continue;
        watched_[place].reset();
        sender.leave();
    }
}

}  // namespace uct::sm

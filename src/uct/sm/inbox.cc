// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/inbox.h"

#include <algorithm>
#include <new>

#include "ucs/log/log.h"
#include "uct/sm/process.h"

namespace uct::sm {

ucs_status_t Inbox::create(const Size& size, std::unique_ptr<Inbox>* inbox) {
    QueueLayout layout{size.slots, size.buffers, size.buffer_size, size.senders};
    if (size.senders != 0) layout.buffers += layout.places();
    std::unique_ptr<SharedSegment> segment;
    const ucs_status_t status = SharedSegment::create(layout.size(), nullptr, false, &segment);
    if (status != UCS_OK) return status;
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
      senders_(reinterpret_cast<Sender*>(segment->base() + layout.sender_table())),
      segment_(std::move(segment)) {
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
    if (layout.senders == 0) return;
    buffer_of_.reserve(layout.places());
    descriptors_.reserve(layout.buffers);
    spares_.reserve(layout.buffers);
    for (uint32_t i = 0; i < layout.buffers; ++i) {
        descriptors_.emplace_back(*this, i);
        if (i >= layout.places()) {
            spares_.push_back(i);
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

bool Inbox::arm() {
    uint64_t expected = next_;
    return header_->head.compare_exchange_strong(expected, next_ | QueueHeader::kArmed) ||
           expected == (next_ | QueueHeader::kArmed);
}

/** A slot of a shared queue was reserved, is empty, and no living sender can have reserved it. */
bool Inbox::is_hole() {
    const uint64_t head = header_->head.load(std::memory_order_acquire) & ~QueueHeader::kArmed;
    if (head <= next_ || has_message()) {
        stuck_at_ = ~uint64_t{0};
        return false;
    }
    // Only one that is missing for the second time: most are about to be published.
    if (stuck_at_ != next_) {
        stuck_at_ = next_;
        return false;
    }
    bool found = false;
    for (uint32_t i = 0; i < layout_.senders; ++i) {
        const uint32_t pid = senders_[i].pid.load(std::memory_order_acquire);
        if (pid == 0 || senders_[i].attempt.load(std::memory_order_acquire) != next_ + 1) continue;
        const Process sender{pid, senders_[i].start_time.load(std::memory_order_acquire)};
        // One that lives and tried for this slot may have it: it will fill it, or try another.
        if (sender.is_alive()) return false;
        found = true;
    }
    // What a sender wrote before it died is seen by now.
    return found && !has_message();
}

bool Inbox::is_elsewhere(uint32_t place, uint64_t nonce) const {
    for (uint32_t i = 0; i < layout_.senders; ++i) {
        if (i != place && senders_[i].name.load(std::memory_order_acquire) == nonce) return true;
    }
    return false;
}

void Inbox::bury_dead() {
    constexpr uint32_t kSome = 4;
    if (layout_.senders == 0) return;
    if (is_hole()) {
        ucs::log_debug("a sender died before it wrote message {}", next_);
        consume();
    }
    for (uint32_t i = 0; i < std::min(kSome, layout_.senders); ++i) {
        Sender& sender = senders_[look_at_];
        look_at_ = (look_at_ + 1) % layout_.senders;
        uint32_t pid = sender.pid.load(std::memory_order_acquire);
        // Its attempt is of use until the slot it may have is consumed.
        if (pid == 0 || sender.attempt.load(std::memory_order_acquire) > next_) continue;
        const Process process{pid, sender.start_time.load(std::memory_order_acquire)};
        if (process.is_alive()) continue;
        sender.leave();
    }
}

}  // namespace uct::sm

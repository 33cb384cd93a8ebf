// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/outbox.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "ucs/log/log.h"

namespace uct::sm {

std::optional<QueueLayout> QueueLayout::read(const QueueHeader& header, size_t room) {
    const QueueLayout layout{header.slots, header.buffers, header.buffer_size, header.senders};
    if (header.magic != QueueHeader::kMagic || header.version != QueueHeader::kVersion) return {};
    if (!std::has_single_bit(layout.slots) || layout.slots < QueueLayout::kFewestSlots ||
        layout.slots > control::kMostSlots || layout.buffers > control::kMostSlots ||
        layout.buffers < (layout.senders == 0 ? Area::kFewestPieces : layout.places()) ||
        layout.buffer_size > control::kLengthMask || layout.buffer_size % kLine != 0 ||
        layout.senders > control::kMostSenders || layout.size() > room) {
        return {};
    }
    return layout;
}

Outbox::Outbox(const SegmentName& name, MappedMemory mapping, const QueueLayout& layout)
    : slots_(reinterpret_cast<Slot*>(mapping.base() + layout.slot_table())),
      mask_(layout.slots - 1),
      places_(layout.places()),
      header_(reinterpret_cast<QueueHeader*>(mapping.base())),
      layout_(layout),
      buffer_table_(
          reinterpret_cast<std::atomic<uint32_t>*>(mapping.base() + layout.buffer_table())),
      buffers_(mapping.base() + layout.buffer_area()),
      name_(name),
      owner_(WatchedProcess::of({header_->pid, header_->start_time})),
      mapping_(std::move(mapping)) {}

Outbox::~Outbox() {
    if (sender_ != nullptr) sender_->leave();
    if (wake_descriptor_ >= 0) close(wake_descriptor_);
}

ucs_status_t Outbox::open(const SegmentName& name, Kind kind, const SegmentName& own,
                          std::unique_ptr<Outbox>* outbox) {
    MappedMemory mapping;
    const ucs_status_t status = attach_segment(name, &mapping);
    if (status != UCS_OK) return status;
    if (mapping.size() < sizeof(QueueHeader)) return UCS_ERR_UNREACHABLE;
    const auto layout =
        QueueLayout::read(*reinterpret_cast<const QueueHeader*>(mapping.base()), mapping.size());
    if (!layout) {
        ucs::log_warn("shared memory of process {} holds no queue of this version", name.pid);
        return UCS_ERR_UNREACHABLE;
    }
    std::unique_ptr<Outbox> made(new Outbox(name, std::move(mapping), *layout));
    if (made->is_closed() || made->owner_->process().pid != name.pid) return UCS_ERR_UNREACHABLE;
    if ((layout->senders == 0) != (kind == Kind::kOneSender)) {
        ucs::log_warn("a queue of process {} is of another kind than its address", name.pid);
        return UCS_ERR_UNREACHABLE;
    }
    if (kind == Kind::kManySenders && !made->enlist(own)) {
        ucs::log_warn(
            "all {} places for senders to process {} are taken: it is reached by another way; it "
            "makes more of them where UCX_NUM_EPS says how many peers to expect",
            layout->senders, name.pid);
        return UCS_ERR_NO_RESOURCE;
    }
    *outbox = std::move(made);
    return UCS_OK;
}

bool Outbox::enlist(const SegmentName& own) {
    auto* senders = reinterpret_cast<SenderRecord*>(mapping_.base() + layout_.sender_table());
    const Process self = Process::self();
    for (uint32_t i = 0; i < layout_.senders; ++i) {
        uint32_t free = 0;
        if (!senders[i].pid.compare_exchange_strong(free, self.pid)) continue;
        senders[i].start_time.store(self.start_time, std::memory_order_release);
        senders[i].name.store(own.nonce, std::memory_order_release);
        sender_ = &senders[i];
        sender_bits_ = control::of_sender(i);
        eight_bits_ = word(0, 0, 2 * sizeof(uint64_t), 0);
        own_ = own;
        return true;
    }
    return false;
}

bool Outbox::announce() {
    bool sleeps;
    const uint64_t number = reserve_one(false, &sleeps);
    if (number == kFull) return false;
    Slot& own_slot = slot(number);
    own_.write(own_slot.data);
    own_slot.control.store(word(number, 0, SegmentName::kLength, control::kAnnouncement),
                           std::memory_order_release);
    is_announced_ = true;
    plain_room_ = layout_.slots;
    if (sleeps) wake_sleeper();
    return true;
}

bool Outbox::wake() {
    if (wake_descriptor_ < 0) {
        const int32_t theirs = header_->wake_descriptor.load(std::memory_order_acquire);
        if (theirs < 0) return false;
        wake_descriptor_ = open_descriptor_of(name_.pid, static_cast<uint32_t>(theirs), "pipe:");
    }
    // A full pipe wakes as well. This end is open for reading too, so no signal can come.
    const char byte = 0;
    return write(wake_descriptor_, &byte, 1) == 1 || errno == EAGAIN;
}

void Outbox::wake_sleeper() {
    const uint64_t sleep = header_->sleeps.load(std::memory_order_acquire);
    if (header_->woken.load(std::memory_order_acquire) == sleep || sleep == unwakeable_sleep_)
        return;
    if (wake()) {
        header_->woken.store(sleep, std::memory_order_release);
    } else if (header_->wake_descriptor.load(std::memory_order_relaxed) >= 0) {
        // Its pipe cannot be opened: not tried again for each message.
        unwakeable_sleep_ = sleep;
    }
}

}  // namespace uct::sm

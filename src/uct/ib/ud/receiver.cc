// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/receiver.h"

#include <algorithm>

#include "uct/ib/ud/sender.h"

namespace uct::ib::ud {

Receiver::Verdict Receiver::arrived(uint32_t number, bool asks_acknowledgement, ucs::Time now) {
    const uint32_t ahead = number - expected_;
    if (ahead == 0) {
        ++expected_;
        ++unacknowledged_;
        const bool is_urgent =
            asks_acknowledgement || held_count_ > 0 || unacknowledged_ >= kPacketsToAcknowledge;
        due_ = std::min(due_, is_urgent ? now : ucs::deadline(now, kDelay));
        return Verdict::kDeliver;
    }
    due_ = now;
    if (ahead > kMaxAhead) return Verdict::kDrop;
    for (const HeldPacket& packet : held_) {
        if (packet.number() == number) return Verdict::kDrop;
    }
    return Verdict::kHold;
}

void Receiver::hold(HeldPacket& packet) {
    ++held_count_;
    if (held_.empty() || is_before(held_.back().number(), packet.number())) {
        held_.push_back(packet);
        return;
    }
    auto before = held_.before_begin();
    for (auto place = held_.begin(); is_before(place->number(), packet.number()); ++place) {
        before = place;
    }
    held_.insert_after(before, packet);
}

HeldPacket* Receiver::next() {
    if (held_.empty() || held_.front().number() != expected_) return nullptr;
    HeldPacket* packet = &held_.front();
    held_.pop_front();
    --held_count_;
    ++expected_;
    return packet;
}

void Receiver::acknowledge(Header* header, bool alone) {
    header->acknowledged = expected_;
    if (alone && !held_.empty()) {
        const uint32_t last = held_.back().number() - expected_ - 1;
        header->selective_words = static_cast<uint8_t>(last / 64 + 1);
        for (const HeldPacket& packet : held_) {
            const uint32_t bit = packet.number() - expected_ - 1;
            header->selective[bit / 64] |= uint64_t{1} << (bit % 64);
        }
    }
    // What is held must be told in an acknowledgement of its own.
    if (!alone && held_count_ > 0) return;
    unacknowledged_ = 0;
    due_ = ucs::kNever;
}

void Receiver::restart(HeldList* held) {
    held->splice_after(held->before_begin(), held_);
    held_count_ = 0;
    expected_ = ucs::first_number();
    unacknowledged_ = 0;
    due_ = ucs::kNever;
}

}  // namespace uct::ib::ud

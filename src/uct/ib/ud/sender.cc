// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/sender.h"

#include <algorithm>
#include <cmath>

namespace uct::ib::ud {

void Sender::add(SentPacket& packet) {
    packet.record.number = next_number_++;
    packet.record.state = SentPacket::State::kWaiting;
    packet.record.was_resent = false;
    packets_.push_back(packet);
    if (waiting_ == nullptr) waiting_ = &packet;
}

SentPacket* Sender::next() {
    if (in_flight_ >= window()) return nullptr;
    if (lost_ > 0) [[unlikely]] {
        for (SentPacket& packet : packets_) {
            if (packet.record.state == SentPacket::State::kLost) return &packet;
        }
    }
    if (waiting_ == nullptr || waiting_->number() - first_ >= settings_.max_window) return nullptr;
    return waiting_;
}

void Sender::look(ucs::Time now) {
    alive_ += ucs::unseen(looked_, now, settings_.timeout);
    looked_ = now;
}

void Sender::transmitted(SentPacket& packet, ucs::Time now) {
    look(now);
    if (in_flight_ == 0) waits_since_ = now;
    if (packet.record.state == SentPacket::State::kLost) {
        --lost_;
        packet.record.was_resent = true;
        has_resent_ = true;
    } else {
        if (packet.record.number == first_) heard(now);
        auto after = std::next(packets_.iterator_to(packet));
        waiting_ = after == packets_.end() ? nullptr : &*after;
    }
    packet.record.state = SentPacket::State::kInFlight;
    packet.record.order = next_order_++;
    packet.record.sent = now;
    ++in_flight_;
}

void Sender::delivered(SentPacket& packet, ucs::Time now) {
    if (packet.record.state == SentPacket::State::kInFlight) --in_flight_;
    if (packet.record.state == SentPacket::State::kLost) --lost_;
    packet.record.state = SentPacket::State::kDelivered;
    // Of a packet sent twice it may be the first transmission that is acknowledged; then the order
    // of the second says nothing. Half a round trip is too early for the second.
    const bool is_first =
        packet.record.was_resent && now - packet.record.sent < ucs::Duration(round_trip_ / 2);
    if (!is_first && is_before(delivered_order_, packet.record.order))
        delivered_order_ = packet.record.order;
}

bool Sender::acknowledged(uint32_t until, std::span<const uint64_t> selective, ucs::Time now,
                          SentList* done) {
    if (is_before(end_of_sent(), until)) return false;
    heard(now);
    if (is_before(until, first_)) return true;  // overtaken by a later one
    const uint32_t count = until - first_;
    ucs::Duration round_trip{};
    while (first_ != until) {
        SentPacket& packet = packets_.front();
        packets_.pop_front();
        if (packet.record.state != SentPacket::State::kDelivered) {
            round_trip = packet.record.was_resent ? ucs::Duration{} : now - packet.record.sent;
            delivered(packet, now);
        }
        ++first_;
        done->push_back(packet);
    }
    if (round_trip > ucs::Duration{}) measured(round_trip);
    if (count > 0) {
        timeouts_ = 0;
        waits_since_ = now;
        has_arrived_ = true;
        if (packets_.empty()) has_resent_ = false;
        // Orders may come around before the next loss, which must not look like an old one.
        const uint32_t oldest = packets_.empty() || &packets_.front() == waiting_
                                    ? next_order_
                                    : packets_.front().record.order;
        if (!has_resent_ && is_before(round_ends_, oldest)) round_ends_ = oldest;
    }
    mark_selective(selective, now);
    const bool has_lost = (has_resent_ || !selective.empty()) && find_lost();
    if (has_lost) {
        shrink(window_ - window_ * 3 / 10);
    } else if (count > 0) {
        grow(count);
    }
    return true;
}

void Sender::mark_selective(std::span<const uint64_t> words, ucs::Time now) {
    if (words.empty()) return;
    for (SentPacket& packet : packets_) {
        if (packet.record.state == SentPacket::State::kWaiting) return;
        const uint32_t ahead = packet.record.number - first_;
        if (ahead == 0) continue;  // the missing one itself
        const uint32_t bit = ahead - 1;
        if (bit / 64 >= words.size()) return;
        if ((words[bit / 64] >> (bit % 64) & 1) != 0 &&
            packet.record.state != SentPacket::State::kDelivered) {
            delivered(packet, now);
        }
    }
}

// @return true if any of those newly lost was sent after the window shrank last
bool Sender::find_lost() {
    bool is_new = false;
    for (SentPacket& packet : packets_) {
        if (packet.record.state == SentPacket::State::kWaiting) break;
        if (packet.record.state != SentPacket::State::kInFlight ||
            is_before(delivered_order_, packet.record.order + kReordering)) {
            continue;
        }
        packet.record.state = SentPacket::State::kLost;
        --in_flight_;
        ++lost_;
        is_new = is_new || !is_before(packet.record.order, round_ends_);
    }
    return is_new;
}

void Sender::grow(uint32_t packets) {
    const uint32_t gain =
        window_ < threshold_ ? packets * kUnit : std::max(packets * kUnit * kUnit / window_, 1u);
    window_ = std::min(window_ + gain, settings_.max_window * kUnit);
}

void Sender::shrink(uint32_t to) {
    window_ = std::max(to, std::min(kLeastWindow, settings_.max_window) * kUnit);
    threshold_ = window_;
    round_ends_ = next_order_;
}

// RFC 6298, with its weights.
void Sender::measured(ucs::Duration round_trip) {
    const auto sample =
        static_cast<uint32_t>(std::min<ucs::Duration::rep>(round_trip.count(), UINT32_MAX / 8));
    if (round_trip_ == 0) {
        round_trip_ = std::max(sample, 1u);
        deviation_ = sample / 2;
        return;
    }
    const uint32_t difference = sample > round_trip_ ? sample - round_trip_ : round_trip_ - sample;
    deviation_ = deviation_ - deviation_ / 4 + difference / 4;
    round_trip_ = std::max(round_trip_ - round_trip_ / 8 + sample / 8, 1u);
}

ucs::Duration Sender::wait() const {
    const ucs::Duration measured = round_trip_ != 0
                                       ? ucs::Duration(round_trip_) + 4 * ucs::Duration(deviation_)
                                       : kFirstTicks * settings_.tick;
    const double factor = std::pow(settings_.backoff, timeouts_);
    const double whole = static_cast<double>(std::max(measured, settings_.tick).count()) * factor;
    const auto longest = static_cast<double>(std::max(kLongestWait, settings_.tick).count());
    return ucs::Duration(static_cast<ucs::Duration::rep>(std::min(whole, longest)));
}

ucs::Time Sender::deadline() const {
    if (!awaits_something()) return ucs::kNever;
    return std::min(ucs::deadline(waits_since_, wait()), ucs::deadline(alive_, settings_.timeout));
}

Sender::Verdict Sender::on_timer(ucs::Time now) {
    if (!awaits_something()) return Verdict::kNothing;
    look(now);
    if (now >= ucs::deadline(alive_, settings_.timeout)) return Verdict::kDead;
    if (now < ucs::deadline(waits_since_, wait())) return Verdict::kNothing;
    for (SentPacket& packet : packets_) {
        if (packet.record.state == SentPacket::State::kWaiting) break;
        if (packet.record.state != SentPacket::State::kInFlight) continue;
        packet.record.state = SentPacket::State::kLost;
        ++lost_;
    }
    in_flight_ = 0;
    if (lost_ == 0) {
        // All are there, held or delivered, but the acknowledgement that said so was lost. A packet
        // that is there already brings another.
        packets_.front().record.state = SentPacket::State::kLost;
        ++lost_;
    }
    if (timeouts_ == 0) {
        const uint32_t half = window_ / 2;
        shrink(0);
        threshold_ = std::max(half, window_);
    }
    if (timeouts_ < UINT8_MAX) ++timeouts_;
    waits_since_ = now;
    return Verdict::kSendAgain;
}

void Sender::take_all(SentList* packets) {
    packets->splice(packets->end(), packets_);
    waiting_ = nullptr;
    first_ = next_number_;
    in_flight_ = lost_ = 0;
}

}  // namespace uct::ib::ud

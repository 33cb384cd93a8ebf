// SPDX-License-Identifier: BSD-3-Clause
// Requests and answers: which links shall have a slot. docs/lanes.md, rules 6 to 14.
#include <algorithm>
#include <cassert>
#include <utility>

#include "ucp/lanes/negotiator.h"

namespace ucp::lanes {

// Slots that are neither booked nor pledged; one on its way down counts, though it is not empty
// yet.
std::uint32_t Negotiator::free_slots() const {
    const std::uint32_t spoken_for = booked_ + (outstanding_ != nullptr ? 1 : 0);
    return config_.cap > spoken_for ? config_.cap - spoken_for : 0;
}

// Of the links that hold or will hold a slot: only those that may go now, or all.
Link* Negotiator::worst_booked(bool may_go) {
    Link* worst = nullptr;
    for (auto& [peer, link] : links_) {
        if (!books_slot(link.state)) continue;
        const bool settled =
            link.state == LinkState::kEstablished && now_ >= link.since + config_.min_residence;
        if (may_go && !settled) continue;
        if (worst == nullptr || link.rank() < worst->rank()) worst = &link;
    }
    return worst;
}

// What a link must beat at this end: admission, and the victim's score with the incumbent's margin.
Rank Negotiator::floor_of(const Link* victim) const {
    Rank floor{admission(), {}};
    if (victim != nullptr) {
        const Score score = with_margin(victim->score(), config_.margin_permille);
        floor = std::max(floor, Rank{score, victim->id});
    }
    return floor;
}

bool Negotiator::may_ask(const Link& link) const {
    if (link.state != LinkState::kIdle || link.deferred || half_of(link) + link.heard == 0 ||
        link.closing || link.policy == Policy::kScalable) {
        return false;
    }
    if (now_ >= link.retry_at) return true;
    return link.has_threshold && potential(link) > link.threshold &&
           now_ >= link.asked_at + config_.busy_retry;
}

// Asks for the best link that may be asked for, if it beats what its slot costs here.
void Negotiator::consider() {
    if (outstanding_ != nullptr || closing_ || config_.cap == 0) return;
    Link* best = nullptr;
    for (auto& [peer, link] : links_) {
        if (!may_ask(link)) continue;
        if (best == nullptr || potential(link) > potential(*best)) best = &link;
    }
    if (best == nullptr) return;
    const Link* victim = nullptr;
    if (free_slots() == 0) {
        victim = worst_booked(true);
        if (victim == nullptr) return;
    }
    const Rank floor = floor_of(victim);
    if (potential(*best) > floor) request(*best, floor);
}

void Negotiator::request(Link& link, const Rank& floor) {
    tell(link, true);
    // The low bit tells the two ends' rounds apart, the rest an end's rounds from one another.
    rounds_ = rounds_ % 0x7fffffffu + 1;
    start_round(link, rounds_ << 1 | (link.low_end ? 0 : 1));
    link.estimate = link.score();
    link.asked_at = now_;
    ++counters_.requests;
    set_state(link, LinkState::kRequested, Reason::kHot);
    Message message;
    message.type = MessageType::kRequest;
    message.epoch = link.epoch;
    message.half = link.told;
    message.estimate = link.estimate;
    message.floor = floor;
    send(link.peer, std::move(message));
}

void Negotiator::on_request(Link& link, const Message& message) {
    hear(link, message.half);
    if (link.state >= LinkState::kCommitted && link.state <= LinkState::kDemoting) {
        // Its sender has lost the round that this end is in, and will say so when it is asked.
        deny(link, message.epoch, DenyReason::kBusy, {});
        return;
    }
    link.deferred = false;
    if (potential(link) > message.floor) {
        // The asker would take the link: what it last denied is over. If this end must deny, it
        // asks by itself as soon as it can.
        link.has_threshold = false;
        link.retry_at = std::min(link.retry_at, link.asked_at + config_.busy_retry);
    }
    if (link.state == LinkState::kRequested || link.state == LinkState::kWithdrawing) {
        if (link.low_end) return;  // crossing: the other end answers ours
        set_state(link, LinkState::kIdle, Reason::kProgress);
        if (link.closing) {
            deny(link, message.epoch, DenyReason::kRefused, {});
            act(ActionKind::kClosed, link.peer);
            return;
        }
    } else if (link.state == LinkState::kReleasing) {
        deny(link, message.epoch, DenyReason::kBusy, {});
        return;
    }
    if (outstanding_ == nullptr || free_slots() > 0) {
        decide(link, message.epoch, message.floor);
        return;
    }
    const Rank own{outstanding_->estimate, outstanding_->id};
    if (Rank{message.estimate, link.id} > own) {
        ++counters_.deferrals;
        link.deferred = true;
        link.deferred_epoch = message.epoch;
        link.deferred_estimate = message.estimate;
        link.deferred_floor = message.floor;
    } else {
        deny(link, message.epoch, DenyReason::kBusy, {});
    }
}

void Negotiator::deny(Link& link, Epoch epoch, DenyReason reason, const Rank& floor) {
    tell(link, true);
    ++counters_.denials_sent;
    Message message;
    message.type = MessageType::kDeny;
    message.epoch = epoch;
    message.half = link.told;
    message.deny = reason;
    message.floor = floor;
    send(link.peer, std::move(message));
}

void Negotiator::decide(Link& link, Epoch epoch, const Rank& asker_floor) {
    if (closing_ || link.closing || link.policy == Policy::kScalable) {
        deny(link, epoch, DenyReason::kRefused, {});
        return;
    }
    tell(link, true);
    Link* victim = nullptr;
    Rank floor = floor_of(nullptr);
    if (free_slots() == 0) {
        victim = worst_booked(true);
        floor = floor_of(worst_booked(false));
    }
    if (link.rank() <= floor || link.rank() <= asker_floor) {
        deny(link, epoch, DenyReason::kOutranked, floor);
        return;
    }
    // It beats the worst link, but that one may not go yet; or it is the own request that books.
    if (free_slots() == 0 && (victim == nullptr || link.rank() <= floor_of(victim))) {
        deny(link, epoch, DenyReason::kBusy, {});
        return;
    }
    start_round(link, epoch);
    Message message;
    message.type = MessageType::kAccept;
    message.epoch = epoch;
    message.half = link.told;
    send(link.peer, std::move(message));
    if (victim != nullptr) demote(*victim, Reason::kOutranked);
    set_state(link, LinkState::kCommitted, Reason::kAsked);
}

Link* Negotiator::best_deferred() {
    Link* best = nullptr;
    for (auto& [peer, link] : links_) {
        if (link.deferred && (best == nullptr || link.rank() > best->rank())) best = &link;
    }
    return best;
}

void Negotiator::answer_deferred() {
    while (outstanding_ == nullptr || free_slots() > 0) {
        Link* best = best_deferred();
        if (best == nullptr) return;
        best->deferred = false;
        decide(*best, best->deferred_epoch, best->deferred_floor);
    }
}

void Negotiator::on_accept(Link& link) {
    if (link.state == LinkState::kWithdrawing) {
        set_state(link, LinkState::kIdle, Reason::kProgress);
        if (link.closing) act(ActionKind::kClosed, link.peer);
        return;
    }
    // The pledge of this round is the first thing the ended request gives back.
    outstanding_ = nullptr;
    if (free_slots() == 0) {
        // Nothing was let in on the pledge, so what it was made on is still there.
        Link* victim = worst_booked(true);
        assert(victim != nullptr);
        demote(*victim, Reason::kOutranked);
    }
    set_state(link, LinkState::kCommitted, Reason::kProgress);
}

void Negotiator::on_deny(Link& link, DenyReason why, const Rank& floor) {
    ++counters_.denials_received;
    const bool withdrawn = link.state == LinkState::kWithdrawing;
    Reason reason = Reason::kBusy;
    if (why == DenyReason::kOutranked) reason = Reason::kOutranked;
    if (why == DenyReason::kRefused) reason = Reason::kRefused;
    set_state(link, LinkState::kIdle, reason);
    link.has_threshold = why == DenyReason::kOutranked;
    link.threshold = floor;
    if (withdrawn) {
        if (link.closing) act(ActionKind::kClosed, link.peer);
        return;
    }
    switch (why) {
        case DenyReason::kBusy:
            back_off(link, config_.busy_retry, config_.retry_after);
            break;
        case DenyReason::kOutranked:
            back_off(link, config_.retry_after, config_.retry_max);
            break;
        case DenyReason::kRefused:
            back_off(link, config_.retry_max, config_.retry_max);
            break;
    }
}

void Negotiator::back_off(Link& link, Time base, Time most) {
    const std::uint32_t doublings = std::min(link.denials, 30u);
    ++link.denials;
    link.denied_score = link.score();
    const Time delay = base > (most >> doublings) ? most : base << doublings;
    link.retry_at = now_ + delay + spread(link.id, worker_, link.denials, delay);
}

// Leaves a round in which this end has not sent READY.
void Negotiator::abandon(Link& link, WithdrawReason why) {
    ++counters_.withdrawals;
    Message message;
    message.type = MessageType::kWithdraw;
    message.epoch = link.epoch;
    message.withdraw = why;
    send(link.peer, std::move(message));
    back_off(link, config_.retry_after, config_.retry_max);
    link.has_threshold = false;
    const Reason reason = why == WithdrawReason::kNoLane     ? Reason::kNoLane
                          : why == WithdrawReason::kNoAnswer ? Reason::kNoAnswer
                          : why == WithdrawReason::kClosing  ? Reason::kClosing
                                                             : Reason::kPolicy;
    if (link.state == LinkState::kRequested) {
        set_state(link, LinkState::kWithdrawing, reason);
    } else {
        release(link, reason);
    }
}

ucs_status_t Negotiator::on_withdraw(Link& link, const Message& message) {
    if (link.deferred && link.deferred_epoch == message.epoch) {
        link.deferred = false;
        deny(link, message.epoch, DenyReason::kBusy, {});
        return UCS_OK;
    }
    if (message.epoch != link.epoch || !books_slot(link.state)) return UCS_OK;
    if (link.state > LinkState::kReady) return violation();
    retreat(link);
    return UCS_OK;
}

// The peer has left a round in which it has not switched.
void Negotiator::retreat(Link& link) {
    back_off(link, config_.retry_after, config_.retry_max);
    link.has_threshold = false;
    release(link, Reason::kPeer);
}

void Negotiator::close(Link& link) {
    const bool holds_nothing = link.state == LinkState::kIdle;
    link.closing = true;
    tell(link, false);
    leave(link, Reason::kClosing);
    if (holds_nothing) act(ActionKind::kClosed, link.peer);
}

// Gives up whatever the link has or is after, as far as that can be done now.
void Negotiator::leave(Link& link, Reason reason) {
    const auto why =
        reason == Reason::kClosing ? WithdrawReason::kClosing : WithdrawReason::kPolicy;
    switch (link.state) {
        case LinkState::kIdle:
            if (link.deferred) {
                link.deferred = false;
                deny(link, link.deferred_epoch, DenyReason::kRefused, {});
            }
            break;
        case LinkState::kRequested:
        case LinkState::kCommitted:
        case LinkState::kCreating:
        case LinkState::kConnecting:
            abandon(link, why);
            break;
        case LinkState::kEstablished:
            demote(link, reason);
            break;
        default:
            break;  // READY is out: settle() demotes it once it is up; or it is on its way down
    }
}

}  // namespace ucp::lanes

// SPDX-License-Identifier: BSD-3-Clause
// Requests and answers: which links shall have a slot. docs/design/lanes.md, rules 6 to 14.
#include <algorithm>
#include <cassert>
#include <utility>

#include "ucp/lanes/negotiator.h"

namespace ucp::lanes {

// --- the ranking asks and tells

bool Negotiator::may_promote(const Ranking::Member& candidate) {
    const auto& link = static_cast<const Link&>(candidate);
    if (link.deferred || link.score() == 0 || link.life != Link::Life::kOpen ||
        link.policy == Policy::kScalable) {
        return false;
    }
    if (state_.now >= link.retry_at) return true;
    return link.denied_floor && link.rank() > *link.denied_floor &&
           state_.now >= link.asked_at + state_.config.busy_retry;
}

// Asks the peer for the link: nothing is promoted by one end alone.
void Negotiator::promote(Ranking::Member& candidate, const Rank& floor) {
    auto& link = static_cast<Link&>(candidate);
    scoreboard_.advertise(link);
    // The low bit tells the two ends' rounds apart, the rest an end's rounds from one another. It
    // is never 0, so that no round is kNoRound.
    requests_made_ = requests_made_ % 0x7fffffffu + 1;
    rounds_.start(link, requests_made_ << 1 | (link.low_end ? 0 : 1));
    link.round.kept = kept_.epoch_of(link.id());
    link.estimate = link.score();
    link.asked_at = state_.now;
    ++state_.counters.requests;
    rounds_.set_state(link, LinkState::kRequested, Reason::kHot);
    Message message;
    message.type = MessageType::kRequest;
    message.epoch = link.epoch;
    message.local = link.advertised;
    message.estimate = link.estimate;
    message.floor = floor;
    message.kept = link.round.kept;
    state_.actions.send(link.peer, std::move(message));
}

void Negotiator::demote(Ranking::Member& incumbent) {
    --moves_left_;
    rounds_.give_up(static_cast<Link&>(incumbent), Reason::kCold);
}

// --- requests of the peer

// The link that this end has asked for, or null. There is one of a pool at most.
Link* Negotiator::outstanding(Pool pool) {
    return static_cast<Link*>(scoreboard_.ranking(pool).reserving());
}

// With an own request out, an answer may give away the slot that it was made on: it does so only if
// the one asked takes too long.
bool Negotiator::can_answer(Pool pool) {
    const Link* own = outstanding(pool);
    return own == nullptr || own->is_overdue() || scoreboard_.ranking(pool).free_places() > 0;
}

// An own request that is not answered stands back for another one that could be made. @return true
// if it does
bool Negotiator::yields_request(Pool pool) {
    Link& own = *outstanding(pool);
    if (!own.is_overdue()) return false;
    Ranking& ranking = scoreboard_.ranking(pool);
    const bool is_full = ranking.taken() >= state_.config.cap_of(pool);
    Ranking::Member* victim = is_full ? ranking.worst_incumbent() : nullptr;
    if (is_full && victim == nullptr) return false;
    const Rank floor = ranking.floor_of(victim);
    const auto could_ask = [this](const Ranking::Member& member) { return may_promote(member); };
    const Ranking::Member* other = ranking.best_of(Role::kCandidate, could_ask);
    if (other == nullptr || other->standing.rank <= floor) return false;
    rounds_.withdraw(own, WithdrawReason::kNoAnswer);
    return true;
}

// The peer should have been heard of and was not.
bool Negotiator::is_asleep(const Link& link) const {
    const Config& config = state_.config;
    if (link.is_overdue()) return true;
    if (link.pings != 0 && state_.now >= link.pinged_at + config.patience) return true;
    return link.remote != 0 && state_.now >= link.heard_at + config.refresh + config.refresh / 4;
}

// The worst incumbent. But the peer of one who sleeps cannot agree to its end, so one of about the
// same rank whose peer is awake goes before it; not a better one, which would take the slot again.
Ranking::Member* Negotiator::victim_for(Pool pool, const Rank& challenger) {
    Ranking& ranking = scoreboard_.ranking(pool);
    Ranking::Member* worst = ranking.worst_incumbent();
    if (worst == nullptr || !is_asleep(static_cast<Link&>(*worst))) return worst;
    const Rank highest = ranking.floor_of(worst);
    Ranking::Member* awake = ranking.worst_of(Role::kIncumbent, [&](const Ranking::Member& member) {
        return !is_asleep(static_cast<const Link&>(member)) && member.standing.rank <= highest &&
               challenger > ranking.floor_of(&member);
    });
    return awake != nullptr ? awake : worst;
}

void Negotiator::on_request(Link& link, const Message& message) {
    scoreboard_.set_remote(link, message.local);
    if (link.state >= LinkState::kCommitted && link.state <= LinkState::kDemoting) {
        // Its sender has lost the round that this end is in, and will say so when it is asked.
        deny(link, message.epoch, DenyReason::kBusy, {});
        return;
    }
    drop_deferred(link);
    if (link.rank() > message.floor) {
        // The asker would take the link: what it last denied is over. If this end must deny, it
        // asks by itself as soon as it can.
        link.denied_floor.reset();
        link.retry_at = std::min(link.retry_at, link.asked_at + state_.config.busy_retry);
    }
    if (link.state == LinkState::kRequested || link.state == LinkState::kWithdrawing) {
        if (link.low_end) return;  // crossing: the other end answers ours
        rounds_.set_state(link, LinkState::kIdle, Reason::kProgress);
        if (link.life == Link::Life::kClosing) {
            deny(link, message.epoch, DenyReason::kRefused, {});
            state_.actions.add<&Sink::closed>(link.peer);
            return;
        }
    }
    defer(link, message);
}

// Its answer is decided on with those of all others that came together with it.
void Negotiator::defer(Link& link, const Message& request) {
    link.deferred = {request.epoch, request.estimate, request.floor, request.kept};
    link.waits_long = false;
    deferred_.push_back(&link);
}

void Negotiator::drop_deferred(Link& link) {
    if (!link.deferred) return;
    link.deferred.reset();
    std::erase(deferred_, &link);
}

void Negotiator::deny(Link& link, Epoch epoch, DenyReason reason, const Rank& floor) {
    scoreboard_.advertise(link);
    ++state_.counters.denials_sent;
    Message message;
    message.type = MessageType::kDeny;
    message.epoch = epoch;
    message.local = link.advertised;
    message.deny = reason;
    message.floor = floor;
    state_.actions.send(link.peer, std::move(message));
}

void Negotiator::decide(Link& link, const Link::Deferred& asked) {
    if (closing_ || link.life == Link::Life::kClosing || link.policy == Policy::kScalable) {
        deny(link, asked.epoch, DenyReason::kRefused, {});
        return;
    }
    scoreboard_.advertise(link);
    Ranking& ranking = scoreboard_.ranking(link.pool);
    Link* own = outstanding(link.pool);
    if (own != nullptr && !own->is_overdue()) own = nullptr;
    const bool is_full = own != nullptr ? ranking.taken() >= state_.config.cap_of(link.pool)
                                        : ranking.free_places() == 0;
    const Rank floor = ranking.floor_of(is_full ? ranking.worst_holder() : nullptr);
    if (link.rank() <= floor || link.rank() <= asked.floor) {
        deny(link, asked.epoch, DenyReason::kOutranked, floor);
        return;
    }
    // It beats the worst link, but that one may not go yet; or it is the own request that books.
    Ranking::Member* victim = is_full ? victim_for(link.pool, link.rank()) : nullptr;
    if (is_full && (victim == nullptr || link.rank() <= ranking.floor_of(victim))) {
        deny(link, asked.epoch, DenyReason::kBusy, {});
        return;
    }
    // The slot is the one that the own request was made on.
    if (own != nullptr && ranking.free_places() == 0) {
        rounds_.withdraw(*own, WithdrawReason::kNoAnswer);
    }
    rounds_.start(link, asked.epoch);
    Message message;
    message.type = MessageType::kAccept;
    message.epoch = asked.epoch;
    message.local = link.advertised;
    if (kept_.epoch_of(link.id()) == asked.kept) message.kept = asked.kept;
    const Epoch kept = message.kept;
    state_.actions.send(link.peer, std::move(message));
    if (victim != nullptr) rounds_.give_up(static_cast<Link&>(*victim), Reason::kOutranked);
    rounds_.commit(link, kept, Reason::kAsked);
}

// One whose last lane is just going waits for that.
Link* Negotiator::best_deferred(Pool pool) {
    const auto is_worse = [](const Link* one, const Link* other) {
        const bool is_idle = one->state == LinkState::kIdle;
        if (is_idle != (other->state == LinkState::kIdle)) return !is_idle;
        return one->rank() < other->rank();
    };
    Link* best = nullptr;
    for (Link* link : deferred_) {
        if (link->pool == pool && (best == nullptr || is_worse(best, link))) best = link;
    }
    return best;
}

// Answers the best ones while it can. Of the rest, those wait that outrank the own request.
void Negotiator::answer_deferred(Pool pool) {
    const auto take = [this](Link& link) {
        const Link::Deferred asked = *link.deferred;
        drop_deferred(link);
        state_.touch(link);
        return asked;
    };
    while (can_answer(pool)) {
        Link* const best = best_deferred(pool);
        if (best == nullptr || best->state != LinkState::kIdle || !may_move()) return;
        const Link::Deferred asked = take(*best);
        decide(*best, asked);
    }
    for (std::size_t i = 0; i < deferred_.size();) {
        Link& link = *deferred_[i];
        if (link.pool != pool) {
            ++i;
            continue;
        }
        const Link& own = *outstanding(pool);
        if (Rank{link.deferred->estimate, link.id()} > Rank{own.estimate, own.id()}) {
            if (!link.waits_long) ++state_.counters.deferrals;
            link.waits_long = true;
            ++i;
        } else if (!may_move()) {
            return;
        } else {
            deny(link, take(link).epoch, DenyReason::kBusy, {});
        }
    }
}

// What was agreed may be more than there are slots: the worst links give theirs up.
void Negotiator::free_booked_slots(Pool pool) {
    Ranking& ranking = scoreboard_.ranking(pool);
    while (ranking.taken() > state_.config.cap_of(pool)) {
        const auto is_committed = [](const Ranking::Member& member) {
            return static_cast<const Link&>(member).state == LinkState::kCommitted;
        };
        auto* accepted = static_cast<Link*>(ranking.best_of(Role::kEntering, is_committed));
        Ranking::Member* victim =
            victim_for(pool, accepted != nullptr ? accepted->rank() : Rank{kMaxFloor, {}});
        if (victim != nullptr) {
            rounds_.give_up(static_cast<Link&>(*victim), Reason::kOutranked);
            continue;
        }
        // One that was overdue may have gone on meanwhile, and may not go any more.
        assert(accepted != nullptr);
        rounds_.withdraw(*accepted, WithdrawReason::kNoLane);
    }
}

// --- answers of the peer

void Negotiator::on_accept(Link& link, Epoch kept) {
    if (link.state == LinkState::kWithdrawing) {
        rounds_.set_state(link, LinkState::kIdle, Reason::kProgress);
        if (link.life == Link::Life::kClosing) {
            state_.actions.add<&Sink::closed>(link.peer);
        }
        return;
    }
    rounds_.commit(link, kept, Reason::kProgress);
}

void Negotiator::on_deny(Link& link, DenyReason why, const Rank& floor) {
    const Config& config = state_.config;
    ++state_.counters.denials_received;
    const bool was_withdrawn = link.state == LinkState::kWithdrawing;
    Reason reason = Reason::kBusy;
    if (why == DenyReason::kOutranked) reason = Reason::kOutranked;
    if (why == DenyReason::kRefused) reason = Reason::kRefused;
    rounds_.set_state(link, LinkState::kIdle, reason);
    link.denied_floor.reset();
    if (why == DenyReason::kOutranked) link.denied_floor = floor;
    if (was_withdrawn) {
        if (link.life == Link::Life::kClosing) {
            state_.actions.add<&Sink::closed>(link.peer);
        }
        return;
    }
    switch (why) {
        case DenyReason::kBusy:
            rounds_.back_off(link, config.busy_retry, config.retry_after);
            break;
        case DenyReason::kOutranked:
            rounds_.back_off(link, config.retry_after, config.retry_max);
            break;
        case DenyReason::kRefused:
            rounds_.back_off(link, config.retry_max, config.retry_max);
            break;
    }
}

ucs_status_t Negotiator::on_withdraw(Link& link, const Message& message) {
    if (link.deferred && link.deferred->epoch == message.epoch) {
        drop_deferred(link);
        deny(link, message.epoch, DenyReason::kBusy, {});
        return UCS_OK;
    }
    if (message.epoch != link.epoch || !books_slot(link.state)) return UCS_OK;
    if (link.state > LinkState::kReady) return violation();
    rounds_.on_withdrawn(link);
    return UCS_OK;
}

}  // namespace ucp::lanes

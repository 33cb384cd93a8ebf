// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/negotiator.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <new>
#include <utility>

namespace ucp::lanes {
namespace {

[[maybe_unused]] bool is_in_order(const Config& config) {
    return config.margin_permille <= kMaxMarginPermille && config.min_score >= 1 &&
           config.min_score <= kMaxMeasuredScore && config.busy_retry >= 1 &&
           config.retry_after >= config.busy_retry && config.retry_max >= config.retry_after &&
           config.refresh >= 1 && config.stale_after >= 2 * config.refresh &&
           config.wait_timeout >= 1;
}

Config with_links_for_all_lanes(Config config) {
    assert(is_in_order(config));
    config.max_links = std::max(config.max_links, 2 * (config.cap + config.host_cap) + 8);
    return config;
}

}  // namespace

Negotiator::Negotiator(const Config& config, std::uint64_t worker, Sink& sink)
    : sink_(sink),
      state_{with_links_for_all_lanes(config), worker, Actions(sink)},
      scoreboard_(state_),
      kept_(state_, sink),
      rounds_(state_, scoreboard_, kept_) {}

// --- records

Link* Negotiator::lookup(Peer peer) {
    const auto found = links_.find(peer);
    if (found == links_.end() || found->second.life == Link::Life::kGone) return nullptr;
    state_.touch(found->second);
    return &found->second;
}

LinkId Negotiator::id_of(const PeerId& peer) const {
    const std::uint64_t own = state_.worker;
    return {std::min(own, peer.worker), std::max(own, peer.worker), peer.connection};
}

const Link* Negotiator::find(Peer peer) const {
    const auto found = links_.find(peer);
    return found == links_.end() ? nullptr : &found->second;
}

Switch* Negotiator::switch_of(Peer peer) {
    const auto found = links_.find(peer);
    if (found == links_.end() || !holds_slot(found->second.state)) return nullptr;
    return &found->second.round.direction;
}

Negotiator::Order Negotiator::order_of(Peer peer, Epoch epoch) const {
    const Link* link = find(peer);
    // In any other state the round was lost: FLUSHED, by which a round ends as agreed, comes behind
    // all ordered messages of its sender.
    const bool is_switched =
        link != nullptr && link->epoch == epoch &&
        (link->state == LinkState::kSwitching || link->state == LinkState::kEstablished ||
         link->state == LinkState::kDemoting);
    if (!is_switched) return Order::kDrop;
    return link->round.peer < Round::PeerStep::kDmark ? Order::kHold : Order::kDeliver;
}

bool Negotiator::is_empty(const Link& link) {
    return link.state == LinkState::kIdle && link.local == 0 && link.score() == 0 &&
           link.policy == Policy::kAuto && link.life == Link::Life::kOpen && !link.deferred &&
           !link.owes_score;
}

// The lowest link that is kept for its score alone.
Link* Negotiator::lowest_idle(Pool pool) {
    return static_cast<Link*>(
        scoreboard_.ranking(pool).worst_of(Role::kCandidate, [](const Ranking::Member& member) {
            const auto& link = static_cast<const Link&>(member);
            return link.policy == Policy::kAuto && link.life == Link::Life::kOpen && !link.deferred;
        }));
}

// Drops the lowest idle link, if it is below `score`.
bool Negotiator::make_room(Score score) {
    Link* lowest = nullptr;
    for (const Pool pool : kPools) {
        Link* const found = lowest_idle(pool);
        if (found != nullptr && (lowest == nullptr || found->score() < lowest->score()))
            lowest = found;
    }
    if (lowest == nullptr || lowest->score() >= score) return false;
    if (lowest->advertised != 0) {
        Message zero;
        zero.type = MessageType::kScore;
        state_.actions.send(lowest->peer, std::move(zero));
    }
    erase(*lowest);
    return true;
}

// The record of `peer`. It is made if there is room, if `score` is above that of a link that can be
// dropped, or if `always`.
Link* Negotiator::track(Peer peer, Score score, bool always) {
    if (links_.contains(peer)) return lookup(peer);
    if (links_.size() >= state_.config.max_links && !make_room(score) && !always) return nullptr;
    const PeerId id = sink_.identify(peer);
    if (id.worker == state_.worker) return nullptr;
    // Room for an event that concerns all links: events do not allocate.
    state_.actions.make_room(links_.size() + 1);
    reserve_for(state_.touched, links_.size() + 1);
    reserve_for(deferred_, links_.size() + 1);
    Link& link = links_[peer];
    link.peer = peer;
    link.low_end = state_.worker < id.worker;
    link.pool = sink_.pool_of(peer);
    link.standing.rank.id = id_of(id);
    link.since = link.heard_at = state_.now;
    scoreboard_.place(link);
    state_.touch(link);
    return &link;
}

Link* Negotiator::try_track(Peer peer, Score score) {
    try {
        return track(peer, score, false);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void Negotiator::erase(Link& link) {
    if (link.is_touched) std::erase(state_.touched, &link);
    if (link.by_deadline.is_linked()) by_deadline_.erase(by_deadline_.iterator_to(link));
    drop_deferred(link);
    scoreboard_.remove(link);
    links_.erase(link.peer);
}

ucs_status_t Negotiator::violation() {
    ++state_.counters.violations;
    return UCS_ERR_INVALID_PARAM;
}

// --- time

void Negotiator::advance(Time now) {
    Event event(*this);
    set_time(now);
    scores_are_partial_ = false;
    is_unsettled_ = false;
    kept_.drop_expired();
    // Timers of many links may be due together: the rest waits for the next call.
    constexpr unsigned kMostAtOnce = 3;
    for (unsigned count = 0; count < kMostAtOnce && !by_deadline_.empty() &&
                             by_deadline_.begin()->deadline <= state_.now;
         ++count) {
        Link& link = *by_deadline_.begin();
        by_deadline_.erase(by_deadline_.begin());
        state_.touch(link);
        scoreboard_.age(link);
        if (is_empty(link)) {
            erase(link);
            continue;
        }
        if (link.patience_ends <= state_.now) rounds_.lose_patience(link);
        if (link.timer <= state_.now) expire(link);
    }
}

void Negotiator::settle() {
    Event event(*this);
    is_unsettled_ = false;
}

void Negotiator::expire(Link& link) {
    if (link.state == LinkState::kRequested && link.pings >= state_.config.request_pings) {
        rounds_.withdraw(link, WithdrawReason::kNoAnswer);
        return;
    }
    if (link.pings++ == 0) link.pinged_at = state_.now;
    rounds_.restart_timer(link);
    ++state_.counters.pings;
    state_.actions.send(link, MessageType::kPing);
}

// What became possible or due: slots given back, answers, lanes for links whose slot is free now,
// an own request.
void Negotiator::make_progress() {
    step_down_touched();
    is_behind_ = false;
    // Nothing is decided on a part of an interval's scores: the links that come first would win.
    const bool may_decide = !is_unsettled_ && !scores_are_partial_;
    for (const Pool pool : kPools) {
        Ranking& ranking = scoreboard_.ranking(pool);
        if (may_decide) {
            free_booked_slots(pool);
            if (!ranking.demote_cold(*this, moves_left_)) is_behind_ = true;
            answer_deferred(pool);
        }
        // Not between messages that have come together: they may make room for many lanes.
        if (!is_unsettled_) make_lanes(pool);
        // One request at a time.
        if (may_decide && !closing_ && (outstanding(pool) == nullptr || yields_request(pool)))
            ranking.promote_best(*this);
    }
    keep_deadlines();
}

// @return false if what is due must wait for the next call
bool Negotiator::may_move(unsigned moves) {
    if (moves_left_ < moves) {
        is_behind_ = true;
        return false;
    }
    moves_left_ -= moves;
    return true;
}

void Negotiator::step_down_touched() {
    // The loop may touch further links, but makes none Established.
    for (std::size_t i = 0; i < state_.touched.size(); ++i) {
        Link& link = *state_.touched[i];
        if (link.state != LinkState::kEstablished) continue;
        if (link.life == Link::Life::kClosing) {
            rounds_.demote(link, Reason::kClosing);
        } else if (link.policy == Policy::kScalable) {
            rounds_.demote(link, Reason::kPolicy);
        }
    }
}

void Negotiator::make_lanes(Pool pool) {
    const auto is_committed = [](const Ranking::Member& member) {
        return static_cast<const Link&>(member).state == LinkState::kCommitted;
    };
    while (rounds_.committed() != 0) {
        Ranking& ranking = scoreboard_.ranking(pool);
        Ranking::Member* next = ranking.best_of(Role::kEntering, is_committed);
        // An overdue one, which stands back for the others.
        if (next == nullptr) next = ranking.best_of(Role::kIncumbent, is_committed);
        if (next == nullptr) return;  // it is of another pool
        auto& link = static_cast<Link&>(*next);
        if (!find_slot(link) || !may_move(kMovesOfALane)) return;
        rounds_.create(link);
    }
}

// Is a slot free, or becomes so if the lane of a peer that does not answer is parked?
bool Negotiator::find_slot(const Link& next) {
    const std::uint32_t cap = state_.config.cap_of(next.pool);
    if (rounds_.held(next.pool) < cap) return true;
    Ranking::Member* found =
        scoreboard_.ranking(next.pool).worst_of(Role::kNone, [](const Ranking::Member& member) {
            return Rounds::may_park(static_cast<const Link&>(member));
        });
    if (found == nullptr) return false;
    // To park one and to make the other's lane belong in the same call: a kept lane that is taken
    // back has its place beside the slots until then.
    if (moves_left_ < kMovesOfALane) {
        is_behind_ = true;
        return false;
    }
    if (!rounds_.make_room_beside(next)) return false;
    rounds_.park(static_cast<Link&>(*found));
    return rounds_.held(next.pool) < cap;
}

// Deadlines of the links that the event touched: others have not changed.
void Negotiator::keep_deadlines() {
    for (Link* link : state_.touched) {
        link->is_touched = false;
        // Nothing is left to say about it: the next advance() drops it.
        const Time deadline = is_empty(*link) ? state_.now : deadline_of(*link);
        if (link->by_deadline.is_linked()) {
            if (link->deadline == deadline) continue;
            by_deadline_.erase(by_deadline_.iterator_to(*link));
        }
        link->deadline = deadline;
        if (deadline != kNever) by_deadline_.insert(*link);
    }
    state_.touched.clear();
}

Time Negotiator::deadline_of(const Link& link) const {
    const Time deadline = std::min({link.timer, link.patience_ends, scoreboard_.deadline_of(link)});
    if (link.state != LinkState::kIdle || link.score() == 0) return deadline;
    Time retry = link.retry_at;
    if (link.denied_floor && link.rank() > *link.denied_floor) {
        retry = std::min(retry, link.asked_at + state_.config.busy_retry);
    }
    return retry > state_.now ? std::min(deadline, retry) : deadline;
}

Time Negotiator::next_deadline() const {
    if (scores_are_partial_ || is_unsettled_ || is_behind_ || waits_for_memory()) return state_.now;
    const Time deadline = by_deadline_.empty() ? kNever : by_deadline_.begin()->deadline;
    return std::min(deadline, kept_.deadline());
}

bool Negotiator::consistent() const {
    struct Counts {
        std::uint32_t held = 0, booked = 0, requested = 0;
    };
    std::array<Counts, kPools.size()> counts;
    std::uint32_t parked = 0, committed = 0;
    for (const auto& [peer, link] : links_) {
        Counts& own = counts[static_cast<std::size_t>(link.pool)];
        (link.round.slot == Round::Slot::kParked ? parked : own.held) += holds_slot(link.state);
        own.booked += link.has_booked();
        committed += link.state == LinkState::kCommitted;
        own.requested += link.state == LinkState::kRequested;
        if (!link.round.fits(link.state)) return false;
        if (link.deferred && link.state != LinkState::kIdle &&
            link.state != LinkState::kReleasing) {
            return false;
        }
        if (link.life == Link::Life::kGone && link.state != LinkState::kReleasing) return false;
        if (link.standing.rank != link.rank()) return false;
        // Once its deadline is over, advance() corrects the role.
        if (link.deadline > state_.now && link.standing.role != scoreboard_.role_of(link)) {
            return false;
        }
    }
    for (const Pool pool : kPools) {
        const auto [held, booked, requested] = counts[static_cast<std::size_t>(pool)];
        const std::uint32_t cap = state_.config.cap_of(pool);
        const bool fits = held == rounds_.held(pool) &&
                          booked == scoreboard_.ranking(pool).taken() && requested <= 1 &&
                          held <= cap && (booked <= cap || is_unsettled_ || scores_are_partial_);
        if (!fits) return false;
    }
    return parked == this->parked() && committed == rounds_.committed() &&
           parked + kept_.size() <= state_.config.max_parked;
}

// --- events

void Negotiator::on_score(Peer peer, Score measured, Score doubt) {
    if (closing_) return;
    Event event(*this);
    scores_are_partial_ = true;
    take_score({peer, measured, doubt});
}

void Negotiator::on_scores(std::span<const Measured> some, bool are_all) {
    if (closing_) return;
    Event event(*this);
    scores_are_partial_ = !are_all;
    for (const Measured& measured : some) take_score(measured);
}

// The doubt is taken off the score of a link that would replace another one; where slots are free
// it replaces none.
void Negotiator::take_score(const Measured& measured) {
    Link* link = lookup(measured.peer);
    const Pool pool = link != nullptr ? link->pool : sink_.pool_of(measured.peer);
    if (!takes_part(pool)) return;
    Score score = measured.score;
    const bool competes = link == nullptr || !books_slot(link->state);
    if (competes && scoreboard_.ranking(pool).free_places() == 0) {
        score -= std::min(score, measured.doubt);
    }
    score = std::min(score, kMaxMeasuredScore);
    if (link == nullptr && scoreboard_.counts(score)) link = try_track(measured.peer, score);
    if (link == nullptr) return;
    link->local = score;
    link->doubt = std::min(measured.doubt, kMaxMeasuredScore);
    scoreboard_.update_local(*link);
}

ucs_status_t Negotiator::on_message(Peer peer, const Message& message, bool may_promote) {
    Event event(*this);
    is_unsettled_ = true;
    Link* link = lookup(peer);
    const Pool pool = link != nullptr ? link->pool : sink_.pool_of(peer);
    const bool may_track = takes_part(pool) && may_promote;
    if (link != nullptr) {
        link->heard_at = state_.now;
        scoreboard_.heard(*link);
    }
    switch (message.type) {
        case MessageType::kPing: {
            Message answer;
            const bool is_known = link != nullptr && link->knows(message.epoch);
            answer.type = is_known ? MessageType::kPong : MessageType::kGone;
            answer.epoch = message.epoch;
            state_.actions.send(peer, std::move(answer));
            return UCS_OK;
        }
        case MessageType::kScore:
            if (link == nullptr && message.local != 0 && may_track) {
                link = try_track(peer, message.local);
            }
            if (link != nullptr) scoreboard_.set_remote(*link, message.local);
            return UCS_OK;
        case MessageType::kRequest: {
            if (link == nullptr && may_track) link = try_track(peer, message.local);
            if (link == nullptr) {
                Message denial;
                denial.type = MessageType::kDeny;
                denial.epoch = message.epoch;
                denial.deny = may_track ? DenyReason::kBusy : DenyReason::kRefused;
                // A peer that could not get a slot anyhow is told the floor, so that it does not
                // ask again soon: there may be many.
                Ranking& ranking = scoreboard_.ranking(pool);
                Rank floor = ranking.floor_of(ranking.worst_holder());
                // A link without a record comes behind all that have one.
                if (const Link* lowest = lowest_idle(pool)) floor = std::max(floor, lowest->rank());
                if (may_track && ranking.free_places() == 0 && message.estimate < floor.score) {
                    denial.deny = DenyReason::kOutranked;
                    denial.floor = floor;
                }
                ++state_.counters.denials_sent;
                state_.actions.send(peer, std::move(denial));
                return UCS_OK;
            }
            const bool asker_is_high = message.epoch & 1;
            if (asker_is_high != link->low_end || link->knows(message.epoch)) return violation();
            on_request(*link, message);
            return UCS_OK;
        }
        default:
            return link != nullptr ? on_answer(*link, message) : UCS_OK;
    }
}

// A message about a round of a known link.
ucs_status_t Negotiator::on_answer(Link& link, const Message& message) {
    const bool awaits_answer =
        link.state == LinkState::kRequested || link.state == LinkState::kWithdrawing;
    if (message.type == MessageType::kWithdraw) return on_withdraw(link, message);
    if (message.epoch != link.epoch) return UCS_OK;
    switch (message.type) {
        case MessageType::kPong:
            link.pings = 0;
            return UCS_OK;
        case MessageType::kGone:
            if (awaits_answer) {
                on_deny(link, DenyReason::kBusy, {});
            } else if (in_round(link.state)) {
                rounds_.on_lost(link);
            }
            return UCS_OK;
        case MessageType::kAccept:
        case MessageType::kDeny:
            if (!awaits_answer) return UCS_OK;
            if (message.kept != 0 && message.kept != link.round.kept) return violation();
            scoreboard_.set_remote(link, message.local);
            if (message.type == MessageType::kAccept) {
                on_accept(link, message.kept);
            } else {
                on_deny(link, message.deny, message.floor);
            }
            return UCS_OK;
        default:
            if (!books_slot(link.state) && link.state != LinkState::kDemoting) return UCS_OK;
            return rounds_.on_message(link, message) == UCS_OK ? UCS_OK : violation();
    }
}

void Negotiator::on_lane_created(Peer peer, ucs_status_t status,
                                 std::span<const std::uint8_t> address) {
    Event event(*this);
    const auto found = links_.find(peer);
    if (found == links_.end()) return;
    state_.touch(found->second);
    rounds_.lane_created(found->second, status, address);
    if (Rounds::is_over(found->second)) erase(found->second);
}

void Negotiator::on_lane_ready(Peer peer, ucs_status_t status) {
    Event event(*this);
    if (Link* link = lookup(peer)) rounds_.lane_ready(*link, status);
}

void Negotiator::on_lane_destroyed(Peer peer) {
    Event event(*this);
    const auto found = links_.find(peer);
    if (found == links_.end()) return;
    state_.touch(found->second);
    rounds_.lane_destroyed(found->second);
    if (Rounds::is_over(found->second)) erase(found->second);
}

void Negotiator::on_marker_posted(Peer peer) {
    Event event(*this);
    if (Link* link = lookup(peer)) rounds_.marker_posted(*link);
}

void Negotiator::on_flushed(Peer peer) {
    Event event(*this);
    if (Link* link = lookup(peer)) rounds_.flushed(*link);
}

void Negotiator::on_lane_full(Peer peer) {
    Event event(*this);
    Link* link = lookup(peer);
    if (link == nullptr || !Rounds::may_demote(*link)) return;
    rounds_.demote(*link, Reason::kFull);
    rounds_.back_off(*link, state_.config.retry_after, state_.config.retry_max);
}

void Negotiator::on_lane_failed(Peer peer, ucs_status_t status) {
    Event event(*this);
    if (Link* link = lookup(peer)) rounds_.lane_failed(*link, status);
}

void Negotiator::on_peer_died(Peer peer) {
    Event event(*this);
    kept_.drop(id_of(sink_.identify(peer)));
    remove(peer);
}

void Negotiator::on_kept_lane_lost(const PeerId& peer) {
    Event event(*this);
    kept_.lose(id_of(peer));
}

void Negotiator::on_kept_lane_wanted(const PeerId& peer) {
    Event event(*this);
    kept_.drop_unless_pinned(id_of(peer));
}

void Negotiator::forget(Peer peer) {
    Event event(*this);
    remove(peer);
}

void Negotiator::remove(Peer peer) {
    Link* link = lookup(peer);
    if (link == nullptr) return;
    drop_deferred(*link);
    if (!holds_slot(link->state)) {
        link->life = Link::Life::kOpen;
        if (link->state != LinkState::kIdle) {
            rounds_.release(*link, Reason::kDied);
        }
        erase(*link);
        return;
    }
    link->life = Link::Life::kGone;
    if (link->state != LinkState::kReleasing) rounds_.release(*link, Reason::kDied);
}

void Negotiator::set_policy(Peer peer, Policy policy) {
    if (!takes_part(sink_.pool_of(peer))) return;
    Event event(*this);
    Link* link = policy == Policy::kAuto ? lookup(peer) : track(peer, kPinnedScore, true);
    if (link == nullptr || link->life == Link::Life::kClosing) return;
    link->policy = policy;
    link->denials = 0;
    link->retry_at = state_.now;
    scoreboard_.update_local(*link);
    if (policy == Policy::kScalable) step_down(*link, Reason::kPolicy);
}

void Negotiator::on_close(Peer peer) {
    Event event(*this);
    Link* link = track(peer, kMaxScore, true);
    if (link == nullptr) {
        state_.actions.add<&Sink::closed>(peer);
    } else if (link->life == Link::Life::kOpen) {
        close(*link);
    }
}

void Negotiator::withdraw_all() {
    state_.actions.make_room(4 * links_.size());
    Event event(*this);
    closing_ = true;
    kept_.close();
    for (auto& [peer, link] : links_) {
        state_.touch(link);
        if (link.life == Link::Life::kOpen) close(link);
    }
}

void Negotiator::close(Link& link) {
    const bool holds_nothing = link.state == LinkState::kIdle;
    link.life = Link::Life::kClosing;
    scoreboard_.update_local(link);
    step_down(link, Reason::kClosing);
    if (holds_nothing) state_.actions.add<&Sink::closed>(link.peer);
}

// Gives up what the link has or asks for, as far as that can be done now.
void Negotiator::step_down(Link& link, Reason reason) {
    const auto why =
        reason == Reason::kClosing ? WithdrawReason::kClosing : WithdrawReason::kPolicy;
    switch (link.state) {
        case LinkState::kIdle:
            if (link.deferred) {
                const Epoch epoch = link.deferred->epoch;
                drop_deferred(link);
                deny(link, epoch, DenyReason::kRefused, {});
            }
            break;
        case LinkState::kRequested:
        case LinkState::kCommitted:
        case LinkState::kCreating:
        case LinkState::kConnecting:
            rounds_.withdraw(link, why);
            break;
        case LinkState::kEstablished:
            rounds_.demote(link, reason);
            break;
        default:
            break;  // READY is out: it is demoted once it is up; or it is on its way down
    }
}

}  // namespace ucp::lanes

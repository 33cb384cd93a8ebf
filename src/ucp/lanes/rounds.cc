// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/rounds.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>
#include <vector>

namespace ucp::lanes {
namespace {

using Lane = Round::Lane;
using Slot = Round::Slot;
using PeerStep = Round::PeerStep;
using Acknowledged = Round::Acknowledged;

// A part of `delay` below a half that depends only on the link and the attempt: links denied
// together do not ask again together.
Time jitter(const LinkId& id, std::uint64_t own, std::uint32_t attempt, Time delay) {
    std::uint64_t hash = id.low ^ (id.high * 0x9e3779b97f4a7c15u) ^ (own << 1) ^
                         (std::uint64_t{id.connection} << 32 | attempt);
    hash = (hash ^ (hash >> 31)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 29)) * 0x94d049bb133111ebu;
    return delay / 1024 * ((hash >> 40) % 512);
}

Reason reason_of(WithdrawReason why) {
    switch (why) {
        case WithdrawReason::kNoLane:
            return Reason::kNoLane;
        case WithdrawReason::kNoAnswer:
            return Reason::kNoAnswer;
        case WithdrawReason::kClosing:
            return Reason::kClosing;
        case WithdrawReason::kPolicy:
            return Reason::kPolicy;
    }
    return Reason::kNone;
}

// False without memory.
bool assign(std::vector<std::uint8_t>& to, std::span<const std::uint8_t> bytes) {
    try {
        to.assign(bytes.begin(), bytes.end());
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace

void Rounds::set_state(Link& link, LinkState state, Reason reason) {
    std::uint32_t& lanes = link.round.slot == Slot::kParked ? parked_ : lanes_of(link.pool);
    lanes += holds_slot(state);
    lanes -= holds_slot(link.state);
    committed_ += state == LinkState::kCommitted;
    committed_ -= link.state == LinkState::kCommitted;
    if (link.round.kept != 0) {
        if (pins_kept(state)) {
            kept_.pin(link.id());
        } else if (pins_kept(link.state)) {
            kept_.unpin(link.id());
        }
    }
    state_.touch(link);
    state_.actions.notify(link.peer, {link.state, state, reason, link.score()});
    link.state = state;
    link.since = state_.now;
    link.pings = 0;
    restart_timer(link);
    const bool waits = waits_for_peer(state);
    link.patience = waits ? Link::Patience::kFirst : Link::Patience::kNone;
    link.patience_ends = waits ? state_.now + state_.config.patience : kNever;
    if (reason != Reason::kProgress) link.reason = reason;
    scoreboard_.place(link);
}

void Rounds::restart_timer(Link& link) {
    const Config& config = state_.config;
    // Who does not answer is asked ever more seldom.
    constexpr std::uint32_t kMostDoublings = 6;
    const std::uint32_t doublings = std::min(link.pings, kMostDoublings);
    if (link.state == LinkState::kRequested) {
        link.timer = state_.now + config.wait_timeout;
    } else if (waits_for_peer(link.state)) {
        link.timer = state_.now + (config.wait_timeout << doublings);
    } else if (link.state == LinkState::kEstablished) {
        // Ask from time to time: a peer that has lost the round notices nothing by itself.
        link.timer = state_.now + (config.stale_after << doublings);
    } else {
        link.timer = kNever;
    }
}

void Rounds::lose_patience(Link& link) {
    if (link.patience == Link::Patience::kFirst) {
        link.patience = Link::Patience::kLast;
        link.patience_ends = state_.now + state_.config.patience / 4;
        return;
    }
    link.patience = Link::Patience::kOver;
    link.patience_ends = kNever;
    scoreboard_.place(link);
}

void Rounds::start(Link& link, Epoch epoch) {
    link.epoch = epoch;
    link.round = {};
}

void Rounds::back_off(Link& link, Time base, Time most) {
    const std::uint32_t doublings = std::min(link.denials, 30u);
    ++link.denials;
    link.denied_score = link.score();
    const Time delay = base > (most >> doublings) ? most : base << doublings;
    link.retry_at = state_.now + delay + jitter(link.id(), state_.worker, link.denials, delay);
}

// --- up

void Rounds::commit(Link& link, Epoch kept, Reason reason) {
    link.round.kept = kept;
    // A lane that only one end has kept is of no use.
    if (kept == 0) kept_.drop(link.id());
    set_state(link, LinkState::kCommitted, reason);
}

void Rounds::create(Link& link) {
    assert(link.state == LinkState::kCommitted);
    // The kept lane may be lost. Then a new one is made, and the peer sees that it is not the one
    // that it has kept.
    const bool is_kept = link.round.kept != 0 && kept_.take(link.id(), link.round.kept);
    state_.counters.reused += is_kept;
    link.round.lane = Lane::kCreating;
    set_state(link, LinkState::kCreating, Reason::kProgress);
    if (is_kept) {
        state_.actions.add<&Sink::take_lane>(link.peer);
    } else {
        state_.actions.add<&Sink::create_lane>(link.peer);
    }
    assert(link.round.fits(link.state));
}

void Rounds::lane_created(Link& link, ucs_status_t status, std::span<const std::uint8_t> address) {
    if (link.round.lane != Lane::kCreating) return;
    assert(link.state == LinkState::kCreating || link.state == LinkState::kReleasing);
    const auto has_made_room = [&] {
        if (status == UCS_ERR_NO_RESOURCE) return kept_.drop_oldest_for(link.peer);
        return status == UCS_ERR_NO_MEMORY && kept_.drop_oldest();
    };
    if (link.state == LinkState::kCreating && has_made_room()) {
        state_.actions.add<&Sink::create_lane>(link.peer);
        return;
    }
    if (status != UCS_OK) {
        if (link.state == LinkState::kCreating) withdraw(link, WithdrawReason::kNoLane);
        released(link, Reason::kProgress);
        return;
    }
    link.round.lane = Lane::kCreated;
    if (link.state == LinkState::kReleasing) {
        destroy(link);
        return;
    }
    Message message;
    if (address.size() > kMaxLaneAddress || !assign(message.address, address)) {
        withdraw(link, WithdrawReason::kNoLane);
        return;
    }
    set_state(link, LinkState::kConnecting, Reason::kProgress);
    message.type = MessageType::kLane;
    message.epoch = link.epoch;
    message.window = state_.config.window;
    state_.actions.send(link.peer, std::move(message));
    connect(link);
    assert(link.round.fits(link.state));
}

void Rounds::connect(Link& link) {
    if (link.round.lane != Lane::kCreated || link.round.peer == PeerStep::kNone) return;
    link.round.lane = Lane::kConnecting;
    Message message;
    message.address = std::move(link.round.address);
    state_.actions.add<&Sink::connect_lane>(link.peer, std::move(message));
}

void Rounds::lane_ready(Link& link, ucs_status_t status) {
    if (link.state != LinkState::kConnecting || link.round.lane != Lane::kConnecting) return;
    if (status != UCS_OK) {
        withdraw(link, WithdrawReason::kNoLane);
        return;
    }
    link.round.lane = Lane::kConnected;
    set_state(link, LinkState::kReady, Reason::kProgress);
    state_.actions.send(link, MessageType::kReady);
    try_switch(link);
    assert(link.round.fits(link.state));
}

void Rounds::try_switch(Link& link) {
    if (link.state != LinkState::kReady || link.round.peer != PeerStep::kReady) return;
    set_state(link, LinkState::kSwitching, Reason::kProgress);
    link.round.direction.tx.begin(link.round.window);
    state_.actions.add<&Sink::start_tx_switch>(link, MessageType::kMark);
}

void Rounds::try_established(Link& link) {
    if (link.state != LinkState::kSwitching || link.round.peer != PeerStep::kMark ||
        link.round.acknowledged != Acknowledged::kMark) {
        return;
    }
    ++link.promotions;
    ++state_.counters.promotions;
    link.denials = 0;
    link.denied_floor.reset();
    set_state(link, LinkState::kEstablished, Reason::kProgress);
    assert(link.round.fits(link.state));
    if (link.round.slot != Slot::kOwn) demote(link, Reason::kOutranked);
}

ucs_status_t Rounds::on_message(Link& link, const Message& message) {
    Round& round = link.round;
    const LinkState state = link.state;
    // The peer's steps come in order, each in some states of this end only.
    const auto step = [&round](PeerStep next) {
        if (static_cast<int>(round.peer) + 1 != static_cast<int>(next)) return false;
        round.peer = next;
        return true;
    };
    switch (message.type) {
        case MessageType::kLane:
            if (state > LinkState::kConnecting || !step(PeerStep::kLane)) break;
            round.window = std::min(state_.config.window, message.window);
            // Without memory it is empty: the lane cannot be connected, which ends the round.
            (void)assign(round.address, message.address);
            connect(link);
            return UCS_OK;
        case MessageType::kReady:
            if (state != LinkState::kConnecting && state != LinkState::kReady) break;
            if (!step(PeerStep::kReady)) break;
            try_switch(link);
            return UCS_OK;
        case MessageType::kMark:
            if (state != LinkState::kSwitching && state != LinkState::kDemoting) break;
            if (!step(PeerStep::kMark)) break;
            round.direction.rx.mark();
            state_.actions.send(link, MessageType::kMarkAck);
            state_.actions.add<&Sink::open_rx_gate>(link.peer);
            try_established(link);
            return UCS_OK;
        case MessageType::kMarkAck:
            if (round.acknowledged != Acknowledged::kNone ||
                !round.direction.tx.mark_acknowledged()) {
                break;
            }
            round.acknowledged = Acknowledged::kMark;
            if (state == LinkState::kSwitching) {
                state_.actions.add<&Sink::open_tx_window>(link.peer);
            }
            try_established(link);
            return UCS_OK;
        case MessageType::kDmark:
            if (round.peer != PeerStep::kMark) break;
            if (state == LinkState::kSwitching && !may_demote(link)) {
                // This end's own MARK still waits for room: the demotion, which answers, follows
                // when that is posted.
                round.peer = PeerStep::kDmark;
                round.direction.rx.dmark();
                state_.actions.add<&Sink::open_early>(link.peer);
                return UCS_OK;
            }
            if (state != LinkState::kDemoting) demote(link, Reason::kPeer);
            round.peer = PeerStep::kDmark;
            round.direction.rx.dmark();
            state_.actions.add<&Sink::open_early>(link.peer);
            state_.actions.send(link, MessageType::kDmarkAck);
            finish_demotion(link);
            return UCS_OK;
        case MessageType::kDmarkAck:
            if (state != LinkState::kDemoting || !round.direction.tx.dmark_acknowledged()) break;
            round.acknowledged = Acknowledged::kDmark;
            state_.actions.add<&Sink::resume_tx>(link.peer);
            if (round.flushed) state_.actions.send(link, MessageType::kFlushed);
            finish_demotion(link);
            return UCS_OK;
        case MessageType::kFlushed:
            if (state != LinkState::kDemoting || !step(PeerStep::kFlushed)) break;
            finish_demotion(link);
            return UCS_OK;
        default:
            break;
    }
    return UCS_ERR_INVALID_PARAM;
}

// --- down

bool Rounds::may_demote(const Link& link) {
    const TxDirection::State tx = link.round.direction.tx.state();
    return (link.state == LinkState::kSwitching || link.state == LinkState::kEstablished) &&
           (tx == TxDirection::State::kWindowed || tx == TxDirection::State::kDedicated);
}

void Rounds::demote(Link& link, Reason reason) {
    assert(may_demote(link));
    ++link.demotions;
    ++state_.counters.demotions;
    set_state(link, LinkState::kDemoting, reason);
    link.round.direction.tx.stop();
    state_.actions.add<&Sink::stop_tx_and_mark>(link, MessageType::kDmark);
    state_.actions.add<&Sink::flush_lane>(link.peer);
    assert(link.round.fits(link.state));
}

void Rounds::give_up(Link& link, Reason reason) {
    switch (link.state) {
        case LinkState::kEstablished:
            demote(link, reason);
            break;
        case LinkState::kCommitted:
        case LinkState::kConnecting:
            withdraw(link, WithdrawReason::kNoAnswer);
            break;
        default:
            // The peer may have switched already.
            assert(link.state == LinkState::kReady || link.state == LinkState::kSwitching);
            if (link.round.slot == Slot::kOwn) link.round.slot = Slot::kYielded;
            scoreboard_.place(link);
            break;
    }
}

bool Rounds::make_room_beside(const Link& next) {
    const bool takes_one = next.round.kept != 0 && kept_.epoch_of(next.id()) == next.round.kept;
    const std::size_t taken = parked_ + kept_.size() - (takes_one ? 1 : 0);
    return taken < state_.config.max_parked || kept_.drop_oldest();
}

void Rounds::park(Link& link) {
    assert(may_park(link));
    link.round.slot = Slot::kParked;
    --lanes_of(link.pool);
    ++parked_;
}

void Rounds::marker_posted(Link& link) {
    Round& round = link.round;
    round.direction.tx.marker_posted();
    if (link.state != LinkState::kSwitching || round.peer != PeerStep::kDmark) return;
    demote(link, Reason::kPeer);
    state_.actions.send(link, MessageType::kDmarkAck);
}

void Rounds::flushed(Link& link) {
    if (link.state != LinkState::kDemoting || link.round.flushed) return;
    link.round.flushed = true;
    if (link.round.is_drained()) state_.actions.send(link, MessageType::kFlushed);
    finish_demotion(link);
}

void Rounds::finish_demotion(Link& link) {
    if (!link.round.may_release()) return;
    set_state(link, LinkState::kReleasing, Reason::kProgress);
    if (kept_.is_on() && !link.round.broken) {
        link.round.lane = Lane::kKeeping;
        state_.actions.add<&Sink::keep_lane>(link.peer);
    } else {
        destroy(link);
    }
    assert(link.round.fits(link.state));
}

void Rounds::lane_destroyed(Link& link) {
    const bool keeps = link.round.lane == Lane::kKeeping;
    if (!keeps && link.round.lane != Lane::kDestroying) return;
    assert(link.state == LinkState::kReleasing);
    released(link, Reason::kProgress);
    if (keeps) keep(link, link.epoch);
}

void Rounds::keep(Link& link, Epoch epoch) {
    kept_.add(link.id(), epoch);
    if (!kept_.is_on() || link.life == Link::Life::kGone) kept_.drop(link.id());
    while (parked_ + kept_.size() > state_.config.max_parked && kept_.drop_oldest()) {
    }
}

// --- out

void Rounds::withdraw(Link& link, WithdrawReason why) {
    ++state_.counters.withdrawals;
    Message message;
    message.type = MessageType::kWithdraw;
    message.epoch = link.epoch;
    message.withdraw = why;
    state_.actions.send(link.peer, std::move(message));
    back_off(link, state_.config.retry_after, state_.config.retry_max);
    link.denied_floor.reset();
    if (link.state == LinkState::kRequested) {
        set_state(link, LinkState::kWithdrawing, reason_of(why));
    } else {
        release(link, reason_of(why));
    }
}

void Rounds::on_withdrawn(Link& link) {
    back_off(link, state_.config.retry_after, state_.config.retry_max);
    link.denied_floor.reset();
    release(link, Reason::kPeer);
}

void Rounds::on_lost(Link& link) {
    assert(link.state >= LinkState::kCommitted && in_round(link.state));
    if (link.state <= LinkState::kReady) {
        on_withdrawn(link);
    } else if (link.round.is_done()) {
        release(link, Reason::kPeer);
    } else {
        fail(link, UCS_ERR_CONNECTION_RESET);
    }
}

void Rounds::lane_failed(Link& link, ucs_status_t status) {
    if (link.state == LinkState::kConnecting) {
        withdraw(link, WithdrawReason::kNoLane);
    } else if (link.round.lane == Lane::kConnected && link.round.is_done()) {
        link.round.broken = true;
    } else if (link.round.lane == Lane::kConnected) {
        fail(link, status);
    }
}

void Rounds::fail(Link& link, ucs_status_t status) {
    ++state_.counters.failures;
    state_.actions.fail(link.peer, status);
    link.life = Link::Life::kGone;
    release(link, Reason::kFailed);
}

// Lets go of the slot, or of the promise of one.
void Rounds::release(Link& link, Reason reason) {
    if (!holds_slot(link.state)) {
        released(link, reason);
        return;
    }
    set_state(link, LinkState::kReleasing, reason);
    if (link.round.lane != Lane::kCreating) destroy(link);
    assert(link.round.fits(link.state));
}

void Rounds::destroy(Link& link) {
    link.round.lane = Lane::kDestroying;
    state_.actions.add<&Sink::destroy_lane>(link.peer);
}

void Rounds::released(Link& link, Reason reason) {
    set_state(link, LinkState::kIdle, reason);
    link.round = {};
    link.retry_at = std::max(link.retry_at, state_.now + state_.config.busy_retry);
    if (link.life == Link::Life::kClosing) state_.actions.add<&Sink::closed>(link.peer);
}

}  // namespace ucp::lanes

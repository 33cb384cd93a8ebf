// SPDX-License-Identifier: BSD-3-Clause
// A link's way from Committed up to Established, and down again. docs/lanes.md, rules 8 and 14
// to 22.
#include <algorithm>
#include <utility>

#include "ucp/lanes/negotiator.h"

namespace ucp::lanes {

void Negotiator::start_round(Link& link, Epoch epoch) {
    link.epoch = epoch;
    link.round = {};
}

void Negotiator::create(Link& link) {
    link.round.creation_pending = true;
    set_state(link, LinkState::kCreating, Reason::kProgress);
    act(ActionKind::kCreate, link.peer);
}

void Negotiator::on_lane_created(Peer peer, ucs_status_t status,
                                 std::span<const std::uint8_t> address) {
    Event event(*this);
    const auto found = links_.find(peer);
    if (found == links_.end() || !found->second.round.creation_pending) return;
    Link& link = found->second;
    if (link.state == LinkState::kReleasing) {
        link.round.creation_pending = false;
        if (status == UCS_OK) {
            act(ActionKind::kDestroy, peer);
        } else {
            released(link, Reason::kProgress);
        }
        return;
    }
    if (status != UCS_OK) {
        abandon(link, WithdrawReason::kNoLane);
        link.round.creation_pending = false;
        released(link, Reason::kProgress);
        return;
    }
    link.round.creation_pending = false;
    if (address.size() > kMaxLaneAddress) {
        abandon(link, WithdrawReason::kNoLane);
        return;
    }
    set_state(link, LinkState::kConnecting, Reason::kProgress);
    Message message;
    message.type = MessageType::kLane;
    message.epoch = link.epoch;
    message.window = config_.window;
    message.address.assign(address.begin(), address.end());
    send(peer, std::move(message));
    connect(link);
}

void Negotiator::connect(Link& link) {
    if (link.state != LinkState::kConnecting || !link.round.peer_lane || link.round.connecting) {
        return;
    }
    link.round.connecting = true;
    Action action{ActionKind::kConnect, link.peer};
    action.message.address = std::move(link.round.address);
    actions_.push_back(std::move(action));
}

void Negotiator::on_lane_ready(Peer peer, ucs_status_t status) {
    Event event(*this);
    Link* link = lookup(peer);
    if (link == nullptr || link->state != LinkState::kConnecting || !link->round.connecting) {
        return;
    }
    if (status != UCS_OK) {
        abandon(*link, WithdrawReason::kNoLane);
        return;
    }
    set_state(*link, LinkState::kReady, Reason::kProgress);
    send_round(*link, MessageType::kReady);
    try_switch(*link);
}

void Negotiator::try_switch(Link& link) {
    if (link.state != LinkState::kReady || !link.round.peer_ready) return;
    set_state(link, LinkState::kSwitching, Reason::kProgress);
    link.round.direction.tx.begin(link.round.window);
    Action action{ActionKind::kStartSwitch, link.peer};
    action.message.type = MessageType::kMark;
    action.message.epoch = link.epoch;
    actions_.push_back(std::move(action));
}

void Negotiator::on_marker_posted(Peer peer) {
    Event event(*this);
    if (Link* link = lookup(peer)) link->round.direction.tx.marker_posted();
}

void Negotiator::try_established(Link& link) {
    if (link.state != LinkState::kSwitching || !link.round.mark_received ||
        !link.round.mark_acked) {
        return;
    }
    ++link.promotions;
    ++counters_.promotions;
    link.denials = 0;
    link.has_threshold = false;
    set_state(link, LinkState::kEstablished, Reason::kProgress);
}

ucs_status_t Negotiator::on_round_message(Link& link, const Message& message) {
    Link::Round& round = link.round;
    const LinkState state = link.state;
    switch (message.type) {
        case MessageType::kLane:
            if (state > LinkState::kConnecting || round.peer_lane) return violation();
            round.peer_lane = true;
            round.window = std::min(config_.window, message.window);
            round.address = message.address;
            connect(link);
            return UCS_OK;
        case MessageType::kReady:
            if ((state != LinkState::kConnecting && state != LinkState::kReady) ||
                !round.peer_lane || round.peer_ready) {
                return violation();
            }
            round.peer_ready = true;
            try_switch(link);
            return UCS_OK;
        case MessageType::kMark:
            if (state != LinkState::kSwitching || round.mark_received) return violation();
            round.mark_received = true;
            round.direction.rx.mark();
            send_round(link, MessageType::kMarkAck);
            act(ActionKind::kOpenGate, link.peer);
            try_established(link);
            return UCS_OK;
        case MessageType::kMarkAck:
            if (round.mark_acked || !round.direction.tx.mark_acknowledged()) return violation();
            round.mark_acked = true;
            if (state == LinkState::kSwitching) act(ActionKind::kOpenWindow, link.peer);
            try_established(link);
            return UCS_OK;
        case MessageType::kDmark:
            if (!round.mark_received || round.dmark_received) return violation();
            if (state != LinkState::kDemoting) {
                const auto tx = round.direction.tx.state();
                if (tx != TxDirection::State::kWindowed && tx != TxDirection::State::kDedicated) {
                    return violation();
                }
                demote(link, Reason::kPeer);
            }
            round.dmark_received = true;
            round.direction.rx.dmark();
            send_round(link, MessageType::kDmarkAck);
            finish_demotion(link);
            return UCS_OK;
        case MessageType::kDmarkAck:
            if (state != LinkState::kDemoting || !round.direction.tx.dmark_acknowledged()) {
                return violation();
            }
            round.dmark_acked = true;
            act(ActionKind::kResume, link.peer);
            finish_demotion(link);
            return UCS_OK;
        case MessageType::kFlushed:
            if (state != LinkState::kDemoting || !round.dmark_received || round.flushed_received) {
                return violation();
            }
            round.flushed_received = true;
            finish_demotion(link);
            return UCS_OK;
        default:
            return violation();
    }
}

void Negotiator::demote(Link& link, Reason reason) {
    ++link.demotions;
    ++counters_.demotions;
    set_state(link, LinkState::kDemoting, reason);
    link.round.direction.tx.stop();
    Action action{ActionKind::kStopAndMark, link.peer};
    action.message.type = MessageType::kDmark;
    action.message.epoch = link.epoch;
    actions_.push_back(std::move(action));
    act(ActionKind::kFlush, link.peer);
}

void Negotiator::on_flushed(Peer peer) {
    Event event(*this);
    Link* link = lookup(peer);
    if (link == nullptr || link->state != LinkState::kDemoting) return;
    link->round.flushed = true;
    finish_demotion(*link);
}

void Negotiator::finish_demotion(Link& link) {
    Link::Round& round = link.round;
    if (round.dmark_acked && round.flushed && !round.flushed_sent) {
        round.flushed_sent = true;
        send_round(link, MessageType::kFlushed);
    }
    if (round.flushed_sent && round.flushed_received && round.dmark_received) {
        release(link, Reason::kProgress);
    }
}

// The peer has lost the round, and with it what was under way to or from it.
void Negotiator::on_gone(Link& link) {
    if (link.state <= LinkState::kWithdrawing) {
        on_deny(link, DenyReason::kBusy, {});
    } else if (link.state <= LinkState::kReady) {
        retreat(link);
    } else if (link.round.is_done()) {
        release(link, Reason::kPeer);
    } else {
        fail(link, UCS_ERR_CONNECTION_RESET);
    }
}

void Negotiator::fail(Link& link, ucs_status_t status) {
    ++counters_.failures;
    Action action{ActionKind::kFail, link.peer};
    action.status = status;
    actions_.push_back(std::move(action));
    link.gone = true;
    release(link, Reason::kFailed);
}

// Lets go of the slot, or of the promise of one.
void Negotiator::release(Link& link, Reason reason) {
    if (!holds_slot(link.state)) {
        released(link, reason);
        return;
    }
    set_state(link, LinkState::kReleasing, reason);
    if (!link.round.creation_pending) act(ActionKind::kDestroy, link.peer);
}

void Negotiator::on_lane_destroyed(Peer peer) {
    Event event(*this);
    const auto found = links_.find(peer);
    if (found == links_.end() || found->second.state != LinkState::kReleasing ||
        found->second.round.creation_pending) {
        return;
    }
    released(found->second, Reason::kProgress);
}

// The last use of `link`: a record without an endpoint goes.
void Negotiator::released(Link& link, Reason reason) {
    set_state(link, LinkState::kIdle, reason);
    link.round = {};
    link.retry_at = std::max(link.retry_at, now_ + config_.busy_retry);
    if (link.gone) {
        erase(link);
    } else if (link.closing) {
        act(ActionKind::kClosed, link.peer);
    }
}

}  // namespace ucp::lanes

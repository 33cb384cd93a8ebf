// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/negotiator.h"

#include <algorithm>
#include <utility>

namespace ucp::lanes {
namespace {

Config clamped(Config config) {
    config.margin_permille = std::min(config.margin_permille, kMaxMarginPermille);
    config.min_score = std::clamp<Score>(config.min_score, 1, kMaxMeasuredHalf);
    config.busy_retry = std::max<Time>(config.busy_retry, 1);
    config.retry_after = std::max(config.retry_after, config.busy_retry);
    config.retry_max = std::max(config.retry_max, config.retry_after);
    config.refresh = std::max<Time>(config.refresh, 1);
    config.stale_after = std::max(config.stale_after, 2 * config.refresh);
    config.wait_timeout = std::max<Time>(config.wait_timeout, 1);
    config.max_links = std::max(config.max_links, 2 * config.cap + 8);
    return config;
}

}  // namespace

Negotiator::Negotiator(const Config& config, std::uint64_t worker, Sink& sink)
    : config_(clamped(config)), worker_(worker), sink_(sink) {}

void Negotiator::drain() {
    draining_ = true;
    for (std::size_t i = 0; i < actions_.size(); ++i) {
        const Action action = std::move(actions_[i]);
        switch (action.kind) {
            case ActionKind::kSend:
                sink_.send(action.peer, action.message);
                break;
            case ActionKind::kCreate:
                sink_.create_lane(action.peer);
                break;
            case ActionKind::kConnect:
                sink_.connect_lane(action.peer, action.message.address);
                break;
            case ActionKind::kDestroy:
                sink_.destroy_lane(action.peer);
                break;
            case ActionKind::kStartSwitch:
                sink_.start_tx_switch(action.peer, action.message);
                break;
            case ActionKind::kOpenWindow:
                sink_.open_tx_window(action.peer);
                break;
            case ActionKind::kOpenGate:
                sink_.open_rx_gate(action.peer);
                break;
            case ActionKind::kStopAndMark:
                sink_.stop_tx_and_mark(action.peer, action.message);
                break;
            case ActionKind::kFlush:
                sink_.flush_lane(action.peer);
                break;
            case ActionKind::kResume:
                sink_.resume_tx(action.peer);
                break;
            case ActionKind::kFail:
                sink_.fail_endpoint(action.peer, action.status);
                break;
            case ActionKind::kClosed:
                sink_.closed(action.peer);
                break;
            case ActionKind::kNotify:
                sink_.notify(action.peer, action.change);
                break;
        }
    }
    actions_.clear();
    draining_ = false;
}

// --- records

Link* Negotiator::lookup(Peer peer) {
    const auto found = links_.find(peer);
    return found == links_.end() || found->second.gone ? nullptr : &found->second;
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

bool Negotiator::is_empty(const Link& link) {
    return link.state == LinkState::kIdle && link.local == 0 && link.told == 0 && link.heard == 0 &&
           link.policy == Policy::kAuto && !link.closing && !link.deferred;
}

// Drops the lowest link that nothing but its score keeps, if that is below `score`.
bool Negotiator::make_room(Score score) {
    Link* lowest = nullptr;
    for (auto& [peer, link] : links_) {
        if (link.state != LinkState::kIdle || link.policy != Policy::kAuto || link.closing ||
            link.deferred) {
            continue;
        }
        if (lowest == nullptr || link.rank() < lowest->rank()) lowest = &link;
    }
    if (lowest == nullptr || lowest->score() >= score) return false;
    if (lowest->told != 0) {
        Message zero;
        zero.type = MessageType::kScore;
        send(lowest->peer, std::move(zero));
    }
    erase(*lowest);
    return true;
}

// The record of `peer`, made if there is room or it is worth more than another; `always` makes it.
Link* Negotiator::track(Peer peer, Score score, bool always) {
    if (const auto found = links_.find(peer); found != links_.end()) {
        return found->second.gone ? nullptr : &found->second;
    }
    if (links_.size() >= config_.max_links && !make_room(score) && !always) return nullptr;
    const PeerId id = sink_.identify(peer);
    if (id.worker == worker_) return nullptr;
    Link& link = links_[peer];
    link.peer = peer;
    link.low_end = worker_ < id.worker;
    link.id = {std::min(worker_, id.worker), std::max(worker_, id.worker), id.connection};
    link.since = now_;
    return &link;
}

void Negotiator::erase(Link& link) {
    if (outstanding_ == &link) outstanding_ = nullptr;
    links_.erase(link.peer);
}

void Negotiator::set_state(Link& link, LinkState state, Reason reason) {
    held_ += holds_slot(state);
    held_ -= holds_slot(link.state);
    booked_ += books_slot(state);
    booked_ -= books_slot(link.state);
    if (link.state == LinkState::kRequested && outstanding_ == &link) outstanding_ = nullptr;
    if (state == LinkState::kRequested) outstanding_ = &link;
    Action action{ActionKind::kNotify, link.peer};
    action.change = {link.state, state, reason, link.score()};
    actions_.push_back(std::move(action));
    link.state = state;
    link.since = now_;
    link.pings = 0;
    restart_timer(link);
    if (reason != Reason::kProgress) link.reason = reason;
}

void Negotiator::send(Peer peer, Message message) {
    Action action{ActionKind::kSend, peer};
    action.message = std::move(message);
    actions_.push_back(std::move(action));
}

void Negotiator::send_round(const Link& link, MessageType type) {
    Message message;
    message.type = type;
    message.epoch = link.epoch;
    send(link.peer, std::move(message));
}

ucs_status_t Negotiator::violation() {
    ++counters_.violations;
    return UCS_ERR_INVALID_PARAM;
}

// --- time

void Negotiator::advance(Time now) {
    Event event(*this);
    now_ = std::max(now_, now);
    settle_due_ = false;
    for (auto at = links_.begin(); at != links_.end();) {
        Link& link = at->second;
        ++at;
        age(link);
        if (is_empty(link)) {
            erase(link);
            continue;
        }
        if (link.timer <= now_) expire(link);
    }
}

void Negotiator::restart_timer(Link& link) {
    if (waits_for_peer(link.state)) {
        link.timer = now_ + config_.wait_timeout;
    } else {
        // A peer that has lost the round would not miss it.
        link.timer = link.state == LinkState::kEstablished ? now_ + config_.stale_after : kNever;
    }
}

void Negotiator::expire(Link& link) {
    restart_timer(link);
    if (link.state == LinkState::kRequested && link.pings >= config_.request_pings) {
        abandon(link, WithdrawReason::kNoAnswer);
        return;
    }
    ++link.pings;
    ++counters_.pings;
    send_round(link, MessageType::kPing);
}

// What became possible or due: slots given back, answers, lanes for links whose slot is free now,
// an own request.
void Negotiator::settle() {
    const Score warm = std::max<Score>(1, admission() / 2);
    for (auto& [peer, link] : links_) {
        if (link.state != LinkState::kEstablished) continue;
        if (link.closing) {
            demote(link, Reason::kClosing);
        } else if (link.policy == Policy::kScalable) {
            demote(link, Reason::kPolicy);
        } else if (link.score() < warm && now_ >= link.since + config_.min_residence &&
                   !settle_due_) {
            demote(link, Reason::kCold);
        }
    }
    answer_deferred();
    for (auto& [peer, link] : links_) {
        if (link.state == LinkState::kCommitted && held_ < config_.cap) create(link);
    }
    // Until the sampling round is complete, its first link would win for being the first.
    if (!settle_due_) consider();
}

Time Negotiator::deadline_of(const Link& link, Score threshold) const {
    Time deadline = link.timer;
    if (link.told != 0) deadline = std::min(deadline, link.told_at + config_.refresh);
    if (link.heard != 0) deadline = std::min(deadline, link.heard_at + config_.stale_after);
    Time later = kNever;
    if (link.state == LinkState::kIdle && potential(link).score >= threshold) {
        later = link.has_threshold && potential(link) > link.threshold
                    ? std::min(link.retry_at, link.asked_at + config_.busy_retry)
                    : link.retry_at;
    } else if (link.state == LinkState::kEstablished) {
        later = link.since + config_.min_residence;
    }
    return later > now_ ? std::min(deadline, later) : deadline;
}

Time Negotiator::next_deadline() const {
    if (settle_due_) return now_;
    if (!deadline_known_) {
        deadline_ = kNever;
        const Score threshold = admission();
        for (const auto& [peer, link] : links_) {
            deadline_ = std::min(deadline_, deadline_of(link, threshold));
        }
        deadline_known_ = true;
    }
    return deadline_;
}

bool Negotiator::consistent() const {
    std::uint32_t held = 0, booked = 0, requested = 0;
    for (const auto& [peer, link] : links_) {
        held += holds_slot(link.state);
        booked += books_slot(link.state);
        if (link.state == LinkState::kRequested) {
            ++requested;
            if (outstanding_ != &link) return false;
        }
        if (link.deferred && link.state != LinkState::kIdle) return false;
        if (link.gone && link.state != LinkState::kReleasing) return false;
        const TxDirection::State tx = link.round.direction.tx.state();
        if (link.state == LinkState::kEstablished && tx != TxDirection::State::kDedicated) {
            return false;
        }
        if (!holds_slot(link.state) && tx != TxDirection::State::kScalable) return false;
    }
    return held == held_ && booked == booked_ && requested == (outstanding_ != nullptr) &&
           held_ <= config_.cap && booked_ <= config_.cap;
}

// --- events

void Negotiator::on_score(Peer peer, Score half) {
    if (config_.cap == 0 || closing_) return;
    Event event(*this);
    half = std::min(half, kMaxMeasuredHalf);
    settle_due_ = true;
    const bool counts = half >= (config_.min_score + 1) / 2;
    Link* link = counts ? track(peer, half, false) : lookup(peer);
    if (link == nullptr) return;
    link->local = half;
    tell(*link, false);
}

ucs_status_t Negotiator::on_message(Peer peer, const Message& message) {
    Event event(*this);
    Link* link = lookup(peer);
    switch (message.type) {
        case MessageType::kPing: {
            Message answer;
            const bool is_known = link != nullptr && link->knows(message.epoch);
            answer.type = is_known ? MessageType::kPong : MessageType::kGone;
            answer.epoch = message.epoch;
            send(peer, std::move(answer));
            return UCS_OK;
        }
        case MessageType::kScore:
            if (link == nullptr && message.half != 0 && config_.cap != 0 && !closing_) {
                link = track(peer, message.half, false);
            }
            if (link != nullptr) hear(*link, message.half);
            return UCS_OK;
        case MessageType::kRequest: {
            if (link == nullptr && config_.cap != 0 && !closing_) {
                link = track(peer, message.half, false);
            }
            if (link == nullptr) {
                Message denial;
                denial.type = MessageType::kDeny;
                denial.epoch = message.epoch;
                denial.deny =
                    config_.cap == 0 || closing_ ? DenyReason::kRefused : DenyReason::kBusy;
                ++counters_.denials_sent;
                send(peer, std::move(denial));
                return UCS_OK;
            }
            const bool asker_is_high = message.epoch & 1;
            if (asker_is_high != link->low_end || link->knows(message.epoch)) return violation();
            on_request(*link, message);
            return UCS_OK;
        }
        default:
            break;
    }
    if (link == nullptr) return UCS_OK;
    if (message.type == MessageType::kWithdraw) return on_withdraw(*link, message);
    if (message.epoch != link->epoch) return UCS_OK;
    if (message.type == MessageType::kPong) {
        link->pings = 0;
        return UCS_OK;
    }
    if (message.type == MessageType::kGone) {
        if (in_round(link->state)) on_gone(*link);
        return UCS_OK;
    }
    const bool answer = message.type == MessageType::kAccept || message.type == MessageType::kDeny;
    if (answer) {
        if (link->state != LinkState::kRequested && link->state != LinkState::kWithdrawing) {
            return UCS_OK;
        }
        hear(*link, message.half);
        if (message.type == MessageType::kAccept) {
            on_accept(*link);
        } else {
            on_deny(*link, message.deny, message.floor);
        }
        return UCS_OK;
    }
    if (!books_slot(link->state) && link->state != LinkState::kDemoting) return UCS_OK;
    return on_round_message(*link, message);
}

void Negotiator::on_lane_failed(Peer peer, ucs_status_t status) {
    Event event(*this);
    Link* link = lookup(peer);
    if (link == nullptr || link->state < LinkState::kConnecting ||
        link->state == LinkState::kReleasing) {
        return;
    }
    if (link->state == LinkState::kConnecting) {
        abandon(*link, WithdrawReason::kNoLane);
        return;
    }
    if (!link->round.is_done()) fail(*link, status);
}

void Negotiator::on_peer_died(Peer peer) {
    Event event(*this);
    Link* link = lookup(peer);
    if (link == nullptr) return;
    link->deferred = false;
    link->closing = false;
    if (!holds_slot(link->state)) {
        if (link->state != LinkState::kIdle) set_state(*link, LinkState::kIdle, Reason::kDied);
        erase(*link);
        return;
    }
    link->gone = true;
    if (link->state != LinkState::kReleasing) release(*link, Reason::kDied);
}

void Negotiator::set_policy(Peer peer, Policy policy) {
    if (config_.cap == 0 || closing_) return;
    Event event(*this);
    Link* link = policy == Policy::kAuto ? lookup(peer) : track(peer, kPinnedHalf, true);
    if (link == nullptr || link->closing) return;
    link->policy = policy;
    link->denials = 0;
    link->retry_at = now_;
    tell(*link, false);
    if (policy == Policy::kScalable) leave(*link, Reason::kPolicy);
}

void Negotiator::on_close(Peer peer) {
    Event event(*this);
    Link* link = track(peer, kMaxScore, true);
    if (link == nullptr) {
        act(ActionKind::kClosed, peer);
        return;
    }
    if (!link->closing) close(*link);
}

void Negotiator::withdraw_all() {
    Event event(*this);
    closing_ = true;
    for (auto& [peer, link] : links_) {
        if (!link.closing && !link.gone) close(link);
    }
}

}  // namespace ucp::lanes

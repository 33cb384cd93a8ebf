// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/actions.h"

#include <utility>

namespace ucp::lanes {

void Actions::add(Kind kind, Peer peer, Message message) {
    waiting_.push_back({kind, peer, std::move(message)});
}

void Actions::add(Kind kind, const Link& link, MessageType type) {
    Message message;
    message.type = type;
    message.epoch = link.epoch;
    add(kind, link.peer, std::move(message));
}

void Actions::fail(Peer peer, ucs_status_t status) {
    waiting_.push_back({.kind = Kind::kFail, .peer = peer, .status = status});
}

void Actions::drop_kept(const PeerId& id) {
    waiting_.push_back({.kind = Kind::kDropKept, .peer = 0, .kept_for = id});
}

void Actions::notify(Peer peer, const Change& change) {
    waiting_.push_back({.kind = Kind::kNotify, .peer = peer, .change = change});
}

void Actions::carry_out() {
    if (is_running_) return;
    is_running_ = true;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
        const Action action = std::move(waiting_[i]);
        carry_out(action);
    }
    waiting_.clear();
    is_running_ = false;
}

void Actions::carry_out(const Action& action) {
    switch (action.kind) {
        case Kind::kSend:
            sink_.send(action.peer, action.message);
            break;
        case Kind::kCreate:
            sink_.create_lane(action.peer);
            break;
        case Kind::kConnect:
            sink_.connect_lane(action.peer, action.message.address);
            break;
        case Kind::kDestroy:
            sink_.destroy_lane(action.peer);
            break;
        case Kind::kKeep:
            sink_.keep_lane(action.peer);
            break;
        case Kind::kTake:
            sink_.take_lane(action.peer);
            break;
        case Kind::kDropKept:
            sink_.drop_kept_lane(action.kept_for);
            break;
        case Kind::kStartSwitch:
            sink_.start_tx_switch(action.peer, action.message);
            break;
        case Kind::kOpenWindow:
            sink_.open_tx_window(action.peer);
            break;
        case Kind::kOpenGate:
            sink_.open_rx_gate(action.peer);
            break;
        case Kind::kStopAndMark:
            sink_.stop_tx_and_mark(action.peer, action.message);
            break;
        case Kind::kFlush:
            sink_.flush_lane(action.peer);
            break;
        case Kind::kOpenEarly:
            sink_.open_early(action.peer);
            break;
        case Kind::kResume:
            sink_.resume_tx(action.peer);
            break;
        case Kind::kFail:
            sink_.fail_endpoint(action.peer, action.status);
            break;
        case Kind::kClosed:
            sink_.closed(action.peer);
            break;
        case Kind::kNotify:
            sink_.notify(action.peer, action.change);
            break;
    }
}

}  // namespace ucp::lanes

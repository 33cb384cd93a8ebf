// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/actions.h"

#include <utility>

namespace ucp::lanes {

void Actions::fail(Peer peer, ucs_status_t status) {
    const auto call = [](Sink& sink, const Action& action) {
        sink.fail_endpoint(action.peer, action.status);
    };
    waiting_.push_back({.call = call, .peer = peer, .status = status});
}

void Actions::drop_kept(const PeerId& id) {
    const auto call = [](Sink& sink, const Action& action) {
        sink.drop_kept_lane(action.kept_for);
    };
    waiting_.push_back({.call = call, .peer = 0, .kept_for = id});
}

void Actions::notify(Peer peer, const Change& change) {
    const auto call = [](Sink& sink, const Action& action) {
        sink.notify(action.peer, action.change);
    };
    waiting_.push_back({.call = call, .peer = peer, .change = change});
}

void Actions::carry_out() {
    if (is_running_) return;
    is_running_ = true;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
        const Action action = std::move(waiting_[i]);
        action.call(sink_, action);
    }
    waiting_.clear();
    is_running_ = false;
}

}  // namespace ucp::lanes

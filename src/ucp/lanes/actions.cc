// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/actions.h"

#include <cstddef>
#include <new>
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
    if (is_running_ || waiting_.empty()) return;
    is_running_ = true;
    std::size_t done = 0;
    for (bool goes = true; goes && done < waiting_.size();) {
        Action action = std::move(waiting_[done]);
        try {
            action.call(sink_, action);
            tries_ = 0;
            ++done;
        } catch (const std::bad_alloc&) {
            if (++tries_ == kMostTries) sink_.fail_endpoint(action.peer, UCS_ERR_NO_MEMORY);
            waiting_[done] = std::move(action);
            goes = false;
        }
    }
    if (done == waiting_.size()) [[likely]] {
        waiting_.clear();
    } else {
        waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(done));
    }
    is_running_ = false;
}

}  // namespace ucp::lanes

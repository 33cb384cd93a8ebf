// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/run_queue.h"

#include <algorithm>

#include "ucp/bulk/engine/path.h"

namespace ucp::bulk {

void RunQueue::make_room(size_t groups) {
    for (auto* list : {&awake_, &running_, &watched_}) {
        if (list->capacity() < groups) list->reserve(2 * groups);
    }
}

void RunQueue::wake(PathGroup& group) {
    if (group.is_awake) return;
    group.is_awake = true;
    awake_.push_back(&group);
    run_later();
}

void RunQueue::watch(PathGroup& group) {
    if (group.is_watched) return;
    group.is_watched = true;
    watched_.push_back(&group);
}

void RunQueue::forget(const PathGroup& group) {
    std::erase(awake_, &group);
    std::erase(watched_, &group);
}

std::span<PathGroup* const> RunQueue::take_awake() {
    running_.clear();
    running_.swap(awake_);
    for (PathGroup* group : running_) group->is_awake = false;
    return running_;
}

void RunQueue::drop_healthy() {
    std::erase_if(watched_, [](PathGroup* group) {
        const bool is_healthy = std::ranges::all_of(group->paths, [](const auto& path) {
            const bool is_up =
                path->state == Path::State::kUp || path->state == Path::State::kOnThread;
            return is_up && path->failure == UCS_OK;
        });
        group->is_watched = !is_healthy || !group->transfers.empty();
        return !group->is_watched;
    });
}

}  // namespace ucp::bulk

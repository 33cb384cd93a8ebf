// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <vector>

#include "ucp/runtime/deferred_work.h"

namespace ucp {
namespace bulk {

struct PathGroup;

// Which endpoints' groups have something to do: those that were woken in the next progress, those
// that are watched when time has passed.
//
// Users' callbacks, destructions and calls of a PathOwner happen only then, never within a call of
// a transport: what a completion or message finds out is noted in the path or transfer, and its
// group is woken.
class RunQueue {
  public:
    explicit RunQueue(DeferredWork& work) : work_(work) {}

    // Something is to be done in the next progress.
    void run_later() { work_.notify(); }
    // For so many groups, before there are: completions find memory, or cannot say what they
    // have found out.
    void make_room(size_t groups);
    void wake(PathGroup& group);
    void watch(PathGroup& group);
    // Its memory goes.
    void forget(const PathGroup& group);

    // Those that were woken since the last call, valid until the next.
    std::span<PathGroup* const> take_awake();
    // While they are looked at there may come more.
    const std::vector<PathGroup*>& watched() const { return watched_; }
    // Those with transfers or with a path that is not well stay.
    void drop_healthy();

  private:
    DeferredWork& work_;
    std::vector<PathGroup*> awake_, running_, watched_;
};

}  // namespace bulk
}  // namespace ucp

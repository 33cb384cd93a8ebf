// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/interface.h"

namespace uct {

// The endpoints of an interface that wait for room, served in turn.
//
// An endpoint that lacks something of its own leaves the turn until schedule(); one that lacks what
// all share stays and is tried at every dispatch.
class PendingQueue {
  public:
    using Group = ucs::Arbiter::Group;

    bool empty() const { return arbiter_.empty(); }
    void schedule(Group& group) { arbiter_.schedule(group); }
    // Out of turn, whatever queue the group is in.
    void unschedule(Group& group) { arbiter_.unschedule(group); }

    void add(Group& group, Pending& pending) {
        group.push_back(pending);
        arbiter_.schedule(group);
    }

    void remove(Group& group, Pending& pending) {
        if (!pending.is_queued()) return;
        group.remove(pending);
        if (group.empty()) arbiter_.unschedule(group);
    }

    void drop_all(Group& group) {
        arbiter_.purge(group, [](ucs::Arbiter::Element&) {});
    }

    // Serve until everybody is done or has refused.
    // @param has_own_room     bool(Group&): does the endpoint itself have room to send? If not, it
    // is scheduled again when it has.
    // @param has_shared_room  bool(): is there any of what all share? If not, nobody is asked.
    // @return true: who still waits may go on at the next call, and nothing else need happen before
    template <typename HasOwnRoom, typename IsStopped, typename HasSharedRoom>
    bool dispatch(HasOwnRoom&& has_own_room, IsStopped&& is_stopped,
                  HasSharedRoom&& has_shared_room) {
        using Result = ucs::Arbiter::Result;
        // Each round gives each endpoint one turn; a bound keeps polling alive between them.
        for (int round = 0; round < kRounds && !arbiter_.empty(); ++round) {
            bool more = false;
            arbiter_.dispatch([&](Group& group, ucs::Arbiter::Element& element) {
                if (!has_shared_room()) return Result::kStop;
                if (!has_own_room(group)) return Result::kUnscheduled;
                switch (static_cast<Pending&>(element).progress()) {
                    case UCS_INPROGRESS:
                        more = true;
                        return Result::kLater;
                    case UCS_ERR_NO_RESOURCE:
                        return has_own_room(group) && !is_stopped(group) ? Result::kLater
                                                                         : Result::kUnscheduled;
                    default:
                        return Result::kDone;
                }
            });
            if (!more) return false;
        }
        return !arbiter_.empty();
    }

  private:
    static constexpr int kRounds = 16;
    ucs::Arbiter arbiter_;
};

}  // namespace uct

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "ucs/datastruct/usage_tracker.h"
#include "ucs/sys/time.h"

namespace ucs::test {

// A tracker on a virtual clock with owners that send at given rates, as a transport would: touch
// only while armed.
class TrackedTraffic : public UsageTracker::Listener {
  public:
    using Id = UsageTracker::OwnerId;

    struct Event {
        bool promoted;
        Id id;
        friend bool operator==(const Event&, const Event&) = default;
    };

    explicit TrackedTraffic(const UsageTracker::Options& options)
        : tracker(std::make_unique<UsageTracker>(options, this)) {}

    ~TrackedTraffic() {
        for (auto& [id, hook] : hooks) tracker->remove(hook);
    }

    void promote(Id id, double) override {
        events.push_back({true, id});
        promoted.insert(id);
        if (on_promote) on_promote(id);
    }

    void demote(Id id, double) override {
        events.push_back({false, id});
        promoted.erase(id);
    }

    void send(Id id, size_t bytes = 0) {
        if (tracker->armed()) tracker->touch(hooks[id], id, bytes);
    }

    // Owners send `rates[id]` messages per second, evenly, for `span`. The steps are fine enough
    // for every window to see its share.
    void run(Duration span, const std::map<Id, double>& rates, Duration step = 100us) {
        for (const Time end = clock.now() + span; clock.now() < end; clock.advance(step)) {
            tracker->progress(clock.now());
            for (const auto& [id, rate] : rates) {
                due_[id] += rate * seconds(step);
                for (; due_[id] >= 1; due_[id] -= 1) send(id);
            }
        }
        tracker->progress(clock.now());
    }

    // Whole intervals, so that as many rankings are done.
    void run_rounds(unsigned rounds, const std::map<Id, double>& rates) {
        const uint64_t last = tracker->rounds() + rounds;
        while (tracker->rounds() < last) run(1ms, rates);
    }

    std::vector<Id> ranking() const {
        std::vector<Id> ids;
        tracker->for_each([&](const UsageTracker::Rank& rank) { ids.push_back(rank.id); });
        return ids;
    }

    VirtualClock clock{Time(1s)};
    std::map<Id, UsageTracker::Hook> hooks;
    std::unique_ptr<UsageTracker> tracker;
    std::vector<Event> events;
    std::set<Id> promoted;
    std::function<void(Id)> on_promote;

  private:
    std::map<Id, double> due_;  // messages, in fractions, not sent yet
};

}  // namespace ucs::test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "ucs/datastruct/ranking.h"
#include "ucs/datastruct/usage_tracker.h"
#include "ucs/sys/time.h"

namespace ucs::test {

// A tracker on a virtual clock with owners that send at given rates, as a transport would: touch
// only while armed. Its rates, and what peers say, feed a ranking that promotes and demotes at
// once.
class TrackedTraffic : public Ranking<UsageTracker::OwnerId>::Callbacks {
  public:
    using Id = UsageTracker::OwnerId;
    using Ranks = Ranking<Id>;

    struct Event {
        bool promoted;
        Id id;
        friend bool operator==(const Event&, const Event&) = default;
    };

    struct Setup {
        size_t places = 16;
        uint32_t margin_permille = 200;
        Ranks::Score min_score = 100;
        UsageTracker::Options tracker{};
        UsageTracker::Value value{};  // of every owner's traffic
    };

    explicit TrackedTraffic(const Setup& setup)
        : tracker(std::make_unique<UsageTracker>(tracker_options(setup),
                                                 [value = setup.value](Id) { return value; })),
          ranking({.places = setup.places,
                   .margin_permille = setup.margin_permille,
                   .min_score = setup.min_score}) {}

    ~TrackedTraffic() {
        for (auto& [id, hook] : hooks) tracker->remove(hook);
        for (auto& [id, member] : members_) ranking.remove(member);
    }

    bool may_promote(const Ranks::Member&) override { return true; }

    void promote(Ranks::Member& member, const Ranks::Rank&) override {
        if (ranking.free_places() == 0) demote(*ranking.worst_incumbent());
        const Id id = member.standing.rank.id;
        ranking.place(member, member.standing.rank.score, Ranks::Role::kIncumbent);
        events.push_back({true, id});
        promoted.insert(id);
        if (on_promote) on_promote(id);
    }

    void demote(Ranks::Member& member) override {
        ranking.place(member, member.standing.rank.score, Ranks::Role::kCandidate);
        events.push_back({false, member.standing.rank.id});
        promoted.erase(member.standing.rank.id);
    }

    void send(Id id, size_t bytes = 0) {
        if (tracker->armed()) tracker->touch(hooks[id], id, bytes);
    }

    // The owner goes.
    void remove(Id id) {
        tracker->remove(hooks[id]);
        hooks.erase(id);
        leave(id);
    }

    // Owners send `rates[id]` messages per second, evenly, for `span`. The steps are fine enough
    // for every window to see its share.
    void run(Duration span, const std::map<Id, double>& rates, Duration step = 100us) {
        for (const Time end = clock.now() + span; clock.now() < end; clock.advance(step)) {
            progress();
            for (const auto& [id, rate] : rates) {
                due_[id] += rate * seconds(step);
                for (; due_[id] >= 1; due_[id] -= 1) send(id);
            }
        }
        progress();
    }

    // Whole intervals, so that as many rankings are done.
    void run_rounds(unsigned rounds, const std::map<Id, double>& rates) {
        const uint64_t last = tracker->rounds() + rounds;
        while (tracker->rounds() < last) run(1ms, rates);
    }

    // Brings the ranking up to date after each interval.
    void progress() {
        const uint64_t round = tracker->rounds();
        tracker->progress(clock.now());
        if (tracker->rounds() != round) rank();
    }

    // Best first.
    std::vector<Id> order() const {
        std::vector<Ranks::Rank> ranks;
        for (const auto& [id, member] : members_) ranks.push_back(member.standing.rank);
        std::sort(ranks.rbegin(), ranks.rend());
        std::vector<Id> ids;
        for (const Ranks::Rank& rank : ranks) ids.push_back(rank.id);
        return ids;
    }

    double rate_of(Id id) { return tracker->usage_of(hooks[id]).rate; }

    VirtualClock clock{Time(1s)};
    std::map<Id, UsageTracker::Hook> hooks;
    std::unique_ptr<UsageTracker> tracker;
    Ranks ranking;
    std::map<Id, Ranks::Score> remote;  // what the peers say
    std::vector<Event> events;
    std::set<Id> promoted;
    std::function<void(Id)> on_promote;

  private:
    static UsageTracker::Options tracker_options(const Setup& setup) {
        UsageTracker::Options options = setup.tracker;
        options.min_score = static_cast<double>(setup.min_score);
        return options;
    }

    void leave(Id id) {
        const auto found = members_.find(id);
        if (found == members_.end()) return;
        ranking.remove(found->second);
        members_.erase(found);
    }

    void rank() {
        std::map<Id, Ranks::Score> scores = remote;
        tracker->for_each([&](const UsageTracker::Usage& usage) {
            scores[usage.id] += static_cast<Ranks::Score>(usage.rate);
        });
        for (auto& [id, member] : members_) scores.try_emplace(id, 0);
        for (const auto& [id, score] : scores) {
            Ranks::Member& member = members_[id];
            member.standing.rank.id = id;
            ranking.place(member, score,
                          member.standing.role == Ranks::Role::kIncumbent
                              ? Ranks::Role::kIncumbent
                              : Ranks::Role::kCandidate);
        }
        ranking.demote_cold(*this, SIZE_MAX);
        while (ranking.promote_best(*this)) continue;
        for (const auto& [id, score] : scores) {
            if (score == 0) leave(id);
        }
    }

    std::map<Id, Ranks::Member> members_;
    std::map<Id, double> due_;  // messages, in fractions, not sent yet
};

}  // namespace ucs::test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <boost/intrusive/set.hpp>
#include <cassert>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace ucs {

// `score` and a share of it on top, in thousandths.
constexpr uint64_t with_margin(uint64_t score, uint32_t permille) {
    return score + score / 1000 * permille + score % 1000 * permille / 1000;
}

// Who of many shall have one of a limited number of places, with callbacks that say whom to promote
// and whom to demote.
//
// Members are ordered by (score, id), strictly and totally; of equal scores the higher id is first.
// Processes that hold the same scores and ids have the same order. Id{} must be the lowest id.
//
// Hysteresis: who wants the place of an incumbent must beat its score with the margin on top, and
// an incumbent that nobody wants to replace stays until its score is below half of what admits a
// newcomer. Nobody is asked to leave a place that he is still moving into.
//
// While there are places for all whom `min_score` admits, that alone decides. When there are not,
// those far below the best one (trickle_ratio) are not admitted: they would only take turns. Once
// there are twice as many as places, they lose what they have.
//
// Members stand in one ordered tree for each role, hooks embedded: nothing is allocated, a change
// of one member costs O(log n), the best and the worst of a role O(1), admission() O(log n). So
// nothing is computed anew for all members, however many they are. One thread at a time.
template <typename Id>
class Ranking {
  public:
    using Score = uint64_t;

    struct Rank {
        Score score = 0;
        Id id{};
        auto operator<=>(const Rank&) const = default;
    };

    enum class Role : uint8_t {
        kNone,       // neither has nor wants a place; its score counts for admission() only
        kCandidate,  // has none and may get one
        kReserving,  // asks for one: it is not free for others, and nobody's yet
        kEntering,   // has one, and is not asked to leave
        kIncumbent,  // has one, and leaves it for a better one
    };

    struct Standing {
        Rank rank;  // the id is set by the owner, before place()
        Role role = Role::kNone;
    };

    // The part of a ranking inside what is ranked. It must not move between place() and remove().
    struct Member : boost::intrusive::set_base_hook<> {
        Standing standing;  // changed by place() alone, once the member is in
    };

    // Told what the ranking finds. promote() and demote() may place and remove any member.
    class Callbacks {
      public:
        // Asked for each candidate that beats what a place costs, best first; false passes it over.
        virtual bool may_promote(const Member& candidate) = 0;
        // The candidate beats `floor`.
        virtual void promote(Member& candidate, const Rank& floor) = 0;
        // Its score is not worth a place. It must not be an incumbent any more when this returns.
        virtual void demote(Member& incumbent) = 0;

      protected:
        ~Callbacks() = default;
    };

    struct Options {
        size_t places = 0;
        uint32_t margin_permille = 0;  // of an incumbent's score, on top of it
        Score min_score = 1;           // below it nobody is promoted
        uint32_t trickle_ratio = 0;    // nor below 1/ratio of the best, if scarce; 0: no such bound
        Score pinned = UINT64_MAX;     // scores from here on say what is wanted, not measured
    };

    explicit Ranking(const Options& options) : options_(options) {}
    Ranking(Ranking&&) = delete;

    // Enters a member, or moves it.
    void place(Member& member, Score score, Role role) {
        Standing& standing = member.standing;
        if (member.is_linked() && standing.rank.score == score && standing.role == role) return;
        remove(member);
        worthy_ += score >= options_.min_score;
        standing.rank.score = score;
        standing.role = role;
        tree(role).insert(member);
    }

    void remove(Member& member) {
        if (!member.is_linked()) return;
        worthy_ -= member.standing.rank.score >= options_.min_score;
        Tree& from = tree(member.standing.role);
        from.erase(from.iterator_to(member));
    }

    // Places that somebody has, entering or incumbent.
    size_t taken() const { return tree(Role::kEntering).size() + tree(Role::kIncumbent).size(); }
    // Places that nobody has or asks for.
    size_t free_places() const {
        const size_t spoken_for = taken() + tree(Role::kReserving).size();
        return options_.places > spoken_for ? options_.places - spoken_for : 0;
    }

    // The score that earns a free place.
    Score admission() const { return least_of(options_.places); }

    // What a candidate must beat for the place of `victim`, or for a free one if that is null.
    Rank floor_of(const Member* victim) const {
        Rank floor{admission(), {}};
        if (victim != nullptr) {
            const Rank& rank = victim->standing.rank;
            floor = std::max(floor, {with_margin(rank.score, options_.margin_permille), rank.id});
        }
        return floor;
    }

    // Each is null if there is none.
    Member* worst_incumbent() { return worst(Role::kIncumbent); }
    // Of all who have a place, those who are not asked to leave included.
    Member* worst_holder() {
        Member* entering = worst(Role::kEntering);
        Member* incumbent = worst(Role::kIncumbent);
        if (entering == nullptr || incumbent == nullptr) return entering ? entering : incumbent;
        return entering->standing.rank < incumbent->standing.rank ? entering : incumbent;
    }
    Member* reserving() { return worst(Role::kReserving); }

    // The best, or the worst, of a role that `accept` lets through; null if there is none.
    template <typename Accept>
    Member* best_of(Role role, Accept accept) {
        Tree& all = tree(role);
        const auto found = std::find_if(all.rbegin(), all.rend(), accept);
        return found == all.rend() ? nullptr : &*found;
    }
    template <typename Accept>
    Member* worst_of(Role role, Accept accept) {
        Tree& all = tree(role);
        const auto found = std::find_if(all.begin(), all.end(), accept);
        return found == all.end() ? nullptr : &*found;
    }

    // Demotes the incumbents that are not worth their place any more, worst first, `most` of them
    // at most. @return false if there are others
    bool demote_cold(Callbacks& callbacks, size_t most) {
        const Score least = std::max<Score>(1, least_of(2 * options_.places) / 2);
        for (;; --most) {
            Member* worst = worst_incumbent();
            if (worst == nullptr || worst->standing.rank.score >= least) return true;
            if (most == 0) return false;
            callbacks.demote(*worst);
            assert(worst_incumbent() != worst);
        }
    }

    // Promotes the best candidate that may be, if it is worth a free place or, with none free, that
    // of the worst incumbent; whoever promotes finds a place for it. @return false if nobody is.
    bool promote_best(Callbacks& callbacks) {
        const Member* victim = nullptr;
        if (free_places() == 0) {
            victim = worst_incumbent();
            if (victim == nullptr) return false;
        }
        const Rank floor = floor_of(victim);
        Tree& candidates = tree(Role::kCandidate);
        for (auto at = candidates.rbegin(); at != candidates.rend(); ++at) {
            if (at->standing.rank <= floor) return false;
            if (!callbacks.may_promote(*at)) continue;
            callbacks.promote(*at, floor);
            return true;
        }
        return false;
    }

    // Calls function(const Member&) for the `count` best of each role, or all that it has: the
    // `count` best of all are among them.
    template <typename Function>
    void for_best(size_t count, Function&& function) const {
        for (const Tree& one : trees_) {
            size_t left = count;
            for (auto at = one.rbegin(); left > 0 && at != one.rend(); ++at, --left) function(*at);
        }
    }

  private:
    struct RankOf {
        using type = Rank;
        const Rank& operator()(const Member& member) const { return member.standing.rank; }
    };
    // Equal ranks are possible where an owner gives an id twice.
    using Tree = boost::intrusive::multiset<Member, boost::intrusive::key_of_value<RankOf>>;
    static constexpr size_t kRoles = 5;

    // The score that is worth a place, where `enough` of those worthy of one are not too many.
    Score least_of(size_t enough) const {
        if (options_.trickle_ratio == 0 || worthy_ <= enough) return options_.min_score;
        Score highest = 0;
        for (const Tree& one : trees_) {
            if (one.empty()) continue;
            // Few trees have a pinned one, and the last of a tree is found at once.
            auto at = one.rbegin();
            if (at->standing.rank.score < options_.pinned) {
                highest = std::max(highest, at->standing.rank.score);
                continue;
            }
            const auto pinned = one.lower_bound(Rank{options_.pinned, {}});
            if (pinned != one.begin())
                highest = std::max(highest, std::prev(pinned)->standing.rank.score);
        }
        return std::max(options_.min_score, highest / options_.trickle_ratio);
    }

    Tree& tree(Role role) { return trees_[static_cast<size_t>(role)]; }
    const Tree& tree(Role role) const { return trees_[static_cast<size_t>(role)]; }
    Member* worst(Role role) { return tree(role).empty() ? nullptr : &*tree(role).begin(); }

    const Options options_;
    std::array<Tree, kRoles> trees_;
    size_t worthy_ = 0;  // members that min_score admits
};

}  // namespace ucs

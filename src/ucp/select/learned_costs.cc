// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/learned_costs.h"

#include <algorithm>

namespace ucp::select {
namespace {

// Weight in the average: of a message, and at most of what one observation says.
constexpr float kNewest = 0.125F;
constexpr float kMostWeight = 0.5F;
/** One that took so many times what was expected was held up by something else. */
constexpr float kHeldUp = 2;
/** Of the first ones the shortest counts, and no assumption is more wrong than this. */
constexpr uint8_t kFirst = 4;
constexpr float kMostWrong = 8;
constexpr uint8_t kLeastGap = 32;    //!< messages between two trials
constexpr uint8_t kRun = 8;          //!< messages of a trial among others
constexpr float kMostCredit = 0.1F;  //!< seconds
constexpr float kLeastFactor = 1e-3F, kMostFactor = 1e3F;

Way other_than(Way way) {
    return way == Way::kAtOnce ? Way::kAnnounced : Way::kAtOnce;
}

}  // namespace

double LearnedCosts::estimate(const State& state, const Ways& ways, Way way, size_t length) {
    const float factor = state.factors[static_cast<size_t>(way)];
    return ways.assumed(way).at(length) * (factor == 0 ? 1 : static_cast<double>(factor));
}

Way LearnedCosts::best_of(const State& state, const Ways& ways, size_t length, Way usual) {
    if (!state.is_known[static_cast<size_t>(usual)]) return usual;
    return estimate(state, ways, Way::kAtOnce, length) <
                   estimate(state, ways, Way::kAnnounced, length)
               ? Way::kAtOnce
               : Way::kAnnounced;
}

Way LearnedCosts::best(Class which, const Ways& ways, size_t length, Way usual) const {
    return best_of(classes_[which.index], ways, length, usual);
}

Way LearnedCosts::choose(Class which, const Ways& ways, size_t length, Way usual) {
    State& state = classes_[which.index];
    const Way best = best_of(state, ways, length, usual);
    const Way other = other_than(best);
    if (is_pinned_ || !state.is_known[static_cast<size_t>(usual)]) return best;
    if (state.left_to_try != 0) {
        --state.left_to_try;
        return other;
    }
    if (state.since_trial < kLeastGap) {
        ++state.since_trial;
        return best;
    }
    const uint8_t run = which.situation == Situation::kAlone ? 1 : kRun;
    const double more =
        run * (estimate(state, ways, other, length) - estimate(state, ways, best, length));
    // A dear one waits until there is credit enough, which messages of the better way bring.
    if (more > static_cast<double>(state.credit)) return best;
    state.credit -= static_cast<float>(std::max(more, 0.0));
    state.since_trial = 0;
    state.left_to_try = run - 1;
    return other;
}

void LearnedCosts::observe(Class which, const Ways& ways, Way way, size_t length,
                           ucs::Duration took, unsigned count) {
    const double assumed = ways.assumed(way).at(length);
    if (is_pinned_ || took <= ucs::Duration(0) || assumed <= 0 || count == 0) return;
    State& state = classes_[which.index];
    const auto seconds = static_cast<float>(ucs::seconds(took));
    const float all = seconds * static_cast<float>(count) * static_cast<float>(kLost);
    state.credit = std::min(state.credit + all, kMostCredit);
    const auto place = static_cast<size_t>(way);
    float& factor = state.factors[place];
    const float seen = std::clamp(seconds / static_cast<float>(assumed), kLeastFactor, kMostFactor);
    state.is_measured[place] = true;
    if (state.seen[place] < kFirst) {
        const unsigned first = std::min(count, unsigned{kFirst} - state.seen[place]);
        state.seen[place] += static_cast<uint8_t>(first);
        state.is_known[place] |= state.seen[place] == kFirst;
        factor = std::min(factor == 0 ? kMostWrong : factor, seen);
        return;
    }
    const float weight = std::min(kNewest * static_cast<float>(count), kMostWeight);
    factor += weight * (std::min(seen, kHeldUp * factor) - factor);
}

void LearnedCosts::restore(Class which, Way way, float factor) {
    if (!(factor >= kLeastFactor && factor <= kMostFactor)) return;
    State& state = classes_[which.index];
    const auto place = static_cast<size_t>(way);
    state.factors[place] = factor;
    state.is_known[place] = true;
    state.seen[place] = 0;  // if it takes less now, that is believed at once
}

}  // namespace ucp::select

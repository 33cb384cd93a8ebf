// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/learned_costs.h"

#include <algorithm>

namespace ucp::select {
namespace {

constexpr uint32_t kAveraged = 16;  // messages, about
// One that took so many times what was expected was held up by something else. Where one takes as
// many times less, those before it were, as by memory that was touched for the first time.
constexpr float kHeldUp = 1.5;
// Of the first ones the shortest counts, and no assumption is more wrong than this.
constexpr uint32_t kFirst = 4;
constexpr float kMostWrong = 8;
constexpr uint8_t kLeastGap = 32;    // messages between two trials
constexpr uint8_t kRun = 4;          // messages of a trial among others
constexpr float kMostCredit = 0.1F;  // seconds
// The first trials in a process have not to be earned if they are likely to take no more times as
// long. More than one: the first pays for memory that it is the first to touch.
constexpr uint8_t kFreeTrials = 4;
constexpr double kFirstTrial = 8;
// Of the better way so many bytes go from one message that is timed to the next, and messages. To
// time one takes several percent of its time, as each of its pieces is timed.
constexpr size_t kTimedBytes = size_t{1} << 20;
constexpr size_t kLeastUntimed = 16;
constexpr size_t kMostUntimed = 64;

// A receiver that waits for a message sees it within so much, and a part of the work.
constexpr ucs::Duration kSeen = std::chrono::microseconds(5);
constexpr int kSeenPart = 2;
// Nor do steps between the pieces take longer than this, and a quarter of the work.
constexpr ucs::Duration kSteps = std::chrono::microseconds(3);

Way other_than(Way way) {
    return way == Way::kEager ? Way::kRendezvous : Way::kEager;
}

// Somebody works at a message at any time, or it is on the wires: what is left of its time was
// waiting for who was away.
bool was_away(const MessageTime& time, double assumed) {
    if (time.receiving == ucs::kForever)
        return time.before > kSeen || ucs::seconds(time.took) > kMostWrong * assumed;
    const ucs::Duration work = time.sending + time.receiving;
    return time.before > kSeen + work / kSeenPart + time.wires ||
           time.took > work + work / 4 + kSteps + time.wires;
}

// Nothing: it is not known.
ucs::Duration cost_of(Load load, const MessageTime& time) {
    if (load != Load::kAlone && time.receiving == ucs::kForever) return {};
    switch (load) {
        case Load::kAlone:
            return time.before + time.took;
        case Load::kOneWay:
            return std::max(time.sending, time.receiving);
        case Load::kBothWays:
            break;
    }
    return time.sending + time.receiving;
}

}  // namespace

// What others say is believed until this process knows better.
bool LearnedCosts::is_known(const Figure& figure) {
    return figure.learned >= kFirst || figure.kept != 0;
}

double LearnedCosts::estimate(const State& state, const Ways& ways, Way way, size_t length) {
    const float factor = state.figures[static_cast<size_t>(way)].factor;
    return ways.assumed(way).at(length) * (factor == 0 ? 1 : static_cast<double>(factor));
}

Way LearnedCosts::best_of(const State& state, const Ways& ways, size_t length, Way usual) {
    if (!is_known(state.figures[static_cast<size_t>(usual)])) return usual;
    return estimate(state, ways, Way::kEager, length) <
                   estimate(state, ways, Way::kRendezvous, length)
               ? Way::kEager
               : Way::kRendezvous;
}

Way LearnedCosts::best(Class which, const Ways& ways, size_t length, Way usual) const {
    return best_of(classes_[which.index], ways, length, usual);
}

LearnedCosts::Measured LearnedCosts::measured(Class which, const Ways& ways, size_t length) const {
    Measured best;
    for (const Way way : {Way::kEager, Way::kRendezvous}) {
        const Figure& known = figure(which, way);
        if (!is_known(known)) continue;
        const double time = estimate(classes_[which.index], ways, way, length);
        if (best.count == 0 || time < best.time)
            best = {time, known.learned != 0 ? known.learned : known.kept};
    }
    return best;
}

LearnedCosts::Choice LearnedCosts::choose(Class which, const Ways& ways, size_t length, Way usual) {
    State& state = classes_[which.index];
    const Way best = best_of(state, ways, length, usual);
    if (is_pinned_) return {best, false};
    const Way other = other_than(best);
    const Figure& known = state.figures[static_cast<size_t>(best)];
    // Until a few of these were seen nothing is tried, and each says something.
    if (known.learned < kFirst) return {best, true};
    if (state.left_to_try != 0) {
        --state.left_to_try;
        return {other, true};
    }
    const double usually = estimate(state, ways, best, length);
    state.credit = std::min(state.credit + static_cast<float>(usually * kLost), kMostCredit);
    if (state.since_trial >= kLeastGap) {
        const uint8_t run = which.load == Load::kAlone ? 1 : kRun;
        const double trial = estimate(state, ways, other, length);
        const double more = run * (trial - usually);
        const bool is_free = state.trials < kFreeTrials && trial <= kFirstTrial * usually;
        // A dear one waits until there is credit enough, which messages of the better way bring.
        if (is_free || more <= static_cast<double>(state.credit)) {
            if (!is_free) state.credit -= static_cast<float>(std::max(more, 0.0));
            state.since_trial = 0;
            state.left_to_try = run - 1;
            if (state.trials < kFreeTrials) ++state.trials;
            return {other, true};
        }
    } else {
        ++state.since_trial;
    }
    const size_t messages = kTimedBytes / std::max<size_t>(length, 1);
    if (++state.since_timed < std::clamp(messages, kLeastUntimed, kMostUntimed))
        return {best, false};
    state.since_timed = 0;
    return {best, true};
}

bool LearnedCosts::observe(Class which, Way way, double assumed, const MessageTime& time) {
    const ucs::Duration cost = cost_of(which.load, time);
    if (is_pinned_ || cost <= ucs::Duration(0) || assumed <= 0) return false;
    if (which.load == Load::kAlone && was_away(time, assumed)) return false;
    Figure& figure = classes_[which.index].figures[static_cast<size_t>(way)];
    const float seen =
        std::clamp(static_cast<float>(ucs::seconds(cost) / assumed), kLeastFactor, kMostFactor);
    if (figure.learned == 0) figure.factor = kMostWrong;  // others' word counts no more
    if (figure.learned < UINT32_MAX) ++figure.learned;
    if (figure.learned <= kFirst) {
        figure.factor = std::min(figure.factor, seen);
        return true;
    }
    if (seen * kHeldUp < figure.factor) {
        figure.factor = seen;
        return true;
    }
    const float change = std::min(seen, kHeldUp * figure.factor) - figure.factor;
    figure.factor += change / static_cast<float>(std::min(figure.learned, kAveraged));
    return true;
}

uint32_t LearnedCosts::take_news(Class which, Way way) {
    Figure& figure = classes_[which.index].figures[static_cast<size_t>(way)];
    const uint32_t news = figure.learned - figure.taken;
    figure.taken = figure.learned;
    return news;
}

void LearnedCosts::restore(Class which, Way way, float factor, uint32_t count) {
    if (!(factor >= kLeastFactor && factor <= kMostFactor) || count == 0) return;
    Figure& figure = classes_[which.index].figures[static_cast<size_t>(way)];
    if (figure.learned != 0) return;
    figure.factor = factor;
    figure.kept = count;
}

}  // namespace ucp::select

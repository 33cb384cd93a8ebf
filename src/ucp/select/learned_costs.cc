// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/learned_costs.h"

#include <algorithm>

namespace ucp::select {
namespace {

constexpr uint32_t kAveraged = 16;  // messages, about
// A message that takes so many times what was expected was held up by something else. If one takes
// as many times less, the earlier ones were held up, by memory that was touched for the first time,
// say.
constexpr float kHeldUp = 1.5;
// Of the first messages the shortest time counts. No assumption is taken to be wrong by more than
// kMostWrong times.
constexpr uint32_t kFirst = 4;
constexpr float kMostWrong = 8;
constexpr unsigned kLeastGap = 32;   // messages between two trials
constexpr float kMostCredit = 0.1F;  // seconds
// The first trials in a process need no credit if they are likely to take at most kFirstTrial times
// as long. More than one, since the first one also pays for memory that it touches first.
constexpr uint8_t kFreeTrials = 4;
constexpr double kFirstTrial = 8;
// Messages of the better way are timed after so many bytes, within these bounds of a number of
// messages: to time one takes several percent of its time, as each of its pieces is timed.
constexpr size_t kTimedBytes = size_t{1} << 20;
constexpr size_t kLeastUntimed = 16;
constexpr size_t kMostUntimed = 64;

// A receiver that waits for a message sees it within kSeen and half of the work.
constexpr ucs::Duration kSeen = std::chrono::microseconds(5);
constexpr int kSeenPart = 2;
// Steps between pieces take at most kSteps and a quarter of the work.
constexpr ucs::Duration kSteps = std::chrono::microseconds(3);

// Was one end away, busy with something else? At any time somebody works at a message, or it is on
// the wires: the rest of its time was waiting.
bool was_away(const MessageTime& time, double assumed) {
    if (time.receiving == ucs::kForever)
        return time.before > kSeen || ucs::seconds(time.took) > kMostWrong * assumed;
    const ucs::Duration work = time.sending + time.receiving;
    return time.before > kSeen + work / kSeenPart + time.wires ||
           time.took > work + work / 4 + kSteps + time.wires;
}

// What the message cost, by the load of its sender; 0: not known.
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

// Figures of other processes (kept) are believed until this one knows better.
bool LearnedCosts::is_known(const Figure& figure) {
    return figure.learned >= kFirst || figure.kept != 0;
}

double LearnedCosts::estimate(const State& state, const Ways& ways, Way way, size_t length) {
    const float factor = state.figures[place_of(way)].factor;
    return ways.assumed(way).at(length) * (factor == 0 ? 1 : static_cast<double>(factor));
}

Way LearnedCosts::best_of(const State& state, const Ways& ways, size_t length, Way usual) {
    if (!is_known(state.figures[place_of(usual)])) return usual;
    // Of one-sided operations both ways must be known: a program that never waits for them would
    // never show that the assumed one is worse.
    if (ways.is_one_sided && !is_known(state.figures[place_of(ways.other_than(usual, length))]))
        return usual;
    const Way first = ways.first(length), second = ways.second(length);
    return estimate(state, ways, first, length) < estimate(state, ways, second, length) ? first
                                                                                        : second;
}

Way LearnedCosts::best(Class which, const Ways& ways, size_t length, Way usual) const {
    return best_of(classes_[which.index], ways, length, usual);
}

LearnedCosts::Measured LearnedCosts::measured(Class which, const Ways& ways, size_t length) const {
    Measured best;
    for (const Way way : {ways.first(length), ways.second(length)}) {
        const Figure& known = figure(which, way);
        if (!is_known(known)) continue;
        const double time = estimate(classes_[which.index], ways, way, length);
        if (best.count == 0 || time < best.time)
            best = {time, known.learned != 0 ? known.learned : known.kept};
    }
    return best;
}

LearnedCosts::Choice LearnedCosts::choose(Class which, const Ways& ways, size_t length, Way usual,
                                          const Run& run) {
    State& state = classes_[which.index];
    const Way best = best_of(state, ways, length, usual);
    if (is_pinned_) return {best, false};
    const Way other = ways.other_than(best, length);
    const Figure& known = state.figures[place_of(best)];
    // Until a few messages of the better way were seen nothing else is tried, and each is timed.
    if (known.learned < kFirst) return {best, true};
    if (state.left_to_try != 0) {
        --state.left_to_try;
        return {other, true};
    }
    const double usually = estimate(state, ways, best, length);
    const double earned = usually * kLost * run.count;
    state.credit = std::min(state.credit + static_cast<float>(earned), kMostCredit);
    if (state.since_trial < kLeastGap) {
        state.since_trial =
            static_cast<uint8_t>(std::min(state.since_trial + run.count, kLeastGap));
    } else {
        const double trial = estimate(state, ways, other, length);
        const double more = run.operations * (trial - usually);
        const bool is_free = state.trials < kFreeTrials && trial <= kFirstTrial * usually;
        // An expensive trial waits until messages of the better way have brought credit for it.
        if (is_free || more <= static_cast<double>(state.credit)) {
            if (!is_free) state.credit -= static_cast<float>(std::max(more, 0.0));
            state.since_trial = 0;
            state.left_to_try = run.is_window ? 0 : static_cast<uint8_t>(run.operations - 1);
            if (state.trials < kFreeTrials) ++state.trials;
            return {other, true};
        }
    }
    const size_t messages = kTimedBytes / std::max<size_t>(length, 1);
    state.since_timed =
        static_cast<uint8_t>(std::min<size_t>(state.since_timed + run.count, kMostUntimed));
    if (state.since_timed < std::clamp(messages, kLeastUntimed, kMostUntimed)) return {best, false};
    state.since_timed = 0;
    return {best, true};
}

LearnedCosts::Choice LearnedCosts::look(Class which, const Ways& ways, size_t length, Way usual,
                                        unsigned operations) {
    State& state = classes_[which.index];
    const Choice choice = choose(which, ways, length, usual, {operations, true, state.since_look});
    state.since_look = 0;
    const Way best = settle(which, ways, length, usual);
    // Until a few windows are known each one is timed.
    const bool is_known_well = is_pinned_ || figure(which, best).learned >= kFirst;
    state.pause = is_known_well ? kPause : 1;
    return choice;
}

Way LearnedCosts::settle(Class which, const Ways& ways, size_t length, Way usual) {
    State& state = classes_[which.index];
    state.settled = best_of(state, ways, length, usual);
    // If not, the table decides, which may choose another way for the next buffer.
    state.is_settled = is_known(state.figures[place_of(usual)]);
    return state.settled;
}

bool LearnedCosts::observe(Class which, Way way, double assumed, const MessageTime& time) {
    const ucs::Duration cost = cost_of(which.load, time);
    if (is_pinned_ || cost <= ucs::Duration(0) || assumed <= 0) return false;
    if (which.load == Load::kAlone && was_away(time, assumed)) return false;
    learn(which, way, assumed, cost);
    return true;
}

void LearnedCosts::observe_window(Class which, Way way, double assumed, ucs::Duration took) {
    if (!is_pinned_ && took > ucs::Duration(0) && assumed > 0) learn(which, way, assumed, took);
}

void LearnedCosts::learn(Class which, Way way, double assumed, ucs::Duration cost) {
    classes_[which.index].is_settled = false;
    Figure& figure = classes_[which.index].figures[place_of(way)];
    const float seen =
        std::clamp(static_cast<float>(ucs::seconds(cost) / assumed), kLeastFactor, kMostFactor);
    if (figure.learned == 0) figure.factor = kMostWrong;  // others' word counts no more
    if (figure.learned < UINT32_MAX) ++figure.learned;
    if (figure.learned <= kFirst) {
        figure.factor = std::min(figure.factor, seen);
    } else if (seen * kHeldUp < figure.factor) {
        figure.factor = seen;
    } else {
        const float change = std::min(seen, kHeldUp * figure.factor) - figure.factor;
        figure.factor += change / static_cast<float>(std::min(figure.learned, kAveraged));
    }
}

uint32_t LearnedCosts::take_news(Class which, Way way) {
    Figure& figure = classes_[which.index].figures[place_of(way)];
    const uint32_t news = figure.learned - figure.taken;
    figure.taken = figure.learned;
    return news;
}

void LearnedCosts::restore(Class which, Way way, float factor, uint32_t count) {
    if (!(factor >= kLeastFactor && factor <= kMostFactor) || count == 0) return;
    Figure& figure = classes_[which.index].figures[place_of(way)];
    if (figure.learned != 0) return;
    classes_[which.index].is_settled = false;
    figure.factor = factor;
    figure.kept = count;
}

}  // namespace ucp::select

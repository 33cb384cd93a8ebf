// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ucp/select/protocol_table.h"
#include "ucs/sys/time.h"

namespace ucp::select {

// How busy a message's sender is: what makes up the time that the message costs.
enum class Load : uint8_t {
    kAlone,     // nothing else is under way: the time to its end
    kOneWay,    // among others that it sends: the work of the end that has more of it; of puts and
                // gets, its part of the time that a window of them takes
    kBothWays,  // and it waits for some itself: the work of both ends, as each does either
};
inline constexpr size_t kLoads = 3;
constexpr Situation situation_of(Load load) {
    return load == Load::kAlone ? Situation::kAlone : Situation::kAmongOthers;
}

// The ways of an operation by load; nothing where nothing is learned.
using WaysByLoad = std::array<std::optional<Ways>, kLoads>;

// What is known of a message that has ended.
struct MessageTime {
    ucs::Duration sending{};    // work of the sender's processor
    ucs::Duration receiving{};  // of the receiver's; kForever: it is not known
    ucs::Duration before{};     // from its beginning until the receiver saw it
    ucs::Duration took{};       // from then to its end
    ucs::Duration wires{};      // at most so much of it on wires, where nobody works
};

// What the ways of an operation turn out to cost beside what is assumed of them, for classes of
// messages, or of puts or gets, alike: by load, and length to the power of two. Of each way of a
// class it keeps how many times the assumed time it took, on average: an assumption that is wrong
// by a factor is right after a few messages, for all lengths of the class.
//
// The way that costs less is the choice; until that of the protocol table was observed a few times,
// and of puts and gets the other one as well, it is the choice. The other one is tried once, and
// then so rarely that what is lost by it stays under kLost of the class's time. Among others a
// trial is a run of messages, as the first of them pays for what the others have evicted.
//
// Pure, and a function of the calls alone, without allocation.
class LearnedCosts {
  public:
    static constexpr double kLost = 1.0 / 160;

    // A class of messages.
    struct Class {
        Load load;
        uint16_t index;  // below kClasses
    };
    static Class class_of(Load load, size_t length) { return class_of_size(load, size_of(length)); }
    // @param size  below kSizes, as of size_of()
    static Class class_of_size(Load load, size_t size) {
        return {load, static_cast<uint16_t>(static_cast<size_t>(load) * kSizes + size)};
    }
    // The least length of that size; of the first one, which has all below, 1 KiB.
    static size_t least_of_size(size_t size) { return size_t{1} << (size + kShortest - 1); }
    static size_t size_of(size_t length) {
        const auto width = static_cast<size_t>(std::bit_width(length));
        return width < kShortest ? 0 : std::min(width - kShortest, kSizes - 1);
    }

    struct Choice {
        Way way;
        bool is_timed;  // observe() is to hear of this message
    };
    // @param usual  the protocol table's choice
    // @return the way to go: the better one, or the one that is to be tried
    Choice choose(Class which, const Ways& ways, size_t length, Way usual) {
        return choose(which, ways, length, usual,
                      {which.load == Load::kAlone ? 1U : kRun, false, 1});
    }
    // The same of operations of which a window is timed as one. All that is weighed up is weighed
    // up for one in kPause of them, as most cost little.
    // @param operations  in the window, if one begins here; 0: none may
    // @return if it is timed, the way of the whole window, of which observe_window() is to hear
    Choice choose_window(Class which, const Ways& ways, size_t length, Way usual,
                         unsigned operations) {
        State& state = classes_[which.index];
        if (state.since_look < UINT8_MAX) ++state.since_look;
        if (operations != 0 && state.since_look >= state.pause)
            return look(which, ways, length, usual, operations);
        const bool is_settled = state.is_settled && (state.settled == ways.first(length) ||
                                                     state.settled == ways.second(length));
        return {is_settled ? state.settled : settle(which, ways, length, usual), false};
    }
    // The better one, without a trial.
    Way best(Class which, const Ways& ways, size_t length, Way usual) const;
    // A message of which choose() said that it is timed has ended.
    // @param assumed  what was assumed of it, in seconds
    // @return false: it says nothing, as somebody was away meanwhile
    bool observe(Class which, Way way, double assumed, const MessageTime& time);
    // A window of which choose_window() said that it is timed has ended.
    // @param assumed  what was assumed of all its operations, in seconds
    void observe_window(Class which, Way way, double assumed, ucs::Duration took);

    // What is known of the class's messages by the better of the ways that are known.
    struct Measured {
        double time = 0;     // seconds, of a message of that length
        uint32_t count = 0;  // messages that say so, of whatever process; 0: nothing is known
    };
    Measured measured(Class which, const Ways& ways, size_t length) const;
    // How many times its assumed time a way takes; 0: nothing is known.
    float factor(Class which, Way way) const { return figure(which, way).factor; }
    // Messages of this process that say so.
    uint32_t learned(Class which, Way way) const { return figure(which, way).learned; }
    // Messages of others that say so.
    uint32_t kept(Class which, Way way) const { return figure(which, way).kept; }
    // Those of this process that were not taken yet, which they are from now on.
    uint32_t take_news(Class which, Way way);
    // What others have learned, where this process has not; not what is out of all reason.
    // @param count  of messages
    void restore(Class which, Way way, float factor, uint32_t count);
    // Keep to what was restored: nothing is tried, and observations change nothing.
    void pin() { is_pinned_ = true; }

    static constexpr size_t kShortest = 11;  // widths of lengths below 2 KiB are one class
    static constexpr size_t kSizes = 16;     // those of 32 MiB and more are another
    static constexpr size_t kClasses = kLoads * kSizes;
    static constexpr float kLeastFactor = 1e-3F, kMostFactor = 1e3F;

  private:
    static constexpr unsigned kRun = 4;  // messages of a trial among others

    // What a trial is made of.
    struct Run {
        unsigned operations;
        bool is_window;  // it is one choice; else each is one
        unsigned count;  // operations since the last choice, with this one
    };
    static constexpr uint8_t kPause = 16;  // operations from one look at their class to the next

    Choice look(Class which, const Ways& ways, size_t length, Way usual, unsigned operations);
    // The better way, for all operations up to the next look.
    Way settle(Class which, const Ways& ways, size_t length, Way usual);
    Choice choose(Class which, const Ways& ways, size_t length, Way usual, const Run& run);
    void learn(Class which, Way way, double assumed, ucs::Duration cost);

    struct Figure {
        float factor = 0;      // 0: nothing is known
        uint32_t learned = 0;  // messages
        uint32_t taken = 0;    // of these, by take_news()
        uint32_t kept = 0;
    };
    struct State {
        std::array<Figure, kWays> figures{};
        float credit = 0;         // seconds that trials may lose
        uint8_t since_trial = 0;  // messages
        uint8_t since_timed = 0;  // messages of the better way
        uint8_t left_to_try = 0;  // of the trial that is going on
        uint8_t trials = 0;       // in this process, up to those that need not be earned
        // Of operations that are timed in windows:
        uint8_t since_look = 0;
        uint8_t pause = 1;  // up to the next look
        bool is_settled = false;
        Way settled{};  // the better way, if it is
    };

    const Figure& figure(Class which, Way way) const {
        return classes_[which.index].figures[place_of(way)];
    }
    static bool is_known(const Figure& figure);
    static double estimate(const State& state, const Ways& ways, Way way, size_t length);
    static Way best_of(const State& state, const Ways& ways, size_t length, Way usual);

    std::array<State, kClasses> classes_{};
    bool is_pinned_ = false;
};

}  // namespace ucp::select

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ucp/select/protocol_table.h"
#include "ucs/sys/time.h"

namespace ucp::select {

/**
 * What the two ways of a long tagged message turn out to take beside what is assumed of them, for
 * classes of messages alike: by situation, and length to the power of two. Of each way of a
 * class it keeps how many times the assumed time it took, on average: an assumption that is wrong
 * by a factor is right after a few messages, for all lengths of the class.
 *
 * The way that takes less is the choice; until that of the protocol table was observed a few times
 * it is the choice.
 * The other one is tried so rarely that what is lost by it stays under kLost of the class's time.
 * Among others a trial is a run of messages, as a single one would hide behind its neighbours.
 *
 * Pure, and a function of the calls alone, without allocation.
 */
class LearnedCosts {
  public:
    static constexpr double kLost = 1.0 / 160;

    /** A class of messages. */
    struct Class {
        Situation situation;
        uint16_t index;  //!< below kClasses
    };
    static Class class_of(Situation situation, size_t length) {
        return class_of_size(situation, size_of(length));
    }
    /** @param size  below kSizes, as of size_of() */
    static Class class_of_size(Situation situation, size_t size) {
        return {situation, static_cast<uint16_t>(static_cast<size_t>(situation) * kSizes + size)};
    }
    static size_t size_of(size_t length) {
        const auto width = static_cast<size_t>(std::bit_width(length));
        return width < kShortest ? 0 : std::min(width - kShortest, kSizes - 1);
    }

    /**
     * @param usual  the protocol table's choice
     * @return the way to go: the better one, or the one that is to be tried
     */
    Way choose(Class which, const Ways& ways, size_t length, Way usual);
    /** The better one, without a trial. */
    Way best(Class which, const Ways& ways, size_t length, Way usual) const;
    /** So many messages of about that length went that way, and took so long on average. */
    void observe(Class which, const Ways& ways, Way way, size_t length, ucs::Duration took,
                 unsigned count);

    /** How many times its assumed time a way takes; 0: it was not observed. */
    float factor(Class which, Way way) const {
        return classes_[which.index].factors[static_cast<size_t>(way)];
    }
    /** Was it observed in this process? */
    bool is_measured(Class which, Way way) const {
        return classes_[which.index].is_measured[static_cast<size_t>(way)];
    }
    /** What an earlier job has learned; not what is out of all reason. */
    void restore(Class which, Way way, float factor);
    /** Keep to what was restored: nothing is tried, and observations change nothing. */
    void pin() { is_pinned_ = true; }

    static constexpr size_t kShortest = 13;  //!< widths of lengths below 8 KiB are one class
    static constexpr size_t kSizes = 14;     //!< those of 32 MiB and more are another
    static constexpr size_t kClasses = kSituations * kSizes;

  private:
    struct State {
        std::array<float, kWays> factors{};  //!< 0: not observed
        std::array<uint8_t, kWays> seen{};   //!< observations, up to kFirst
        std::array<bool, kWays> is_measured{};
        std::array<bool, kWays> is_known{};  //!< restored, or observed kFirst times
        float credit = 0;                    //!< seconds that trials may lose
        uint8_t since_trial = 0;             //!< messages
        uint8_t left_to_try = 0;             //!< of the trial that is going on
    };

    static double estimate(const State& state, const Ways& ways, Way way, size_t length);
    static Way best_of(const State& state, const Ways& ways, size_t length, Way usual);

    std::array<State, kClasses> classes_{};
    bool is_pinned_ = false;
};

}  // namespace ucp::select

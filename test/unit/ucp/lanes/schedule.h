// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "unit/ucp/lanes/cluster.h"

// Schedules at random of what programs, adapters and the network do to workers that negotiate: of
// each seed one, with faults and many switches. One that fails can be shrunk and printed as a test.
namespace lanes_test {

enum class Action : std::uint8_t {
    kPromote,  // by the program's wish, as the next two
    kDemote,
    kLeaveAlone,
    kSend,
    kScore,  // `amount`: what a measures of b from now on
    // Faults.
    kSleep,     // a computes for `amount` ns
    kDie,       // unless fewer than three are alive
    kForget,    // a loses its endpoint to b
    kLaneFull,  // a's lane to b takes nothing at present
    kLoseKept,  // a's transport loses the lane that it keeps for b
    kSlow,      // for `amount` ns some messages take up to as long
    kFewLanes,  // for `amount` ns a new lane cannot be made, but for what is kept
};
const char* name(Action action);

struct Step {
    Time after;  // the step before, ns
    Action action;
    std::size_t a, b;
    std::uint64_t amount;
};

struct Outcome {
    std::string error;  // the first that was found; empty: none
    std::size_t faults = 0;
    std::uint64_t switches = 0;
};

// Half of the seeds have each of them, a quarter both.
struct Weather {
    bool has_tails;  // messages that take as long as timers do (Cluster::tails)
    bool has_skew;  // clocks that show other times, up to 5 s ahead and 200 parts in a million fast
};
Weather weather_of(std::uint64_t seed);

// Workers, slots and times are functions of the seed.
std::vector<Step> schedule_of(std::uint64_t seed);

// Plays it, then leaves everybody alone until all is quiet; what then holds or is missing is an
// error. `least_switches`: links are promoted and demoted behind the schedule until there were so
// many.
Outcome play(std::uint64_t seed, const std::vector<Step>& schedule,
             std::uint64_t least_switches = 0);

// The schedule without the steps that it needs not to fail.
std::vector<Step> shrink(std::vector<Step> schedule,
                         const std::function<bool(const std::vector<Step>&)>& fails);

// A test that plays it.
std::string as_test(std::uint64_t seed, const std::vector<Step>& schedule);

}  // namespace lanes_test

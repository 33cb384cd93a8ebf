// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

namespace tools {

// Says how many more rounds of a benchmark to run before the clock is looked at again: all at once
// for a fixed number; for a fixed time in growing portions, none longer than a share of the time.
class Pacer {
  public:
    static Pacer by_count(uint64_t rounds) { return Pacer(rounds, 0); }
    static Pacer by_time(int64_t nanoseconds) { return Pacer(0, nanoseconds); }

    // @return rounds to run now; 0 when it is enough
    uint64_t next(int64_t elapsed, uint64_t rounds_done) {
        if (time_ == 0) return rounds_done < count_ ? count_ - rounds_done : 0;
        if (elapsed >= time_) return 0;
        if (rounds_done == 0) return 1;
        const double a_round =
            std::max(static_cast<double>(elapsed), 1.0) / static_cast<double>(rounds_done);
        const double fit =
            static_cast<double>(std::min(time_ / kPortions, time_ - elapsed)) / a_round;
        return std::clamp<uint64_t>(static_cast<uint64_t>(fit), 1, 2 * rounds_done);
    }

  private:
    static constexpr int64_t kPortions = 20;

    Pacer(uint64_t count, int64_t time) : count_(count), time_(time) {}

    uint64_t count_;
    int64_t time_;
};

}  // namespace tools

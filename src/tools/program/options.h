// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace tools {

class CudaDevice;

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

// Powers of two times the smallest size; the largest one is always among them.
inline std::vector<uint64_t> sizes_between(uint64_t smallest, uint64_t largest) {
    std::vector<uint64_t> sizes;
    for (uint64_t size = smallest; size < largest; size = std::max<uint64_t>(1, 2 * size))
        sizes.push_back(size);
    sizes.push_back(largest);
    return sizes;
}

// What mbw_mr and alltoall take.
struct BenchOptions {
    unsigned ranks = 2;
    unsigned pairs = 0;       // mbw_mr: 0 for half the ranks
    unsigned unused = 0;      // mbw_mr: endpoints that carry at most the trickle
    uint64_t trickle = 1000;  // mbw_mr: hot messages per message to each unused endpoint; 0: none
    unsigned window = 64;     // mbw_mr: messages in flight before an acknowledgement
    uint64_t size_min = 1;
    uint64_t size_max = 4096;
    uint64_t iterations = 0;  // windows or exchanges a size; 0: as many as fit `time`
    uint64_t warmup = 10;     // windows or exchanges before each size
    int64_t time = 0;         // nanoseconds a size
    int64_t settle = 0;       // nanoseconds of traffic before the first size
    uint64_t seed = 1;
    bool verify = false;
    const CudaDevice* device = nullptr;  // of hot messages; null: host memory. Not owned

    unsigned hot_pairs() const { return pairs != 0 ? pairs : ranks / 2; }

    std::vector<uint64_t> sizes() const { return sizes_between(size_min, size_max); }
    // The rounds of a size, none of which but the last count.
    std::array<Pacer, 3> pacers(bool is_settled) const {
        return {Pacer::by_time(is_settled ? 0 : settle), Pacer::by_count(warmup),
                iterations != 0 ? Pacer::by_count(iterations) : Pacer::by_time(time)};
    }
};

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tools/program/pacer.h"

namespace tools {

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

    unsigned hot_pairs() const { return pairs != 0 ? pairs : ranks / 2; }

    // Powers of two from size_min to size_max, and size_max itself.
    std::vector<uint64_t> sizes() const {
        std::vector<uint64_t> list;
        for (uint64_t size = size_min; size < size_max; size = size == 0 ? 1 : size * 2) {
            list.push_back(size);
        }
        list.push_back(size_max);
        return list;
    }
    // The rounds of a size, none of which but the last count.
    std::array<Pacer, 3> pacers(bool is_settled) const {
        return {Pacer::by_time(is_settled ? 0 : settle), Pacer::by_count(warmup),
                iterations != 0 ? Pacer::by_count(iterations) : Pacer::by_time(time)};
    }
};

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace tools {

// A link between two ranks, a < b, and the messages that went over it either way.
struct WeightedLink {
    unsigned a;
    unsigned b;
    uint64_t weight;
};

// The links that a greedy b-matching admits: the heaviest first, each if both its ranks still have
// a slot. Knows nothing of how the library negotiates.
std::vector<WeightedLink> greedy_matching(std::vector<WeightedLink> links, unsigned ranks,
                                          unsigned cap);

// How a set of admitted links compares with the greedy one.
struct MatchingReport {
    uint64_t weight = 0;  // of the admitted links
    uint64_t greedy_weight = 0;
    unsigned admitted = 0;
    unsigned greedy = 0;
    unsigned differing = 0;  // in one set only
    // Links left out although at both ends there is a free slot or an admitted link that they
    // outweigh by more than the margin.
    std::vector<WeightedLink> unexplained;

    double ratio() const {
        return greedy_weight == 0
                   ? 1.0
                   : static_cast<double>(weight) / static_cast<double>(greedy_weight);
    }
};

// `admitted` must be a part of `links`.
MatchingReport compare_matching(const std::vector<WeightedLink>& links,
                                const std::vector<WeightedLink>& admitted, unsigned ranks,
                                unsigned cap, double margin);

}  // namespace tools

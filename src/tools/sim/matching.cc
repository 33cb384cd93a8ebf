// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/matching.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tools {
namespace {

using Ends = std::pair<unsigned, unsigned>;

// What a rank's slots hold.
struct Slots {
    unsigned used = 0;
    uint64_t lightest = UINT64_MAX;
};

std::vector<Slots> slots_of(const std::vector<WeightedLink>& admitted, unsigned ranks) {
    std::vector<Slots> slots(ranks);
    for (const WeightedLink& link : admitted) {
        for (const unsigned rank : {link.a, link.b}) {
            ++slots[rank].used;
            slots[rank].lightest = std::min(slots[rank].lightest, link.weight);
        }
    }
    return slots;
}

std::set<Ends> ends_of(const std::vector<WeightedLink>& links) {
    std::set<Ends> ends;
    for (const WeightedLink& link : links) ends.emplace(link.a, link.b);
    return ends;
}

uint64_t weight_of(const std::vector<WeightedLink>& links) {
    uint64_t sum = 0;
    for (const WeightedLink& link : links) sum += link.weight;
    return sum;
}

}  // namespace

std::vector<WeightedLink> greedy_matching(std::vector<WeightedLink> links, unsigned ranks,
                                          unsigned cap) {
    std::ranges::sort(links, [](const WeightedLink& x, const WeightedLink& y) {
        if (x.weight != y.weight) return x.weight > y.weight;
        return Ends(x.a, x.b) < Ends(y.a, y.b);
    });
    std::vector<unsigned> used(ranks);
    std::vector<WeightedLink> admitted;
    for (const WeightedLink& link : links) {
        if (link.weight == 0 || used[link.a] >= cap || used[link.b] >= cap) continue;
        ++used[link.a];
        ++used[link.b];
        admitted.push_back(link);
    }
    return admitted;
}

MatchingReport compare_matching(const std::vector<WeightedLink>& links,
                                const std::vector<WeightedLink>& admitted, unsigned ranks,
                                unsigned cap, double margin) {
    const std::vector<WeightedLink> greedy = greedy_matching(links, ranks, cap);
    const std::set<Ends> admitted_ends = ends_of(admitted);
    const std::set<Ends> greedy_ends = ends_of(greedy);

    MatchingReport report;
    report.weight = weight_of(admitted);
    report.greedy_weight = weight_of(greedy);
    report.admitted = static_cast<unsigned>(admitted.size());
    report.greedy = static_cast<unsigned>(greedy.size());
    for (const Ends& ends : admitted_ends) report.differing += !greedy_ends.contains(ends);
    for (const Ends& ends : greedy_ends) report.differing += !admitted_ends.contains(ends);

    const std::vector<Slots> slots = slots_of(admitted, ranks);
    const auto wants = [&](unsigned rank, uint64_t weight) {
        if (slots[rank].used < cap) return true;
        return static_cast<double>(weight) >
               static_cast<double>(slots[rank].lightest) * (1 + margin);
    };
    for (const WeightedLink& link : links) {
        if (link.weight == 0 || admitted_ends.contains({link.a, link.b})) continue;
        if (wants(link.a, link.weight) && wants(link.b, link.weight)) {
            report.unexplained.push_back(link);
        }
    }
    return report;
}

}  // namespace tools

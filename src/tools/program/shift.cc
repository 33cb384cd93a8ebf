// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/shift.h"

#include <algorithm>

namespace tools {

std::vector<unsigned> hot_peers(unsigned rank, unsigned ranks, unsigned hot, unsigned phase) {
    const unsigned distances = (ranks - 1) / 2;  // a distance of half the ring has one side only
    std::vector<unsigned> peers;
    for (unsigned i = 0; peers.size() < hot && i < distances; ++i) {
        const unsigned distance = 1 + (phase * ((hot + 1) / 2) + i) % distances;
        peers.push_back((rank + distance) % ranks);
        if (peers.size() < hot) peers.push_back((rank + ranks - distance) % ranks);
    }
    return peers;
}

namespace {

std::vector<PeerWeight> weights_of(const Rank& rank, const ShiftOptions& options, unsigned phase) {
    const auto hot = hot_peers(rank.index(), rank.count(), options.hot, phase);
    const size_t others = rank.count() - 1 - hot.size();
    std::vector<PeerWeight> weights;
    for (unsigned peer = 0; peer < rank.count(); ++peer) {
        if (peer == rank.index()) continue;
        if (std::ranges::find(hot, peer) != hot.end()) {
            weights.push_back({peer, (1 - options.background) / static_cast<double>(hot.size())});
        } else if (options.background > 0) {
            weights.push_back({peer, options.background / static_cast<double>(others)});
        }
    }
    return weights;
}

}  // namespace

Task shift(Rank& rank, const ShiftOptions& options) {
    for (unsigned step = 1; step < rank.count(); ++step) {
        rank.connect((rank.index() + step) % rank.count());
    }
    const std::function weights = [&](unsigned phase) { return weights_of(rank, options, phase); };
    co_await run_flow(rank, options.flow, options.phases, options.time, weights);
}

}  // namespace tools

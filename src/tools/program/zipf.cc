// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/zipf.h"

#include <algorithm>
#include <cmath>

#include "ucs/sys/random.h"

namespace tools {
namespace {

std::vector<PeerWeight> weights_of(const Rank& rank, const ZipfOptions& options) {
    std::vector<unsigned> order;
    for (unsigned peer = 0; peer < rank.count(); ++peer) {
        if (peer != rank.index()) order.push_back(peer);
    }
    ucs::Random random(ucs::mix64(options.flow.seed) ^ rank.index());
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    if (options.peers != 0 && options.peers < order.size()) order.resize(options.peers);

    std::vector<PeerWeight> weights;
    for (size_t i = 0; i < order.size(); ++i) {
        weights.push_back({order[i], std::pow(static_cast<double>(i + 1), -options.exponent)});
    }
    return weights;
}

}  // namespace

Task zipf(Rank& rank, const ZipfOptions& options) {
    const std::function weights = [&](unsigned) { return weights_of(rank, options); };
    for (const PeerWeight& entry : weights(0)) rank.connect(entry.peer);
    co_await run_flow(rank, options.flow, 1, options.time, weights);
}

}  // namespace tools

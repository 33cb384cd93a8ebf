// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/trickle.h"

namespace tools {

Trickle::Trickle(Rank& rank, const BenchOptions& options, std::vector<unsigned> peers)
    : rank_(rank),
      options_(options),
      peers_(std::move(peers)),
      batch_(rank),
      buffer_(options.size_max, options.verify ? static_cast<unsigned>(peers_.size()) : 1),
      sequences_(peers_.size(), SequenceCheck(options.seed, Stream::kTrickle)) {}

Task Trickle::send(uint64_t size) {
    since_last_ -= options_.trickle;
    co_await batch_.done();
    for (unsigned i = 0; i < peers_.size(); ++i) {
        const auto message = buffer_.slot(options_.verify ? i : 0, size);
        if (options_.verify) sequences_[i].fill(message, rank_.index(), peers_[i]);
        batch_.send(peers_[i], make_tag(Stream::kTrickle, rank_.index()), message.data(), size);
    }
}

Task Trickle::finish() {
    co_await batch_.done();
}

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/program/rank.h"
#include "tools/program/verify.h"

namespace tools {

// What zipf and shift take: every rank sends messages of one size to many peers, each by its
// weight, with a window of messages in flight, for a fixed time.
struct FlowOptions {
    uint64_t size = 64;
    unsigned window = 16;
    uint64_t seed = 1;
    bool verify = false;
};

// Who gets how much of a rank's messages.
struct PeerWeight {
    unsigned peer;
    double weight;
};

// Sends to weighted peers. The next one is always the one that is furthest behind its share, so
// that even short stretches hold the weights closely.
class Flow {
  public:
    Flow(Rank& rank, const FlowOptions& options);

    // Until the host's clock reaches `end`. Returns when all is sent.
    Task run(std::vector<PeerWeight> peers, int64_t end);

    uint64_t messages() const { return messages_; }

  private:
    Rank& rank_;
    const FlowOptions options_;
    MessageBuffer buffer_;
    std::vector<SequenceCheck> sequences_;  // by peer
    uint64_t messages_ = 0;
};

// The program of a rank, once it is connected: it receives from everybody, sends for `phases` times
// `time` nanoseconds, and reports.
// @param weights  of the peers in a phase
Task run_flow(Rank& rank, const FlowOptions& options, unsigned phases, int64_t time,
              const std::function<std::vector<PeerWeight>(unsigned phase)>& weights);

}  // namespace tools

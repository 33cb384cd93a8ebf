// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "tools/program/options.h"
#include "tools/program/rank.h"
#include "tools/program/verify.h"

namespace tools {

// One message to each of the unused peers now and then, beside the hot traffic. It does not wait
// for its messages before the next round is due.
class Trickle {
  public:
    Trickle(Rank& rank, const BenchOptions& options, std::vector<unsigned> peers);

    // Count hot messages. @return whether a round is due
    bool due(uint64_t hot_messages) {
        if (options_.trickle == 0 || peers_.empty()) return false;
        since_last_ += hot_messages;
        return since_last_ >= options_.trickle;
    }
    Task send(uint64_t size);
    Task finish();

  private:
    Rank& rank_;
    const BenchOptions& options_;
    const std::vector<unsigned> peers_;
    uint64_t since_last_ = 0;
    Batch batch_;
    MessageBuffer buffer_;
    std::vector<SequenceCheck> sequences_;  // as peers_
};

}  // namespace tools

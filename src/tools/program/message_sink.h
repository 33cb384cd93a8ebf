// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tools/program/rank.h"
#include "tools/program/verify.h"

namespace tools {

// Receives the messages of one stream from any rank until it is stopped. Several receives stay
// posted, served in the order of posting, so that each sender's messages are checked in order.
class MessageSink {
  public:
    struct Options {
        MessageKind stream;
        uint64_t max_size;
        uint64_t seed;
        bool verify;
        unsigned depth = 8;
    };

    MessageSink(Rank& rank, const Options& options);

    // To be spawned once.
    Task run();
    // Ends run() and waits for that; messages still on their way are not waited for.
    Task stop();

  private:
    struct Slot {
        Slot(Rank& rank, uint64_t size) : batch(rank), buffer(size, 1) {}
        Batch batch;
        MessageBuffer buffer;
    };

    void post(Slot& slot);
    void check(const Slot& slot);

    Rank& rank_;
    const Options options_;
    std::deque<Slot> slots_;
    std::vector<SequenceCheck> sequences_;  // by sender
    bool stopping_ = false;
    bool ended_ = false;
};

}  // namespace tools

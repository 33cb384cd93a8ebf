// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ucp/select/protocol_table.h"

// What the order of a program's calls says of a long message that it sends: whether others are
// under way beside it, and to whom.

namespace ucp {

class Endpoint;

// Tells a program that sends one long message, waits for the answer and goes on, from one that
// sends many before it waits, as in windows: the first of many looks like the only one, so what
// counts is how the last turn went. A turn is what a program sends between two receives. Of several
// messages, those whose peers take turns are spread.
class Turns {
  public:
    // A long message is to be sent. It is the first of a turn if the program has received since the
    // one before and waits for nothing now.
    // @param receives  the program's receives so far
    // @param is_waiting  one of them is posted and has not been matched
    // @param is_busy  other messages are under way
    select::Situation next(const Endpoint& peer, uint64_t receives, bool is_waiting, bool is_busy) {
        const bool is_first = receives != receives_ && !is_waiting;
        const bool is_alone = is_first && !had_several_ && !is_busy;
        const bool is_of_last_peer = peer_ == &peer || peer_ == nullptr;
        receives_ = receives;
        had_several_ = !is_first;
        peer_ = &peer;
        if (is_alone) return select::Situation::kAlone;
        return is_of_last_peer ? select::Situation::kAmongOthers : select::Situation::kSpread;
    }

  private:
    uint64_t receives_ = 0;           // at the last long message
    const Endpoint* peer_ = nullptr;  // of that message; it may be gone
    bool had_several_ = false;        // that one was not the first of its turn
};

}  // namespace ucp

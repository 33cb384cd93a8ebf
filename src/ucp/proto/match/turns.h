// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ucp/select/protocol_table.h"

// What the order of a program's calls says of a long message that it sends: whether others are
// under way beside it, and to whom.

namespace ucp {

class Endpoint;

// Tells a program that sends one long message, waits for the answer and goes on, from one that
// sends many before it waits, as in windows: the first of many looks like the only one, so what
// counts is how the last turn went. A turn is what a program sends between two receives. One
// message out for one that comes in is an exchange, and alone in its direction. Of several
// messages, those to more peers in turn than queues stay in caches are spread.
class Turns {
  public:
    struct Place {
        select::Situation situation;
        bool is_exchange = false;  // and so alone
    };

    // The program's receives so far.
    struct Receives {
        uint64_t count = 0;
        size_t awaited = 0;     // of them: those that are posted and have not been matched
        bool is_found = false;  // the last one's message was there when it was posted
    };

    // A long message is to be sent. It is the first of a turn if the program has received since the
    // one before and waits for nothing now. Of an exchange the peer's message may be there before
    // its receive.
    // @param is_busy  other messages are under way
    Place next(const Endpoint& peer, const Receives& receives, bool is_busy) {
        const bool is_near = make_latest(peer);
        const bool is_first = receives.count != receives_ && receives.awaited == 0;
        const bool is_exchange = receives.count == receives_ + 1 && is_near && !is_busy &&
                                 receives.awaited + (receives.is_found ? 1 : 0) == 1;
        const bool is_alone = is_first && !had_several_ && !is_busy;
        receives_ = receives.count;
        had_several_ = !is_first && !is_exchange;
        using select::Situation;
        if (is_alone || is_exchange) return {Situation::kAlone, is_exchange};
        return {is_near ? Situation::kAmongOthers : Situation::kSpread};
    }

  private:
    static constexpr size_t kNear = 8;  // peers

    // The peer is the latest from now on. @return was it among the last few, or is there no other?
    bool make_latest(const Endpoint& peer) {
        auto place = std::ranges::find(peers_, &peer);
        const bool is_near = place != peers_.end() || peers_.front() == nullptr;
        if (place == peers_.end()) --place;  // the one that gives way
        std::rotate(peers_.begin(), place, place + 1);
        peers_.front() = &peer;
        return is_near;
    }

    uint64_t receives_ = 0;  // at the last long message
    // Of the last long messages, the latest first; they may be gone.
    std::array<const Endpoint*, kNear> peers_{};
    bool had_several_ = false;  // the last one was not the first of its turn
};

}  // namespace ucp

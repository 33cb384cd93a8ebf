// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

// What the order of a program's calls says of a long message that it sends: whether others are
// under way beside it.

namespace ucp {

class Endpoint;

// Tells a program that sends one long message, waits for the answer and goes on, from one that
// sends many before it waits, as in windows: the first of many looks like the only one, so what
// counts is how the last turn went. A turn is what a program sends between two receives.
class Turns {
  public:
    enum class Next : uint8_t {
        kAlone,        // likely to be the only one under way
        kExchanged,    // one of a row, each with one receive of the program's before it
        kAmongOthers,  // neither
    };

    // A long message is to be sent. It is the first of a turn if the program has received since the
    // one before and waits for nothing now.
    // @param receives  the program's receives so far
    // @param is_waiting  one of them is posted and has not been matched
    Next next(uint64_t receives, bool is_waiting) {
        const bool is_first = receives != receives_ && !is_waiting;
        const bool follows_one = receives == receives_ + 1;
        const bool is_alone = is_first && !had_several_;
        const bool is_exchanged = follows_one && followed_one_;
        receives_ = receives;
        had_several_ = !is_first;
        followed_one_ = follows_one;
        if (is_alone) return Next::kAlone;
        return is_exchanged ? Next::kExchanged : Next::kAmongOthers;
    }

  private:
    uint64_t receives_ = 0;      // at the last long message
    bool had_several_ = false;   // that one was not the first of its turn
    bool followed_one_ = false;  // there was one receive between it and the one before
};

// The last few peers that something was sent to.
class RecentPeers {
  public:
    // It is the latest from now on. @return whether it was among them before
    bool add(const Endpoint& peer) {
        auto place = std::ranges::find(latest_, &peer);
        const bool is_known = place != latest_.end();
        if (!is_known) place = latest_.end() - 1;
        std::shift_right(latest_.begin(), place + 1, 1);
        latest_.front() = &peer;
        return is_known;
    }

  private:
    std::array<const Endpoint*, 4> latest_{};
};

}  // namespace ucp

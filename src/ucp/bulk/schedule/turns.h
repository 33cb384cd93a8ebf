// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ucs/sys/time.h"

// How the transfers of one endpoint share its paths. Pure.
namespace ucp::bulk {

// Whether short transfers come behind a much longer one. As long as they do, long ones hold little
// of the paths, so that a short one finds few bytes before its own; otherwise paths are kept well
// filled, since programs may be slow to look at completions.
class Mixture {
  public:
    // A transfer is short beside so many times its bytes.
    static constexpr uint64_t kMuchLonger = 16;
    // The next short one is expected so long.
    static constexpr ucs::Duration kExpected = std::chrono::milliseconds(100);

    // @param longest  bytes that the longest of those before it has left. Many that are alike make
    //                 no mixture, whatever they come to together
    void started(uint64_t bytes, uint64_t longest, ucs::Time now) {
        if (longest / kMuchLonger >= bytes) until_ = ucs::deadline(now, kExpected);
    }
    bool is_mixed(ucs::Time now) const { return now < until_; }

  private:
    ucs::Time until_{};
};

// A transfer's share: round robin by bytes. What it had too much is taken off its next turn; one
// post is at most a turn.
class Turn {
  public:
    // Of transfers that are alike the first is to be done first: up to so many bytes are posted
    // whole.
    static constexpr size_t kWhole = 16 << 20;
    // One chain of a longer one, as a path with the default window takes it. So others do not wait
    // long, and memory that several send is still in the cache when the next one's turn comes.
    static constexpr size_t kPart = 2 << 20;
    // Among short ones.
    static constexpr unsigned kShortSlices = 2;

    // @param bytes  of the transfer
    explicit Turn(uint64_t bytes) : is_long_(bytes > kWhole) {}

    static size_t short_bytes(size_t slice) { return kShortSlices * slice; }
    // Bytes of a turn.
    size_t length(bool is_mixed, size_t slice) const {
        if (is_mixed) return short_bytes(slice);
        return std::max(is_long_ ? kPart : kWhole, short_bytes(slice));
    }

    // It has posted so much in a turn of that length. @return whether the turn is over
    bool posted(uint64_t bytes, size_t turn) {
        used_ += bytes;
        if (used_ < turn) return false;
        // What was posted in a longer turn does not count in shorter ones.
        used_ = std::min<uint64_t>(used_ - turn, turn - 1);
        return true;
    }

  private:
    const bool is_long_;
    uint64_t used_ = 0;  // of its turn
};

}  // namespace ucp::bulk

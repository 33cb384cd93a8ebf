// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace ucp {

/**
 * Tells a program that sends one long message, waits for the answer and goes on, from one that
 * sends many before it waits, as in windows: the first of many looks like the only one, so what
 * counts is how the last turn went. A turn is what a program sends between two receives.
 */
class Turns {
  public:
    /**
     * A long message is to be sent. It is the first of a turn if the program has received since the
     * one before and waits for nothing now.
     * @param receives  the program's receives so far
     * @param is_waiting  one of them is posted and has not been matched
     * @return whether this one is likely to be the only one of its turn
     */
    bool is_next_alone(uint64_t receives, bool is_waiting) {
        const bool is_first = receives != receives_ && !is_waiting;
        const bool is_alone = is_first && !had_several_;
        receives_ = receives;
        had_several_ = !is_first;
        return is_alone;
    }

  private:
    uint64_t receives_ = 0;     //!< at the last long message
    bool had_several_ = false;  //!< that one was not the first of its turn
};

}  // namespace ucp

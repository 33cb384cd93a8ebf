// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ucp {

/**
 * Tells a program that sends one long message, waits for the answer and goes on, from one that
 * sends many before it waits, as in windows: the first of many looks like the only one, so what
 * counts is how the last turn went.
 */
class Dialogue {
  public:
    /**
     * A long message is to be sent.
     * @param is_turn  the program has received since the one before
     * @return whether this one is likely to be the only one of its turn
     */
    bool speak(bool is_turn) {
        const bool is_alone = is_turn && !is_burst_;
        is_burst_ = !is_turn;
        return is_alone;
    }

  private:
    bool is_burst_ = false;  //!< the last long message was not the first of its turn
};

}  // namespace ucp

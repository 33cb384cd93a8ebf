// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/tcp/network/options.h"

namespace uct::tcp {

/** What the kernel says of a connection's packets that wait for an answer. */
struct Unanswered {
    unsigned packets = 0;   //!< sent again, or sent as probes, since the last answer
    ucs::Duration quiet{};  //!< since the last packet that acknowledged anything
    static Unanswered of(const Socket& socket);
};

/**
 * Tells a peer whose host is gone from one whose program does not read: the kernel of the second
 * answers, with a window of nought, for as long as it takes.
 *
 * The kernel's own time-out (TCP_USER_TIMEOUT) does not: it ends a connection whose window stays
 * closed although every probe is answered.
 */
class Silence {
  public:
    /** @return whether nothing was answered for so long */
    bool lasts(const Unanswered& unanswered, ucs::Time now, ucs::Duration patience);
    void over() { since_ = ucs::kNever; }

  private:
    /** One packet may be lost: that many are not. */
    static constexpr unsigned kEnough = 2;

    ucs::Time since_ = ucs::kNever;
};

}  // namespace uct::tcp

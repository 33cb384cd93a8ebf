// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ucs/time.h"

namespace ucp {

class Worker;

/**
 * Finds peers that died while nothing was sent to them.
 *
 * Endpoints with error handling mode peer are checked in turn, so many at each interval
 * (UCX_KEEPALIVE_INTERVAL, UCX_KEEPALIVE_NUM_EPS): their scalable lane sends something harmless,
 * and reports as any failing lane does if nobody takes it.
 */
class Keepalive {
  public:
    explicit Keepalive(Worker& worker);

    /** Check the next endpoints if it is time. */
    void advance(ucs::Time now) {
        if (now >= due_) [[unlikely]]
            check(now);
    }
    ucs::Time next_deadline() const { return due_; }

  private:
    void check(ucs::Time now);

    Worker& worker_;
    ucs::Time due_;
    uint32_t last_ = 0;  //!< Endpoint::serial() of the one checked last
};

}  // namespace ucp

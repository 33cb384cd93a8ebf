// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ucp/endpoint/endpoint_table.h"
#include "ucs/sys/time.h"

namespace ucp {

/**
 * Finds peers that died while nothing was sent to them.
 *
 * Endpoints with error handling mode peer are checked in turn, so many at each interval
 * (UCX_KEEPALIVE_INTERVAL, UCX_KEEPALIVE_NUM_EPS): their scalable lane sends something harmless,
 * and reports as any failing lane does if nobody takes it.
 */
class Keepalive {
  public:
    /** @param count  endpoints at each interval; 0: none is ever checked */
    Keepalive(EndpointTable& endpoints, ucs::Duration interval, unsigned count, ucs::Time now)
        : endpoints_(endpoints),
          interval_(interval),
          count_(count),
          due_(count == 0 ? ucs::kNever : ucs::deadline(now, interval)) {}

    /** Check the next endpoints if it is time. */
    void advance(ucs::Time now) {
        if (now >= due_) [[unlikely]]
            check(now);
    }
    ucs::Time next_deadline() const { return due_; }

  private:
    void check(ucs::Time now);

    EndpointTable& endpoints_;
    const ucs::Duration interval_;
    const unsigned count_;
    ucs::Time due_;
    uint32_t last_ = 0;  //!< Endpoint::serial() of the one checked last
};

}  // namespace ucp

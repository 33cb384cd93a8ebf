// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ucp/endpoint/endpoint_table.h"
#include "ucs/sys/time.h"

namespace ucp {

// Finds peers that died while nothing was sent to them.
//
// Endpoints with error handling mode peer are checked in turn, so many at each interval
// (UCX_KEEPALIVE_INTERVAL, UCX_KEEPALIVE_NUM_EPS): their scalable lane sends something harmless,
// and reports as any failing lane does if nobody takes it. While requests wait for answers, peers
// are greeted as well, so that who has closed its endpoint can give its own.
class Keepalive {
  public:
    // @param count  endpoints at each interval; 0: none is ever checked
    Keepalive(EndpointTable& endpoints, ucs::Duration interval, unsigned count, ucs::Time now)
        : endpoints_(endpoints),
          interval_(interval),
          count_(count),
          due_(count == 0 ? ucs::kNever : ucs::deadline(now, interval)) {}

    // Check the next endpoints if it is time.
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
    uint64_t last_ = 0;  // Endpoint::serial() of the one checked last
};

inline void Keepalive::check(ucs::Time now) {
    due_ = ucs::deadline(now, interval_);
    unsigned checked = 0;
    uint64_t last = 0;
    // Endpoints are listed in the order of their serial numbers.
    endpoints_.for_each([&](Endpoint& endpoint) {
        if (endpoint.serial() <= last_ || checked == count_) return;
        if (!endpoint.reports_peer_errors() || endpoint.is_failed()) return;
        const Lane lane = endpoint.scalable_lane();
        if ((lane.attributes.capabilities & uct::kCheckPeer) == 0) return;
        ++checked;
        last = endpoint.serial();
        const ucs_status_t status = lane.endpoint.check(nullptr);
        // One without room has something under way, which finds out by itself.
        if (status != UCS_OK && status != UCS_INPROGRESS && status != UCS_ERR_NO_RESOURCE) {
            endpoint.fail(status);
        } else if (status != UCS_ERR_NO_RESOURCE && endpoint.has_greeted() &&
                   endpoint.requests().has_named()) {
            // One that has closed its endpoint has nothing to answer with, until it is greeted.
            endpoint.greet_again();
        }
    });
    last_ = last;  // 0: from the start
}

}  // namespace ucp

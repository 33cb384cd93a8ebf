// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cassert>

#include "ucp/base/request.h"
#include "ucp/endpoint/control_queue.h"
#include "ucp/endpoint/lane_wait.h"

namespace ucp {

class Endpoint;

// What of an endpoint waits: requests for the lane that the first of them needs, control messages
// for the scalable lane. Made when an endpoint first has to wait.
class Backlog {
  public:
    Backlog(Endpoint& endpoint, uct::Pending::Progress serve_requests)
        : controls(endpoint), request_wait(endpoint, serve_requests) {}
    // No request waits.
    ~Backlog() {
        assert(requests.empty());
        request_wait.end();
    }
    Backlog(const Backlog&) = delete;

    RequestQueue requests;
    ControlQueue controls;
    LaneWait request_wait;
};

}  // namespace ucp

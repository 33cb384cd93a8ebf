// SPDX-License-Identifier: BSD-3-Clause
#pragma once

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
    ~Backlog();

    RequestQueue requests;
    ControlQueue controls;
    LaneWait request_wait;
};

// Tells the trace that the first request of the endpoint waits, or that none does any more.
void trace_stall(const Endpoint& endpoint, bool begins);

}  // namespace ucp

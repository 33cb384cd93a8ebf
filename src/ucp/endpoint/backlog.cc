// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/backlog.h"

#include <cassert>

#include <fmt/format.h>

#include "ucp/endpoint/endpoint.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"

namespace ucp {

Backlog::~Backlog() {
    assert(requests.empty());
    request_wait.end();
}

void trace_stall(const Endpoint& endpoint, bool begins) {
    if (begins) {
        SWIFTLANE_PROBE(stall_begin, &endpoint, endpoint.remote_uuid());
    } else {
        SWIFTLANE_PROBE(stall_end, &endpoint);
    }
    Trace* const trace = Trace::active();
    if (trace == nullptr) return;
    if (!begins) {
        trace->end("stall", "stall", endpoint.local_uuid(), &endpoint);
        return;
    }
    trace->begin("stall", "stall", endpoint.local_uuid(), &endpoint,
                 {{"peer", fmt::format("{:016x}", endpoint.remote_uuid())}});
}

}  // namespace ucp

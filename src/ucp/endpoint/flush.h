// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/base/request.h"

// Flush: a request that takes its place in the send queue, so that all before it is posted, then
// flushes every lane the endpoint has, old and new during a switch, and then waits for the
// answers of operations that end at the peer.
namespace ucp {

class Endpoint;

// Make a request a flush of `endpoint`; start it with Endpoint::submit() or start().
void make_flush(Request& request, Endpoint& endpoint);

// A flush of the library's own, to be started; `done` is called at its end.
// @return null if there is no memory
Request* make_internal_flush(Endpoint& endpoint, void* user_data, void (*done)(Request& flush));

// Which lane the flush needs next.
bool flush_wants_dedicated(Request& request);

// An operation that ends at the peer has ended.
void flush_remote_finished(Endpoint& endpoint);
void flush_endpoint_failed(Endpoint& endpoint, ucs_status_t status);

}  // namespace ucp

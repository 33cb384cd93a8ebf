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

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "ucp/core/request.h"
#include "ucp/core/wire.h"

// Eager messages: the data travels with, or right behind, the envelope.
//
// The send side of tag matching, and what arrives of it. Matching itself and the receive calls are
// tag/'s; the two meet in TagEngine (tag/engine.h):
//   arriving message -> TagEngine::take_expected() -> a receive's request, else
//                       TagEngine::keep() of a TagMessage that owns a copy of the data
//   receive call     -> finds a TagMessage -> eager_receive_kept() for the eager kinds.
namespace ucp {

class Endpoint;
class Worker;
struct TagMessage;

void add_eager_tag_handlers(Worker& worker);

/** Post functions for Request::post; the part is a TagSend. */
ucs_status_t post_tag_eager(Request& request, const Lane& lane);

/** The largest message that goes eagerly on this endpoint's lanes, from UCX_RNDV_THRESH or cost. */
size_t tag_rndv_threshold(Endpoint& endpoint, bool contiguous);

/**
 * Give a receive (a request with its TagReceive part opened) the data of an eager message that was
 * kept, acknowledge it if its sender asked, and free the message. Completes the receive, or leaves
 * it waiting for the later fragments.
 */
void eager_receive_kept(Worker& worker, Request& receive, TagMessage& message);

}  // namespace ucp

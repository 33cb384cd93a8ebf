// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/base/request.h"
#include "ucp/worker/worker.h"

namespace ucp {

/** The request will be answered by the peer: it gets a name, and a reference that the answer drops.
 */
inline void await_answer(Request& request) {
    ++request.count;
    request.worker->name_request(request);
}

/** The answer is here. May end the request. */
inline void answered(Request& request, ucs_status_t status) {
    request.worker->unname_request(request);
    request.complete(status);
}

}  // namespace ucp

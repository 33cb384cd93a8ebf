// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/core/request.h"
#include "ucp/core/worker.h"

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

/**
 * The result of posting the question, for Request::post: after an error nobody will answer.
 * @return `status`
 */
inline ucs_status_t answer_lost(Request& request, ucs_status_t status) {
    if (status < 0 && status != UCS_ERR_NO_RESOURCE) {
        request.worker->unname_request(request);
        --request.count;
    }
    return status;
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/api/ucp.h"

// The opaque C handles are pointers to the C++ objects. These casts are the only place that says
// so.
namespace ucp {

class Context;
class Endpoint;
class Worker;

inline Context& unwrap(ucp_context_h handle) {
    return *reinterpret_cast<Context*>(handle);
}
inline Worker& unwrap(ucp_worker_h handle) {
    return *reinterpret_cast<Worker*>(handle);
}
inline Endpoint& unwrap(ucp_ep_h handle) {
    return *reinterpret_cast<Endpoint*>(handle);
}

inline ucp_context_h wrap(Context* context) {
    return reinterpret_cast<ucp_context_h>(context);
}
inline ucp_worker_h wrap(Worker* worker) {
    return reinterpret_cast<ucp_worker_h>(worker);
}
inline ucp_ep_h wrap(Endpoint* endpoint) {
    return reinterpret_cast<ucp_ep_h>(endpoint);
}

}  // namespace ucp

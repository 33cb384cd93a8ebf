// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucp/api/ucp.h"

struct ucpx_stream_op;  // ucpx.h

// The opaque C handles are pointers to the C++ objects. These casts are the only place that says
// so.
namespace ucp {

namespace wireup {
class Listener;
struct ConnectionRequest;
}  // namespace wireup

class Context;
class Endpoint;
class Memory;
class RemoteMemory;
class Worker;
struct StreamOperation;
struct TagMessage;

inline Context& unwrap(ucp_context_h handle) {
    return *reinterpret_cast<Context*>(handle);
}
inline Worker& unwrap(ucp_worker_h handle) {
    return *reinterpret_cast<Worker*>(handle);
}
inline Endpoint& unwrap(ucp_ep_h handle) {
    return *reinterpret_cast<Endpoint*>(handle);
}
inline Memory& unwrap(ucp_mem_h handle) {
    return *reinterpret_cast<Memory*>(handle);
}
inline RemoteMemory& unwrap(ucp_rkey_h handle) {
    return *reinterpret_cast<RemoteMemory*>(handle);
}
inline TagMessage& unwrap(ucp_tag_message_h handle) {
    return *reinterpret_cast<TagMessage*>(handle);
}
inline StreamOperation& unwrap(ucpx_stream_op* handle) {
    return *reinterpret_cast<StreamOperation*>(handle);
}

inline wireup::Listener& unwrap(ucp_listener_h handle) {
    return *reinterpret_cast<wireup::Listener*>(handle);
}
inline wireup::ConnectionRequest& unwrap(ucp_conn_request_h handle) {
    return *reinterpret_cast<wireup::ConnectionRequest*>(handle);
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
inline ucp_mem_h wrap(Memory* memory) {
    return reinterpret_cast<ucp_mem_h>(memory);
}
inline ucp_rkey_h wrap(RemoteMemory* remote) {
    return reinterpret_cast<ucp_rkey_h>(remote);
}
inline ucp_tag_message_h wrap(TagMessage* message) {
    return reinterpret_cast<ucp_tag_message_h>(message);
}
inline ucpx_stream_op* wrap(StreamOperation* operation) {
    return reinterpret_cast<ucpx_stream_op*>(operation);
}
inline ucp_listener_h wrap(wireup::Listener* listener) {
    return reinterpret_cast<ucp_listener_h>(listener);
}
inline ucp_conn_request_h wrap(wireup::ConnectionRequest* request) {
    return reinterpret_cast<ucp_conn_request_h>(request);
}

}  // namespace ucp

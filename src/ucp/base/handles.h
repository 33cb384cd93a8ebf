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

// Which object stands behind which handle; nobody calls these.
Context* object_of(ucp_context_h);
Worker* object_of(ucp_worker_h);
Endpoint* object_of(ucp_ep_h);
Memory* object_of(ucp_mem_h);
RemoteMemory* object_of(ucp_rkey_h);
TagMessage* object_of(ucp_tag_message_h);
StreamOperation* object_of(ucpx_stream_op*);
wireup::Listener* object_of(ucp_listener_h);
wireup::ConnectionRequest* object_of(ucp_conn_request_h);
ucp_context_h handle_of(Context*);
ucp_worker_h handle_of(Worker*);
ucp_ep_h handle_of(Endpoint*);
ucp_mem_h handle_of(Memory*);
ucp_rkey_h handle_of(RemoteMemory*);
ucp_tag_message_h handle_of(TagMessage*);
ucpx_stream_op* handle_of(StreamOperation*);
ucp_listener_h handle_of(wireup::Listener*);
ucp_conn_request_h handle_of(wireup::ConnectionRequest*);

template <typename Handle>
auto& unwrap(Handle* handle) {
    return *reinterpret_cast<decltype(object_of(handle))>(handle);
}
template <typename Object>
auto wrap(Object* object) {
    return reinterpret_cast<decltype(handle_of(object))>(object);
}

}  // namespace ucp

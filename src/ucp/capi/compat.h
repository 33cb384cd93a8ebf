// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <new>
#include <type_traits>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/runtime/gate.h"

// Helpers of the C functions: the lock, parameters for the older calls, and calls that wait.
namespace ucp {

class Worker;

// The body of a C function: called with the object behind the handle, under its lock.
// @return what the body returns, a status or a status as a pointer; UCS_ERR_NO_MEMORY if memory
//     runs out in it
template <typename Handle, typename Body>
auto locked(Handle* handle, Body body) -> decltype(body(unwrap(handle))) try {
    auto& object = unwrap(handle);
    GateLock lock(object.gate());
    return body(object);
} catch (const std::bad_alloc&) {
    if constexpr (std::is_pointer_v<decltype(body(unwrap(handle)))>) {
        return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    } else {
        return UCS_ERR_NO_MEMORY;
    }
}

// wants(field): has the program asked for that part of the attributes?
template <typename Attributes>
auto wanted_of(const Attributes* attributes) {
    return [mask = attributes->field_mask](uint64_t field) { return (mask & field) != 0; };
}

// Parameters of ucp_*_nbx for an older call: a callback without user data, a datatype. The
// callback travels as the user data of one that passes on.
class OldParams {
  public:
    OldParams& datatype(ucp_datatype_t datatype) {
        param_.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        param_.datatype = datatype;
        return *this;
    }
    OldParams& flags(unsigned flags) {
        param_.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param_.flags = flags;
        return *this;
    }
    OldParams& request(void* request) {
        param_.op_attr_mask |= UCP_OP_ATTR_FIELD_REQUEST;
        param_.request = request;
        return *this;
    }
    OldParams& send_callback(ucp_send_callback_t callback) {
        if (callback == nullptr) return *this;
        param_.cb.send = [](void* request, ucs_status_t status, void* user_data) {
            reinterpret_cast<ucp_send_callback_t>(user_data)(request, status);
        };
        return pass_on(reinterpret_cast<void*>(callback));
    }
    OldParams& stream_callback(ucp_stream_recv_callback_t callback) {
        if (callback == nullptr) return *this;
        param_.cb.recv_stream = [](void* request, ucs_status_t status, size_t length,
                                   void* user_data) {
            reinterpret_cast<ucp_stream_recv_callback_t>(user_data)(request, status, length);
        };
        return pass_on(reinterpret_cast<void*>(callback));
    }

    const ucp_request_param_t* get() const { return &param_; }

  private:
    OldParams& pass_on(void* callback) {
        param_.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        param_.user_data = callback;
        return *this;
    }

    ucp_request_param_t param_{};
};

Context& context_of(ucp_worker_h worker);
Context& context_of(const Endpoint& endpoint);

// Progress until the operation is over, and give its request back.
ucs_status_t wait_for(Worker& worker, ucs_status_ptr_t operation);

}  // namespace ucp

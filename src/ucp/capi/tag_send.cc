// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/api/ucp.h"
#include "ucp/capi/compat.h"
#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"
#include "ucp/proto/eager/eager.h"

using namespace ucp;

namespace {

constexpr auto kShortId = static_cast<uint8_t>(AmId::kTagShort);

[[gnu::noinline]] ucs_status_ptr_t send_any(Endpoint& endpoint, const void* buffer, size_t count,
                                            ucp_tag_t tag, TagMode mode,
                                            const ucp_request_param_t* param) {
    Worker& worker = endpoint.worker();
    WorkerLock lock(worker);
    if (worker.has_threads()) worker.touch_if_armed(endpoint, count);
    return tag_send(endpoint, buffer, count, tag, mode, OpParams(param));
}

}  // namespace

// The path of short messages: nothing is tested here that the limit of the endpoint or the gate of
// the worker can say.
ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                  const ucp_request_param_t* param) {
    Endpoint& endpoint = unwrap(ep);
    Worker& worker = endpoint.worker();
    size_t length = count;
    const uint32_t mask = param->op_attr_mask;
    if ((mask & (UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) != 0) {
        if ((mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) != 0 ||
            (param->datatype & UCP_DATATYPE_CLASS_MASK) != UCP_DATATYPE_CONTIG) [[unlikely]] {
            if ((worker.gate() & Worker::kGateTracker) != 0) worker.touch(endpoint, count);
            return send_any(endpoint, buffer, count, tag, TagMode::kNormal, param);
        }
        length = count * contig_element_size(param->datatype);
    }
    if ((worker.gate() & Worker::kGateTracker) != 0) [[unlikely]]
        worker.touch(endpoint, length);
    if (endpoint.fits_short(length)) [[likely]] {
        const ucs_status_t status =
            endpoint.tx_lane().am_short(kShortId, tag, buffer, static_cast<uint32_t>(length));
        if (status != UCS_ERR_NO_RESOURCE) [[likely]]
            return UCS_STATUS_PTR(status);
    }
    return send_any(endpoint, buffer, count, tag, TagMode::kNormal, param);
}

ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                       const ucp_request_param_t* param) {
    Endpoint& endpoint = unwrap(ep);
    WorkerLock lock(endpoint.worker());
    endpoint.worker().touch_if_armed(endpoint, count);
    return tag_send(endpoint, buffer, count, tag, TagMode::kSync, OpParams(param));
}

// --- older forms
// -----------------------------------------------------------------------------------

ucs_status_ptr_t ucp_tag_send_nb(ucp_ep_h ep, const void* buffer, size_t count,
                                 ucp_datatype_t datatype, ucp_tag_t tag, ucp_send_callback_t cb) {
    return ucp_tag_send_nbx(ep, buffer, count, tag,
                            OldParams().datatype(datatype).send_callback(cb).get());
}

ucs_status_t ucp_tag_send_nbr(ucp_ep_h ep, const void* buffer, size_t count,
                              ucp_datatype_t datatype, ucp_tag_t tag, void* req) {
    // The macro evaluates its argument more than once.
    const ucs_status_ptr_t operation =
        ucp_tag_send_nbx(ep, buffer, count, tag, OldParams().datatype(datatype).request(req).get());
    return UCS_PTR_STATUS(operation);
}

ucs_status_ptr_t ucp_tag_send_sync_nb(ucp_ep_h ep, const void* buffer, size_t count,
                                      ucp_datatype_t datatype, ucp_tag_t tag,
                                      ucp_send_callback_t cb) {
    return ucp_tag_send_sync_nbx(ep, buffer, count, tag,
                                 OldParams().datatype(datatype).send_callback(cb).get());
}

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/batch/batch.h"

#include <cstring>
#include <optional>
#include <vector>

#include "ucp/base/handles.h"
#include "ucp/worker/worker.h"

using namespace ucp;

namespace {

ucs_status_ptr_t batch_nbx(ucp_ep_h ep, const ucpx_batch_t* batch, const ucp_request_param_t* param,
                           bool is_put) {
    Endpoint& endpoint = unwrap(ep);
    if (batch == nullptr || param == nullptr ||
        (batch->num_pieces != 0 &&
         (batch->pieces == nullptr || batch->entry_size < sizeof(ucpx_piece_t))) ||
        !endpoint.worker().context().has_feature(UCP_FEATURE_RMA))
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    std::span pieces(batch->pieces, batch->num_pieces);
    // Callers compiled with a later header have longer entries.
    std::vector<ucpx_piece_t> known;
    if (batch->num_pieces != 0 && batch->entry_size != sizeof(ucpx_piece_t)) {
        known.resize(batch->num_pieces);
        const auto* entries = reinterpret_cast<const std::byte*>(batch->pieces);
        for (size_t i = 0; i < known.size(); ++i) {
            std::memcpy(&known[i], entries + i * batch->entry_size, sizeof(ucpx_piece_t));
        }
        pieces = known;
    }
    const ucs_status_t status = check_pieces(endpoint, pieces);
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    std::optional<uint64_t> notification;
    if ((batch->field_mask & UCPX_BATCH_FIELD_NOTIFICATION) != 0)
        notification = batch->notification;
    WorkerLock lock(endpoint.worker());
    return start_batch(endpoint, pieces, is_put, notification, OpParams(param));
}

}  // namespace

ucs_status_ptr_t ucpx_put_batch_nbx(ucp_ep_h ep, const ucpx_batch_t* batch,
                                    const ucp_request_param_t* param) {
    return batch_nbx(ep, batch, param, true);
}

ucs_status_ptr_t ucpx_get_batch_nbx(ucp_ep_h ep, const ucpx_batch_t* batch,
                                    const ucp_request_param_t* param) {
    return batch_nbx(ep, batch, param, false);
}

ucs_status_t ucpx_worker_set_notify_handler(ucp_worker_h worker_h, ucpx_notify_callback_t cb,
                                            void* arg) {
    Worker& worker = unwrap(worker_h);
    WorkerLock lock(worker);
    worker.notify_handler() = {cb, arg};
    return UCS_OK;
}

size_t ucpx_request_test_batch(const ucs_status_ptr_t* requests, size_t num_requests,
                               ucs_status_t* statuses) {
    size_t ended = 0;
    for (size_t i = 0; i < num_requests; ++i) {
        ucs_status_t status = UCS_PTR_RAW_STATUS(requests[i]);
        if (UCS_PTR_IS_PTR(requests[i])) {
            const Request& request = Request::from_handle(requests[i]);
            status = request.is_finished() ? request.status : UCS_INPROGRESS;
        }
        if (status != UCS_INPROGRESS) ++ended;
        if (statuses != nullptr) statuses[i] = status;
    }
    return ended;
}

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/batch.h"

#include "ucp/bulk/notification.h"
#include "ucp/core/flush.h"
#include "ucp/core/handles.h"
#include "ucp/core/worker.h"
#include "ucp/mem/memory.h"
#include "ucp/proto/rma.h"

namespace ucp {
namespace {

/**
 * The part of a batch's request. Its pieces are requests of their own, which do not outlive it;
 * after them, for a put, comes a flush: the end of a put says only that its bytes have left.
 */
struct BatchPart {
    Endpoint* endpoint;
    bool is_put;
    bool notifies;
    uint64_t notification;
    size_t under_way = 1;  //!< pieces, and one for the call that starts them
};

Request& batch_of(Request& part) {
    return *static_cast<Request*>(part.user_data);
}

void finish_batch(Request& batch, ucs_status_t status) {
    if (batch.status == UCS_OK) batch.status = status;
    const BatchPart& part = batch.part<BatchPart>();
    if (batch.status == UCS_OK && part.notifies) {
        send_notification(*part.endpoint, part.notification);
    }
    batch.complete(UCS_OK);
}

Request* make_part(Request& batch, void (*on_finish)(Request&)) {
    Request* request = batch.worker->allocate_request();
    if (request == nullptr) return nullptr;
    request->callback_kind = Request::CallbackKind::kInternal;
    request->on_finish.internal = on_finish;
    request->user_data = &batch;
    return request;
}

void pieces_done(Request& batch) {
    Endpoint& endpoint = *batch.part<BatchPart>().endpoint;
    if (!batch.part<BatchPart>().is_put || batch.status != UCS_OK) {
        finish_batch(batch, UCS_OK);
        return;
    }
    Request* flush =
        make_part(batch, [](Request& request) { finish_batch(batch_of(request), request.status); });
    if (flush == nullptr) {
        finish_batch(batch, UCS_ERR_NO_MEMORY);
        return;
    }
    make_flush(*flush, endpoint);
    endpoint.start(*flush);
}

void drop_part(Request& batch, ucs_status_t status) {
    if (batch.status == UCS_OK) batch.status = status;
    if (--batch.part<BatchPart>().under_way == 0) pieces_done(batch);
}

void start_pieces(Request& batch, std::span<const ucpx_piece_t> pieces) {
    BatchPart& part = batch.part<BatchPart>();
    for (const ucpx_piece_t& piece : pieces) {
        if (piece.length == 0) continue;
        Request* request = make_part(
            batch, [](Request& request) { drop_part(batch_of(request), request.status); });
        if (request == nullptr) {
            batch.status = UCS_ERR_NO_MEMORY;
            break;
        }
        ++part.under_way;
        begin_rma(*request, *part.endpoint,
                  {.buffer = static_cast<std::byte*>(piece.local_addr),
                   .length = piece.length,
                   .address = piece.remote_addr,
                   .remote = &unwrap(piece.rkey),
                   .user_memory = &unwrap(piece.memh)},
                  part.is_put);
        part.endpoint->start(*request);
        if (batch.status != UCS_OK) break;
    }
    drop_part(batch, UCS_OK);
}

}  // namespace

ucs_status_t check_pieces(const Endpoint& endpoint, std::span<const ucpx_piece_t> pieces) {
    const Context& context = endpoint.worker().context();
    size_t total = 0;
    for (const ucpx_piece_t& piece : pieces) {
        if (piece.memh == nullptr || piece.rkey == nullptr) return UCS_ERR_INVALID_PARAM;
        const Memory& memory = unwrap(piece.memh);
        if (&memory.context() != &context ||
            !memory.covers(reinterpret_cast<uintptr_t>(piece.local_addr), piece.length) ||
            !unwrap(piece.rkey).covers(piece.remote_addr, piece.length) ||
            __builtin_add_overflow(total, piece.length, &total))
            return UCS_ERR_INVALID_PARAM;
    }
    return UCS_OK;
}

ucs_status_ptr_t start_batch(Endpoint& endpoint, std::span<const ucpx_piece_t> pieces, bool is_put,
                             std::optional<uint64_t> notification, const OpParams& params) {
    if (endpoint.is_failed()) return UCS_STATUS_PTR(endpoint.status());
    Worker& worker = endpoint.worker();
    Request* request = worker.begin_request(params, Request::CallbackKind::kSend);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    request->emplace<BatchPart>(
        BatchPart{&endpoint, is_put, notification.has_value(), notification.value_or(0)});
    start_pieces(*request, pieces);
    return worker.end_call(*request, params);
}

}  // namespace ucp

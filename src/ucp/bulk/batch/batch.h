// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <vector>

#include "ucp/api/ucpx.h"
#include "ucp/base/request.h"
#include "ucp/proto/rma/rma.h"

// Batches of ucpx.h: many pieces as one request.
namespace ucp {

// The caller's pieces, each of which lies within its handles.
struct CheckedPieces {
    std::span<const ucpx_piece_t> pieces;
    size_t total;  // bytes
};

// @param needs_memory  a piece without a handle of the local memory is refused
// @return UCS_ERR_INVALID_PARAM unless every piece lies within its handles
ucs_status_t check_pieces(const OneSided& one_sided, std::span<const ucpx_piece_t> pieces,
                          bool needs_memory, CheckedPieces* checked);

// The pieces of a put or get with the datatype UCP_DATATYPE_SGL.
// @param remote  UCP_REMOTE_ADDR_INVALID and UCP_RKEY_INVALID are the caller's affair
// @return UCS_ERR_INVALID_PARAM unless both halves are there and fit; UCS_ERR_UNSUPPORTED for
//         repetitions
ucs_status_t pieces_of_list(const void* local, size_t count, const ucp_request_param_t& param,
                            std::vector<ucpx_piece_t>* pieces);

// Start a batch; its list is copied as far as the caller's is not done with.
// @param teller  the program's request, which tells the peer (Notifier::begin()); the batch is
//                before it. Null: nobody is told
ucs_status_ptr_t start_batch(OneSided& one_sided, Endpoint& endpoint, const CheckedPieces& checked,
                             bool is_put, Request* teller, const OpParams& params);

}  // namespace ucp

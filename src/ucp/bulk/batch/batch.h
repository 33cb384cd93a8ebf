// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>

#include "ucp/api/ucpx.h"
#include "ucp/base/request.h"
#include "ucp/proto/rma/rma.h"

// Batches of ucpx.h: many pieces as one request.
namespace ucp {

/** @return UCS_ERR_INVALID_PARAM unless every piece lies within its handles */
ucs_status_t check_pieces(const OneSided& one_sided, std::span<const ucpx_piece_t> pieces);

/** Start a batch whose pieces have been checked; they are copied as far as that is needed. */
ucs_status_ptr_t start_batch(OneSided& one_sided, Endpoint& endpoint,
                             std::span<const ucpx_piece_t> pieces, bool is_put,
                             std::optional<uint64_t> notification, const OpParams& params);

}  // namespace ucp

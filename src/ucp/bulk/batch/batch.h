// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>

#include "ucp/api/ucpx.h"
#include "ucp/base/request.h"

// Batches of ucpx.h: many pieces as one request.
namespace ucp {

class Endpoint;

/** @return UCS_ERR_INVALID_PARAM unless every piece lies within its handles */
ucs_status_t check_pieces(const Endpoint& endpoint, std::span<const ucpx_piece_t> pieces);

/** Start a batch whose pieces have been checked; they are copied as far as that is needed. */
ucs_status_ptr_t start_batch(Endpoint& endpoint, std::span<const ucpx_piece_t> pieces, bool is_put,
                             std::optional<uint64_t> notification, const OpParams& params);

}  // namespace ucp

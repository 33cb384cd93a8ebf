// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>

#include "ucp/bulk/engine/engine.h"
#include "ucp/endpoint/endpoint.h"

// Whether a message goes by rendezvous, from UCX_RNDV_THRESH or from what the lanes cost.
namespace ucp {

/** From which length on a message goes by rendezvous if it is alone, in bytes. */
size_t rndv_threshold(const bulk::Engine& bulk, Endpoint& endpoint,
                      const std::optional<size_t>& configured);

enum class Announced : uint8_t { kNo, kYes, kUnlessWaitedFor };

/**
 * Does a message of that length go by rendezvous? Some lengths go either way: it depends on whether
 * the program is likely to wait for the message.
 */
Announced is_announced(const bulk::Engine& bulk, Endpoint& endpoint, size_t length,
                       const std::optional<size_t>& configured);

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "ucp/mem/remote_memory.h"

namespace ucp::bulk {

/** Queue pairs for bulk that an endpoint has on one rail, at most. */
inline constexpr unsigned kMaxQueuePairsPerRail = 8;
/** Paths of one endpoint, at most: its own lane, the rails, and queue pairs on all of them. */
inline constexpr size_t kMaxPaths = RemoteMemory::kMaxKeys * (1 + kMaxQueuePairsPerRail);
/** Slices of one chain, at most. */
inline constexpr size_t kMaxChain = 64;

}  // namespace ucp::bulk

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/path_group.h"

#include "ucp/bulk/threads/shared_queue.h"

namespace ucp::bulk {

PathGroup::PathGroup(Endpoint& owner, RunQueue& queue) : endpoint(owner), run_queue(queue) {}
PathGroup::~PathGroup() = default;

}  // namespace ucp::bulk

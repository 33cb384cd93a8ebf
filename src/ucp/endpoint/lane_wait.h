// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/interface.h"

namespace ucp {

class Endpoint;

// An endpoint's place in the queue of a transport endpoint that has no room.
class LaneWait : public uct::Pending {
  public:
    LaneWait(Endpoint& owner, Progress progress) : uct::Pending(progress), endpoint(owner) {}

    // Wait on the lane.
    // @return false if the lane has room by now, so that it is worth another try at once
    bool begin(uct::Endpoint& on) {
        if (on.pending_add(this) != UCS_OK) return false;
        lane = &on;
        return true;
    }
    void end() {
        if (lane == nullptr || serving) return;
        lane->pending_remove(this);
        lane = nullptr;
    }

    Endpoint& endpoint;
    uct::Endpoint* lane = nullptr;  // null: not waiting
    bool serving = false;           // inside the transport's call: it may not be removed or added
};

}  // namespace ucp

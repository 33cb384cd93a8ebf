// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <boost/intrusive/list.hpp>

#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "uct/api/interface.h"

namespace ucp {

class Endpoint;

// A message between workers that waits for room on the scalable lane. Owns a copy of its bytes.
struct ControlMessage : boost::intrusive::list_base_hook<> {
    enum class Then : uint8_t { kNothing, kGreeted, kMarked };

    static ControlMessage* make(AmId id, std::span<const std::byte> message, Then then);
    static void free(ControlMessage* message);
    // Send one now. Over shared memory it takes no buffer at either end if it is short.
    // @return as uct::Endpoint::am_short()
    static ucs_status_t post(const Lane& lane, AmId id, std::span<const std::byte> message);

    std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }

    AmId id{};
    Then then{};  // what its posting brings about
    uint32_t length = 0;
};

using ControlQueue =
    boost::intrusive::list<ControlMessage, boost::intrusive::constant_time_size<false>>;

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

// What of an endpoint waits: requests for the lane that the first of them needs, control messages
// for the scalable lane. Made when an endpoint first has to wait.
class Backlog {
  public:
    Backlog(Endpoint& endpoint, uct::Pending::Progress serve_requests,
            uct::Pending::Progress serve_controls)
        : request_wait(endpoint, serve_requests), control_wait(endpoint, serve_controls) {}
    // Both queues are empty.
    ~Backlog();

    // So often on end the first control message may find no memory until its endpoint fails: with
    // the worker's pauses between them, a second.
    static constexpr unsigned kMostTries = 100;

    RequestQueue requests;
    ControlQueue controls;
    unsigned failed_tries = 0;  // of the first control message
    bool is_starved = false;    // it has found no memory, and waits for the worker's next try
    LaneWait request_wait;
    LaneWait control_wait;
};

// Tells the trace that the first request of the endpoint waits, or that none does any more.
void trace_stall(const Endpoint& endpoint, bool begins);

}  // namespace ucp

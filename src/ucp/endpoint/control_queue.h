// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <boost/intrusive/list.hpp>

#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "ucp/endpoint/lane_wait.h"

namespace ucp {

class Endpoint;

// A message between workers that waits for room on the scalable lane. Owns a copy of its bytes.
struct ControlMessage : boost::intrusive::list_base_hook<> {
    // What its posting brings about (Endpoint::control_posted()).
    enum class Then : uint8_t { kNothing, kGreeted, kMarked };

    static ControlMessage* make(AmId id, std::span<const std::byte> message, Then then);
    static void free(ControlMessage* message);
    // Send one now. Over shared memory it takes no buffer at either end if it is short.
    // @return as uct::Endpoint::am_short()
    static ucs_status_t post(const Lane& lane, AmId id, std::span<const std::byte> message);

    std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }

    AmId id{};
    Then then{};
    uint32_t length = 0;
};

// The control messages of an endpoint that wait for room on its scalable lane, or for memory; they
// are posted in their order. A peer that is to hear of a failure (Endpoint::reset()) is told by
// the same place in the lane's queue.
class ControlQueue {
  public:
    // So often on end the first message may find no memory until its endpoint fails: with the
    // worker's pauses between them, a second.
    static constexpr unsigned kMostTries = 100;

    explicit ControlQueue(Endpoint& endpoint) : wait_(*this, endpoint) {}
    // It is empty.
    ~ControlQueue();
    ControlQueue(const ControlQueue&) = delete;

    bool is_empty() const { return messages_.empty(); }
    bool is_waiting() const { return wait_.lane != nullptr; }
    bool is_serving() const { return wait_.serving; }
    // The first message has found no memory: it waits for the worker to try again.
    bool is_starved() const { return is_starved_; }

    // Throws std::bad_alloc; the message is not added then.
    void add(AmId id, std::span<const std::byte> message, ControlMessage::Then then);
    // Post what there is room for.
    // @return UCS_OK: nothing is left; UCS_ERR_NO_RESOURCE; UCS_ERR_NO_MEMORY
    ucs_status_t post();
    // The same; what finds no room waits for it.
    void pump();
    // It is starved: try again.
    void retry();
    // Wait for room to tell the peer of a failure.
    // @return false if the lane has room by now
    bool wait_to_tell();
    void end_waiting() { wait_.end(); }
    // The endpoint has failed: nothing is posted any more.
    void drop();

  private:
    struct Wait : LaneWait {
        Wait(ControlQueue& waiting, Endpoint& endpoint)
            : LaneWait(endpoint, serve), queue(waiting) {}
        ControlQueue& queue;
    };

    ucs_status_t post_first();
    // The lane has room again.
    static ucs_status_t serve(uct::Pending* pending);

    boost::intrusive::list<ControlMessage, boost::intrusive::constant_time_size<false>> messages_;
    unsigned failed_tries_ = 0;  // of the first message
    bool is_starved_ = false;
    Wait wait_;
};

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucp/runtime/deferred_work.h"
#include "ucp/runtime/gate.h"
#include "ucp/runtime/interface_set.h"
#include "ucp/runtime/request_pool.h"
#include "ucs/runtime/runtime.h"

namespace ucp {

class Endpoint;

// What the driver of dedicated lanes is told about endpoints, by those parts that make and end
// them.
class LaneEvents {
  public:
    // An endpoint was given to the user, or got its peer.
    virtual void endpoint_created(Endpoint& endpoint) = 0;
    // The tracker knows the endpoint by an id that is not its own any more.
    virtual void endpoint_renamed(Endpoint& endpoint) = 0;
    // Does the endpoint hold a dedicated lane, or negotiate one?
    virtual bool has_link(const Endpoint& endpoint) const = 0;

  protected:
    ~LaneEvents() = default;
};

class DomainSet;
class Endpoint;
class Worker;

// What endpoints report to the worker that owns them.
class EndpointEvents {
  public:
    // The endpoint's status is set; its requests are to be failed in the next progress.
    virtual void endpoint_failed(Endpoint& endpoint) = 0;
    // A message begins to wait for room on the dedicated lane.
    virtual void lane_full(Endpoint& endpoint) = 0;
    // The marker that ends the scalable lane's part was posted.
    virtual void marker_posted(Endpoint& endpoint) = 0;
    // There is no memory to tell a peer of a reset, or for a control message: call tell_peer() or
    // retry_controls() some time later.
    virtual void retry_later() = 0;
    // The endpoint's peer knows of the reset, or will learn of it.
    virtual void reset_told(Endpoint& endpoint) = 0;

  protected:
    ~EndpointEvents() = default;
};

// What all endpoints of a worker share. Outlives them.
struct EndpointHost {
    EndpointHost(uint64_t own_uuid, RequestPool& pool, InterfaceSet& transports, DomainSet& memory,
                 EndpointEvents& listener, Worker* worker)
        : uuid(own_uuid),
          requests(pool),
          interfaces(transports),
          domains(memory),
          events(listener),
          owner(worker) {}

    // First: every call reads it.
    Gate gate;
    // Counts ucp_worker_fence(): one-sided operations behind a fence follow those before it.
    uint32_t fence_sequence = ucs::first_number();
    size_t short_limit = SIZE_MAX;  // bytes of the longest message by am_short

    // True if no endpoint holds anything that a flush would wait for, so that a flush need ask the
    // lanes only. A flush that finds it so sets this; whatever may change it clears it.
    bool is_settled = false;

    // Flushes that the program has begun, and that had something to wait for.
    uint32_t flushes = 0;

    const uint64_t uuid;
    std::vector<std::byte> address;  // the worker's, packed
    std::vector<std::byte> hello;    // what peers are greeted with: HelloHeader, the address
    RequestPool& requests;
    InterfaceSet& interfaces;
    DomainSet& domains;  // that buffers are registered with
    EndpointEvents& events;
    Worker* const owner;  // for the C functions, which are called with an endpoint alone
    DeferredWork work;

    uint64_t serials = ucs::first_number();  // of endpoints so far
    uint64_t messages = 0;                   // that go in fragments, so far: their numbers
    std::vector<Endpoint*> to_pump;

    uint64_t next_message() { return ++messages; }
    // Endpoint::pump_now() is called in the next progress.
    void pump_later(Endpoint& endpoint) {
        to_pump.push_back(&endpoint);
        work.notify();
    }
};

}  // namespace ucp

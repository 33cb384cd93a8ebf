// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/mock_transport.h"
#include "ucp/api/ucp.h"
#include "ucp/context/context.h"
#include "ucp/worker/worker.h"
#include "ucs/sys/time.h"

namespace ucp {
class Memory;
}

namespace ucp::fuzz {

// A worker that gets bytes from outside: with a peer, memory that is open to it, requests of every
// kind that wait for it and, if asked for, a dedicated lane to it.
class Victim {
  public:
    enum class Links : uint8_t { kScalable, kGoingUp, kUp, kGoingDown };

    explicit Victim(Links links);
    ~Victim();
    Victim(const Victim&) = delete;
    Victim& operator=(const Victim&) = delete;

    Context& context() { return *victim_.context; }
    Worker& worker() { return *victim_.worker; }

    void message(uint8_t id, std::span<const std::byte> bytes);
    // What the messages have started comes to its end or waits for the peer.
    void settle() { step(20); }
    // An endpoint to the worker that the address names, if it can be reached, and a send.
    void connect(std::span<const std::byte> address);

    // Words that are names in the victim's world take the place of words with a letter for their
    // first byte, so that an input can say them: p peer, v victim, r a request, m memory, i its
    // region table, k its region.
    void speak_to(std::span<std::byte> bytes) const;

  private:
    struct Side {
        std::unique_ptr<Context> context;
        std::unique_ptr<Worker> worker;
    };

    void create(Side& side, uint64_t seed);
    Endpoint* endpoint(Side& from, const Side& to);
    void start_link(Endpoint& to_peer, Links links);
    void start_requests(Endpoint& to_peer);
    void step_both(unsigned count);
    void step(unsigned count);

    ucs::VirtualClock clock_;
    uct::mock::Fabric fabric_;
    uct::Component* component_ = &fabric_.component();
    Side victim_, peer_;
    Memory *memory_ = nullptr, *peer_memory_ = nullptr;
    ucp_rkey_h peer_key_ = nullptr;
    alignas(8) std::byte mapped_[256] = {}, peer_mapped_[256] = {};
    std::byte source_[10000] = {}, target_[10000] = {};
    uint32_t fetched_ = 0;
    std::vector<ucs_status_ptr_t> requests_;
};

}  // namespace ucp::fuzz

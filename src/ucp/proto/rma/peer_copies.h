// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucp/endpoint/endpoint_table.h"
#include "ucp/mem/domain_set.h"
#include "ucp/proto/rma/emulation.h"
#include "ucp/runtime/request_pool.h"
#include "ucs/memory/detector.h"

namespace ucp {

// Copies that devices of this process make for puts and gets of peers of its host, between memory
// that the peers have a key to and memory of their own devices: no device of a peer reaches host
// memory of this process.
//
//   initiator                                target
//   EmulatedGet, CopyRequest     ----->      checks the key; begins the copy
//   ends                         <-----      kRmaAck: the copy has ended
//   goes on by messages          <-----      kRmaAck: no way to the initiator's memory, now or ever
//
// Each is looked at in the progress of the worker. Memory that the program unmaps is let go by all
// of them before that call returns. Thread rule: the worker's, but for let_go().
class PeerCopies final : private RegionUser {
  public:
    // So many of them may wait for memory to be staged through.
    static constexpr size_t kMostWaiting = 1024;

    PeerCopies(RequestPool& pool, EndpointTable& table, DomainSet& set);
    // Waits for the devices. Nobody hears of the ends.
    ~PeerCopies();
    PeerCopies(const PeerCopies&) = delete;

    // A peer asks for one.
    void serve(const EmulatedGet& access, const CopyRequest& request);
    // Tells peers what has ended. @return how many
    unsigned run_deferred();

  private:
    struct Copy {
        EmulatedGet access;
        CopyRequest request;
        ucs::AsyncCopy* copy = nullptr;  // null: it waits, or has ended
        ucs_status_t status = UCS_INPROGRESS;
    };

    struct Ended {
        uint64_t from, request;  // as in EmulatedGet
        ucs_status_t status;
    };

    void let_go(uint64_t region) override;
    void end(Copy& copy);
    ucs_status_t begin(Copy& copy);
    bool has_begun() const;
    void answer(const Ended& ended);

    RequestPool& requests_;
    EndpointTable& endpoints_;
    DomainSet& domains_;
    std::vector<Copy> copies_;  // in the order in which they were asked for; under a DomainLock
    std::vector<Ended> ended_;  // of run_deferred(); there is room for all copies
};

}  // namespace ucp

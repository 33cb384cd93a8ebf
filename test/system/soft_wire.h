// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "softhca/softhca.h"
#include "ucs/sys/environment.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {

// Emulated adapters in this process as a cluster's wire: worker i is node i, with dc_mlx5 as its
// scalable transport and rc_mlx5 as its dedicated one.
//
// While it lives it is the process's environment: transports read their variables from it.
class SoftWire final : public Wire {
  public:
    using Variables = std::vector<std::pair<std::string, std::string>>;

    SoftWire(unsigned nodes, const softhca::Model& model, const softhca::FaultPlan& faults,
             const Variables& variables, unsigned devices_per_node = 1);
    ~SoftWire() override;

    uct::Component& component() override;
    void enter(size_t index) override;
    void leave(size_t index) override;
    void advance_to(ucs::Time now) override;
    void kill(size_t index) override;
    size_t dedicated_endpoints(size_t index) const override;
    // The numbers of those queue pairs.
    std::vector<uint32_t> dedicated_numbers(size_t index) const;

    softhca::VirtualFabric& fabric() { return fabric_; }
    // Calls back before each event from now on, with its number from 1; the callback may kill.
    // @return how many events were counted since the last call
    uint64_t count_events(std::function<void(uint64_t number)> callback);

  private:
    std::function<void(uint64_t)> before_event_;
    uint64_t events_ = 0;
    softhca::VirtualFabric fabric_;
    ucs::MapEnvironment environment_;
    const ucs::Environment* const before_;
};

}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "system/soft_wire.h"
#include "system/traffic.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {

// What an endpoint's error handler saw.
struct EndpointFailure {
    unsigned calls = 0;
    ucs_status_t status = UCS_OK;
};
ucp_ep_params_t with_handler(EndpointFailure& failure);

// Workers on emulated adapters of this process, with checked traffic between some of them.
class SoftWorld {
  public:
    struct Options {
        TrafficOptions traffic;
        Config config = quiet_config();
        softhca::Model model;
        softhca::FaultPlan faults;
        SoftWire::Variables variables = {{"RC_TIMEOUT", "16us"}, {"RC_RNR_TIMEOUT", "20us"}};
        std::vector<std::string> transports = {"dc_mlx5", "rc_mlx5"};
        ucs::Duration tick{500};
        size_t in_one_process = 0;  // Cluster::Options
        unsigned devices = 1;       // of each worker
    };

    explicit SoftWorld(const Options& options);
    ~SoftWorld();

    // Traffic both ways.
    void join(size_t a, size_t b);
    // Traffic one way, over this endpoint.
    void join(size_t from, size_t to, ucp_ep_h endpoint);

    // One round of traffic and progress.
    void step();
    // Steps until the condition holds. @return false if it does not within the limit of time
    bool until(const std::function<bool()>& condition,
               ucs::Duration limit = std::chrono::milliseconds(100));
    // Ends the traffic and reports what was wrong with it as test failures.
    void finish(std::initializer_list<size_t> workers);
    Party& party(size_t index) { return *parties_[index]; }

    SoftWire wire;
    Cluster cluster;

  private:
    static Cluster::Options cluster_options(const Options& options, SoftWire& wire);

    std::vector<std::unique_ptr<Party>> parties_;
};

}  // namespace ucp::test

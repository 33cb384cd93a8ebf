// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/mock_transport.h"
#include "system/soft_wire.h"
#include "system/traffic.h"
#include "ucp/context/config.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {

// The traffic of traffic.h between a few workers of this process, while lanes are switched as often
// as the protocol allows. Everything is varied by the seed: a failure is repeated by its seed.
class Soak {
  public:
    enum class Fabric {
        kMock,
        kVirtual,   // emulated adapters: dc_mlx5 and rc
        kDatagram,  // the same with ud_verbs and rc, over a wire that loses datagrams
    };

    struct Options {
        Fabric fabric = Fabric::kMock;
        TrafficOptions traffic;
        unsigned cap = 1;
        bool bulk_queue_pairs = true;  // bulk transfers may have some of their own
        unsigned switch_every = 60;    // steps between two requests for a lane, in the mean
        RndvScheme scheme = RndvScheme::kAuto;
        bool early_zcopy = false, early_rndv = false;
        unsigned window = 16;
        bool keep = false;         // lanes that are given back
        ucs::Duration tick{1000};  // of the clock, for each step

        uct::mock::Config mock;
        softhca::Model model = softhca::Model::instant();
        softhca::FaultPlan faults;
        bool verbs_lanes = false;  // rc_verbs rather than rc_mlx5
        SoftWire::Variables variables;
    };
    struct Result {
        std::vector<std::string> errors;
        TrafficTotals traffic;
        uint64_t promotions = 0;
        uint64_t demotions = 0;
        uint64_t replays = 0;
        uint64_t held = 0;
        uint64_t reused = 0;
        uint64_t steps = 0;

        Result& operator+=(const Result& other);
    };

    static Options options_for(Fabric fabric, uint64_t seed);

    explicit Soak(const Options& options);
    ~Soak();
    Result run();

  private:
    void check_caps();
    void verify_end();
    bool has_failed() const;
    bool is_done() const;

    const Options options_;
    ucs::Random random_;
    std::unique_ptr<SoftWire> wire_;
    std::unique_ptr<Cluster> cluster_;
    std::vector<std::unique_ptr<Party>> parties_;
    Result result_;
};

}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause
#include "unit/uct/adapter.h"

namespace uct::test {

namespace {

class SoftAdapter final : public Adapter {
  public:
    SoftAdapter(unsigned nodes, unsigned ports) : fabric_(options(nodes, ports)) {}

    void select(unsigned node) override { fabric_.set_current_node(node); }
    void step(ucs::VirtualClock& clock, unsigned events) override {
        for (int i = 0; i < 32 && fabric_.step(); ++i) {
        }
        clock.advance_to(ucs::Time(ucs::Duration(fabric_.now())));
    }
    bool is_idle() override { return fabric_.next_event_time() == softhca::VirtualFabric::kNever; }
    bool kill(unsigned node) override {
        fabric_.kill_node(node);
        return true;
    }
    uint64_t receivers_not_ready() override { return fabric_.total().rnr; }
    void lose_packets(double share, uint64_t seed) override {
        softhca::FaultPlan plan;
        plan.drop = share;
        plan.delay = 0.2;
        plan.delay_ns = 3000;
        plan.seed = seed;
        fabric_.set_faults(plan);
    }
    softhca::VirtualFabric* fabric() override { return &fabric_; }

  private:
    static softhca::VirtualFabric::Options options(unsigned nodes, unsigned ports) {
        softhca::VirtualFabric::Options options;
        options.nodes = nodes;
        options.ports_per_device = ports;
        options.model = softhca::Model::instant();
        return options;
    }

    softhca::VirtualFabric fabric_;
};

}  // namespace

std::unique_ptr<Adapter> Adapter::open(unsigned nodes, unsigned ports) {
    return std::make_unique<SoftAdapter>(nodes, ports);
}

bool Adapter::serves(const std::string& transport) {
    return true;
}

}  // namespace uct::test

// SPDX-License-Identifier: BSD-3-Clause
#include "system/soft_wire.h"

#include <algorithm>

#include "softhca/virtual/virtual_fabric.h"
#include "ucs/runtime/runtime.h"
#include "uct/ib/component.h"

namespace ucp::test {

SoftWire::SoftWire(unsigned nodes, const softhca::Model& model, const softhca::FaultPlan& faults,
                   const Variables& variables, unsigned devices_per_node)
    : fabric_(
          {.nodes = nodes, .devices_per_node = devices_per_node, .model = model, .faults = faults}),
      before_(ucs::runtime().environment) {
    // Page faults of more are most of the time of a test that makes many workers.
    environment_.set("UCX_IB_RX_QUEUE_INITIAL", "32");
    for (const auto& [name, value] : variables) environment_.set("UCX_" + name, value);
    ucs::runtime().environment = &environment_;
}

SoftWire::~SoftWire() {
    ucs::runtime().environment = before_;
}

uct::Component& SoftWire::component() {
    return uct::ib::component();
}

void SoftWire::enter(size_t index) {
    fabric_.set_current_node(static_cast<unsigned>(index));
}

// Work posted later leaves later by what earlier calls cost; nobody's processor is modelled here.
void SoftWire::leave(size_t index) {
    fabric_.take_cpu_time(static_cast<unsigned>(index));
}

void SoftWire::advance_to(ucs::Time now) {
    const auto time = static_cast<uint64_t>(now.time_since_epoch().count());
    while (before_event_ && fabric_.next_event_time() <= time) {
        before_event_(++events_);
        if (fabric_.next_event_time() <= time) fabric_.step();
    }
    fabric_.advance_to(time);
}

uint64_t SoftWire::count_events(std::function<void(uint64_t)> callback) {
    before_event_ = std::move(callback);
    return std::exchange(events_, 0);
}

void SoftWire::kill(size_t index) {
    fabric_.kill_node(static_cast<unsigned>(index));
}

// Counted at the adapter: it knows nothing of the library's own bookkeeping.
size_t SoftWire::dedicated_endpoints(size_t index) const {
    return dedicated_numbers(index).size();
}

std::vector<uint32_t> SoftWire::dedicated_numbers(size_t index) const {
    const auto fabric =
        std::static_pointer_cast<softhca::VirtualFabricImpl>(softhca::VirtualFabricImpl::current());
    std::vector<uint32_t> numbers;
    for (const softhca::Qp* qp : fabric->all_qps) {
        const bool is_here = fabric->ports_[qp->record->lid].node == index;
        if (is_here && qp->kind == softhca::QpKind::kRc) numbers.push_back(qp->base.qp_num);
    }
    return numbers;
}

}  // namespace ucp::test

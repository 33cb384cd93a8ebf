// SPDX-License-Identifier: BSD-3-Clause
#include "perf/pair.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ucp/base/handles.h"
#include "ucp/select/worker_address.h"
#include "uct/ib/component.h"
#include "uct/self/self_interface.h"
#include "uct/sm/component.h"

namespace perf {

void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

Pair::Pair(size_t estimated_endpoints, Over over)
    : fabric_({.nodes = 2, .model = softhca::Model::instant()}) {
    const std::array components = {
        over == Over::kAdapters ? &uct::ib::component() : &uct::sm::component(),
        &uct::self::component()};
    ucp::Config config;
    std::string error;
    require(
        ucp::kConfigTable.load(ucs::config::Source::from_environment(), config, error) == UCS_OK,
        "settings");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64;
    params.estimated_num_eps = estimated_endpoints;
    for (unsigned node = 0; node < 2; ++node) {
        fabric_.set_current_node(node);
        ucp::ContextSeams seams;
        seams.clock = &clock_;
        seams.virtual_time = over != Over::kHost;
        seams.seed = 1 + node;
        seams.components = std::span(components).first(over == Over::kHost ? 2 : 1);
        require(ucp::Context::create(params, config, seams, &contexts_[node]) == UCS_OK, "context");
        make_worker(*contexts_[node]);
    }
}

void Pair::make_worker(ucp::Context& context) {
    require(ucp::Worker::create(context, ucp_worker_params_t{}, &workers_.emplace_back()) == UCS_OK,
            "worker");
}

unsigned Pair::add_worker() {
    fabric_.set_current_node(1);
    make_worker(*contexts_[1]);
    return static_cast<unsigned>(workers_.size() - 1);
}

ucs::Time Pair::next_deadline() const {
    ucs::Time next = ucs::kNever;
    for (const auto& worker : workers_) next = std::min(next, worker->next_deadline());
    return next;
}

ucp_worker_h Pair::handle(unsigned index) {
    return ucp::wrap(workers_[index].get());
}

ucp_ep_h Pair::connect(const void* address, unsigned from) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = static_cast<const ucp_address_t*>(address);
    ucp_ep_h endpoint = nullptr;
    require(ucp_ep_create(handle(from), &params, &endpoint) == UCS_OK, "endpoint");
    return endpoint;
}

ucp_ep_h Pair::connect_to(uint64_t uuid) {
    const std::vector<std::byte> packed = worker(1).address();
    ucp::WorkerAddress address;
    require(ucp::unpack_address(packed, &address) == UCS_OK, "an address");
    address.uuid = uuid;
    return connect(ucp::pack_address(address).data());
}

ucs::Time Pair::let_pass(ucs::Duration time) {
    clock_.advance(time);
    fabric_.advance_to(
        std::max(fabric_.now(), static_cast<uint64_t>(clock_.now().time_since_epoch().count())));
    return clock_.now();
}

void Pair::step(ucs::Duration time) {
    let_pass(time);
    for (auto& worker : workers_) worker->progress();
}

void Pair::drain() {
    for (unsigned events = 1; events != 0;) {
        fabric_.run_until_idle();
        events = 0;
        for (auto& worker : workers_) events += worker->progress();
    }
}

}  // namespace perf

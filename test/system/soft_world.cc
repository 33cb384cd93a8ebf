// SPDX-License-Identifier: BSD-3-Clause
#include "system/soft_world.h"

#include <algorithm>

namespace ucp::test {

ucp_ep_params_t with_handler(EndpointFailure& failure) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t status) {
        auto& failure = *static_cast<EndpointFailure*>(arg);
        ++failure.calls;
        failure.status = status;
    };
    params.err_handler.arg = &failure;
    return params;
}

Cluster::Options SoftWorld::cluster_options(const Options& options, SoftWire& wire) {
    Cluster::Options cluster;
    cluster.wire = &wire;
    cluster.config = options.config;
    cluster.config.transports = {false, options.transports};
    cluster.seed = options.traffic.seed;
    cluster.tick = options.tick;
    cluster.in_one_process = options.in_one_process;
    return cluster;
}

SoftWorld::SoftWorld(const Options& options)
    : wire(static_cast<unsigned>(options.traffic.workers), options.model, options.faults,
           options.variables, options.devices),
      cluster(options.traffic.workers, cluster_options(options, wire)) {
    for (size_t index = 0; index < options.traffic.workers; ++index) {
        parties_.push_back(std::make_unique<Party>(options.traffic, index, cluster.context(index),
                                                   cluster.worker(index)));
    }
}

SoftWorld::~SoftWorld() {
    for (size_t index = 0; index < cluster.size(); ++index) {
        if (cluster.worker(index) != nullptr) parties_[index]->abandon();
    }
    for (size_t index = 0; index < cluster.size(); ++index) cluster.destroy(index);
    parties_.clear();
}

void SoftWorld::join(size_t a, size_t b) {
    join(a, b, cluster.endpoint(a, b));
    join(b, a, cluster.endpoint(b, a));
}

void SoftWorld::join(size_t from, size_t to, ucp_ep_h endpoint) {
    party(from).connect(to, endpoint, party(to).region_for(from));
}

void SoftWorld::step() {
    for (size_t index = 0; index < cluster.size(); ++index) {
        if (cluster.worker(index) != nullptr) parties_[index]->step();
    }
    cluster.step();
}

bool SoftWorld::until(const std::function<bool()>& condition, ucs::Duration limit) {
    const ucs::Time end = cluster.clock.now() + limit;
    while (!condition()) {
        if (cluster.clock.now() > end) return false;
        step();
    }
    return true;
}

void SoftWorld::finish(std::initializer_list<size_t> workers) {
    for (const size_t index : workers) party(index).stop();
    const bool ended = until([&] {
        return std::ranges::all_of(workers, [&](size_t index) { return party(index).is_done(); });
    });
    for (const size_t index : workers) {
        EXPECT_TRUE(ended) << party(index).describe();
        for (const std::string& error : party(index).errors()) ADD_FAILURE() << error;
        EXPECT_GT(party(index).totals().messages, 0u);
    }
}

}  // namespace ucp::test

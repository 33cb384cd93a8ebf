// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "unit/ucp/cluster.h"
#include "unit/ucp/region.h"

namespace ucp::bulk::test {

inline constexpr uint32_t kChains = uct::kPutChain | uct::kGetChain;
using ucp::test::kNothing;

// Two workers on devices that carry chains, slices of 4 KiB, and memory of the second.
class BulkCluster {
  public:
    static ucp::test::Cluster::Options options(unsigned devices = 2) {
        ucp::test::Cluster::Options options;
        options.fabric.devices = devices;
        options.fabric.capabilities |= kChains;
        options.config.bulk_threshold = ucs::config::MemorySize{8192};
        options.config.bulk_slice_size = ucs::config::MemorySize{4096};
        options.config.bulk_fragment_limit = ucs::config::MemorySize{256};
        options.config.bulk_window = ucs::config::MemorySize{65536};
        return options;
    }

    explicit BulkCluster(size_t length, const ucp::test::Cluster::Options& given = options())
        : cluster(2, given), region(cluster.context(1), length, 0xee), here(length) {
        endpoint = cluster.endpoint(0, 1);
        region.open(endpoint);
    }

    uint64_t remote(size_t offset = 0) const { return region.address(offset); }
    void fill(uint64_t seed) { here = ucp::test::pattern(here.size(), seed); }
    void fill_there(uint64_t seed) { region.fill(seed); }
    // The device of the endpoint's own lane, and the first of another.
    unsigned home() const {
        return static_cast<unsigned>(unwrap(endpoint).scalable_lane().attributes.device.back() -
                                     '0');
    }
    unsigned rail() const { return home() == 0 ? 1 : 0; }
    ucs_status_ptr_t start_put(const ucp_request_param_t& params = kNothing) {
        return ucp_put_nbx(endpoint, here.data(), here.size(), remote(), key, &params);
    }
    ucs_status_t put() { return cluster.finish(start_put()); }
    ucs_status_ptr_t start_get(const ucp_request_param_t& params = kNothing) {
        return ucp_get_nbx(endpoint, here.data(), here.size(), remote(), key, &params);
    }
    ucs_status_t get() { return cluster.finish(start_get()); }
    const uct::mock::Counters& counters() const {
        return cluster.fabric.counters(uct::mock::Kind::kScalable);
    }

    ucp::test::Cluster cluster;
    ucp_ep_h endpoint = nullptr;
    ucp::test::Region region;  // of the second
    std::vector<uint8_t>& there = region.bytes;
    std::vector<uint8_t> here;
    ucp_rkey_h& key = region.key;
};

}  // namespace ucp::bulk::test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "unit/ucp/cluster.h"

namespace ucp::bulk::test {

inline constexpr uint32_t kChains = uct::kPutChain | uct::kGetChain;
inline constexpr ucp_request_param_t kNothing{};

/** Two workers on devices that carry chains, slices of 4 KiB, and memory of the second. */
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
        : cluster(2, given), there(length, 0xee), here(length) {
        endpoint = cluster.endpoint(0, 1);
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = there.data();
        params.length = there.size();
        EXPECT_EQ(ucp_mem_map(cluster.context(1), &params, &memory), UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        EXPECT_EQ(ucp_rkey_pack(cluster.context(1), memory, &packed, &size), UCS_OK);
        EXPECT_EQ(ucp_ep_rkey_unpack(endpoint, packed, &key), UCS_OK);
        ucp_rkey_buffer_release(packed);
    }
    ~BulkCluster() {
        ucp_rkey_destroy(key);
        EXPECT_EQ(ucp_mem_unmap(cluster.context(1), memory), UCS_OK);
    }

    uint64_t remote(size_t offset = 0) const {
        return reinterpret_cast<uintptr_t>(there.data()) + offset;
    }
    void fill(uint64_t seed) { here = ucp::test::pattern(here.size(), seed); }
    void fill_there(uint64_t seed) {
        const auto bytes = ucp::test::pattern(there.size(), seed);
        std::copy(bytes.begin(), bytes.end(), there.begin());
    }
    /** The device of the endpoint's own lane, and the first of another. */
    unsigned home() const {
        return static_cast<unsigned>(unwrap(endpoint).scalable_lane().attributes.device.back() -
                                     '0');
    }
    unsigned rail() const { return home() == 0 ? 1 : 0; }
    ucs_status_ptr_t start_put(const ucp_request_param_t& params = kNothing) {
        return ucp_put_nbx(endpoint, here.data(), here.size(), remote(), key, &params);
    }
    ucs_status_t put() { return cluster.finish(start_put()); }
    ucs_status_ptr_t start_get() {
        return ucp_get_nbx(endpoint, here.data(), here.size(), remote(), key, &kNothing);
    }
    ucs_status_t get() { return cluster.finish(start_get()); }
    const uct::mock::Counters& counters() const {
        return cluster.fabric.counters(uct::mock::Kind::kScalable);
    }

    ucp::test::Cluster cluster;
    ucp_ep_h endpoint = nullptr;
    std::vector<uint8_t> there, here;
    ucp_mem_h memory = nullptr;
    ucp_rkey_h key = nullptr;
};

}  // namespace ucp::bulk::test

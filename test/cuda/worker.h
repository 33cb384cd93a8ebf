// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "ucp/api/ucp.h"

namespace cuda_test {

// A context with a worker.
struct Worker {
    explicit Worker(ucs_thread_mode_t mode,
                    uint64_t features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO64) {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = features;
        EXPECT_EQ(ucp_init(&params, nullptr, &context), UCS_OK);
        ucp_worker_params_t worker_params{};
        worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker_params.thread_mode = mode;
        EXPECT_EQ(ucp_worker_create(context, &worker_params, &worker), UCS_OK);
    }
    ~Worker() {
        if (worker != nullptr) ucp_worker_destroy(worker);
        ucp_cleanup(context);
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    ucp_ep_h connect(const Worker& other) const {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(other.worker, &address, &length), UCS_OK);
        ucp_ep_params_t params{};
        params.field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.address = address;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        ucp_ep_h made = nullptr;
        EXPECT_EQ(ucp_ep_create(worker, &params, &made), UCS_OK);
        ucp_worker_release_address(other.worker, address);
        return made;
    }

    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
};

// Memory that the other side may write.
struct Exposed {
    Exposed(Worker& side, ucp_ep_h from, void* address, size_t length) : side(side) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = address;
        params.length = length;
        EXPECT_EQ(ucp_mem_map(side.context, &params, &memory), UCS_OK);
        void* bytes = nullptr;
        size_t size = 0;
        EXPECT_EQ(ucp_rkey_pack(side.context, memory, &bytes, &size), UCS_OK);
        EXPECT_EQ(ucp_ep_rkey_unpack(from, bytes, &key), UCS_OK);
        ucp_rkey_buffer_release(bytes);
    }
    ~Exposed() {
        ucp_rkey_destroy(key);
        (void)ucp_mem_unmap(side.context, memory);
    }
    Exposed(const Exposed&) = delete;
    Exposed& operator=(const Exposed&) = delete;

    Worker& side;
    ucp_mem_h memory = nullptr;
    ucp_rkey_h key = nullptr;
};

}  // namespace cuda_test

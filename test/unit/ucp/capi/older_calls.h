// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ucp/api/ucp.h"

namespace ucp::test {
inline constexpr ucp_datatype_t kByte = ucp_dt_make_contig(1);
inline constexpr size_t kLong = 100000;  // by rendezvous

// What a function writes to a stream.
template <typename Function>
std::string printed(Function&& function) {
    char* text = nullptr;
    size_t length = 0;
    FILE* stream = open_memstream(&text, &length);
    function(stream);
    fclose(stream);
    std::string result(text, length);
    free(text);
    return result;
}

// A context with a worker, as a program makes them.
struct Side {
    explicit Side(const std::string& transport, uint64_t features) {
        ucp_config_t* config = nullptr;
        EXPECT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
        EXPECT_EQ(ucp_config_modify(config, "TLS", transport.c_str()), UCS_OK);
        EXPECT_EQ(ucp_config_modify(config, "NET_DEVICES", "lo"), UCS_OK);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
        params.features = features;
        params.name = "older calls";
        EXPECT_EQ(ucp_init(&params, config, &context), UCS_OK);
        ucp_config_release(config);
        const ucp_worker_params_t worker_params{};
        EXPECT_EQ(ucp_worker_create(context, &worker_params, &worker), UCS_OK);
    }
    ~Side() {
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
    }
    Side(const Side&) = delete;

    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
};

// A worker, another one that it is connected to (over self: itself), and memory there.
class OlderCalls : public testing::TestWithParam<const char*> {
  protected:
    static constexpr uint64_t kFeatures =
        UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;

    ucp_ep_h connect() {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(far_->worker, &address, &length), UCS_OK);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = address;
        ucp_ep_h endpoint = nullptr;
        EXPECT_EQ(ucp_ep_create(near_.worker, &params, &endpoint), UCS_OK);
        ucp_worker_release_address(far_->worker, address);
        return endpoint;
    }
    // For calls that return when all is done: the peer's program runs meanwhile.
    template <typename Function>
    auto waiting(Function&& function) {
        std::atomic<bool> stop{other_ == nullptr};
        std::thread peer([&] {
            while (!stop) {
                if (ucp_worker_progress(far_->worker) == 0) sched_yield();
            }
        });
        struct Join {
            std::atomic<bool>& stop;
            std::thread& peer;
            ~Join() {
                stop = true;
                peer.join();
            }
        } join{stop, peer};
        return function();
    }
    void step() {
        ucp_worker_progress(near_.worker);
        if (other_ != nullptr) ucp_worker_progress(far_->worker);
    }
    // As a program that polls: the status in the end; the request is given back.
    ucs_status_t finish(ucs_status_ptr_t operation) {
        return finish(operation, [&] { step(); });
    }
    // The same inside waiting().
    ucs_status_t finish_near(ucs_status_ptr_t operation) {
        return finish(operation, [&] { ucp_worker_progress(near_.worker); });
    }
    template <typename Progress>
    static ucs_status_t finish(ucs_status_ptr_t operation, Progress&& progress) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        while (ucp_request_is_completed(operation) == 0) progress();
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_release(operation);
        return status;
    }
    void SetUp() override {
        if (std::string(GetParam()) == "self") {
            far_ = &near_;
        } else {
            other_ = std::make_unique<Side>(GetParam(), kFeatures);
            far_ = other_.get();
        }
        endpoint_ = connect();
        ucp_mem_map_params_t map{};
        map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        map.address = memory_.data();
        map.length = sizeof(memory_);
        ASSERT_EQ(ucp_mem_map(far_->context, &map, &handle_), UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        ASSERT_EQ(ucp_rkey_pack(far_->context, handle_, &packed, &size), UCS_OK);
        ASSERT_EQ(ucp_ep_rkey_unpack(endpoint_, packed, &key_), UCS_OK);
        ucp_rkey_buffer_release(packed);
    }
    void TearDown() override {
        ucp_rkey_destroy(key_);
        if (endpoint_ != nullptr) waiting([&] { ucp_ep_destroy(endpoint_); });
        EXPECT_EQ(ucp_mem_unmap(far_->context, handle_), UCS_OK);
    }

    uint64_t address(size_t word) const { return reinterpret_cast<uintptr_t>(&memory_[word]); }
    uint32_t first_half(size_t word) const {
        uint32_t value;
        std::memcpy(&value, &memory_[word], sizeof(value));
        return value;
    }

    Side near_{GetParam(), kFeatures};
    std::unique_ptr<Side> other_;
    Side* far_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
    ucp_mem_h handle_ = nullptr;
    ucp_rkey_h key_ = nullptr;
    std::array<uint64_t, kLong / 8> memory_{};
};

}  // namespace ucp::test

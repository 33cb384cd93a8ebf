// SPDX-License-Identifier: BSD-3-Clause

// UCS_THREAD_MODE_MULTI while lanes are switched: several threads use each of two workers that talk
// over shared memory, and another one has their lanes changed all the while. Built with the thread
// sanitizer, this shows that they may.

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "uct/sm/component.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

constexpr size_t kThreadsEach = 2;  // on each worker
constexpr unsigned kSwitches = 4;

struct Side {
    std::unique_ptr<Context> context;
    ucp_worker_h worker = nullptr;
    ucp_ep_h endpoint = nullptr;

    void open() {
        Config config = quiet_config();
        config.rndv_threshold.emplace().bytes = 8192;
        uct::Component* component = &uct::sm::component();
        ContextSeams seams;
        seams.components = std::span<uct::Component* const>(&component, 1);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = kAllFeatures | UCP_FEATURE_STREAM;
        ASSERT_EQ(Context::create(params, config, seams, &context), UCS_OK);
        ucp_worker_params_t worker_params{};
        worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker_params.thread_mode = UCS_THREAD_MODE_MULTI;
        ASSERT_EQ(ucp_worker_create(wrap(context.get()), &worker_params, &worker), UCS_OK);
    }
    void connect(const Side& other) {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        ASSERT_EQ(ucp_worker_get_address(other.worker, &address, &length), UCS_OK);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = address;
        ASSERT_EQ(ucp_ep_create(worker, &params, &endpoint), UCS_OK);
        ucp_worker_release_address(other.worker, address);
    }
    ucs_status_t finish(ucs_status_ptr_t operation) const {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        while (ucp_request_check_status(operation) == UCS_INPROGRESS) {
            if (ucp_worker_progress(worker) == 0) sched_yield();
        }
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_free(operation);
        return status;
    }
    ucpx_lane_state_t state() const {
        ucpx_ep_attr_t attr{};
        attr.field_mask = UCPX_EP_ATTR_FIELD_STATE;
        EXPECT_EQ(ucpx_ep_query(endpoint, &attr), UCS_OK);
        return attr.state;
    }
};

// Ping-pong of numbered messages of all lengths under a tag of the thread's own.
void play(const Side& side, size_t thread, bool serves, const std::atomic<bool>& over) {
    constexpr size_t kLengths[] = {8, 200, 3000, 20000};
    for (uint64_t round = 0;; ++round) {
        // Who serves says whether there is to be another round.
        const size_t length = kLengths[round % std::size(kLengths)];
        auto bytes = pattern(length, thread * 1000003 + round);
        std::vector<uint8_t> received(length);
        const uint64_t there = thread * 2, back = thread * 2 + 1;
        const auto send = [&](uint64_t tag, const void* data, size_t size) {
            ASSERT_EQ(side.finish(ucp_tag_send_nbx(side.endpoint, data, size, tag, &kNothing)),
                      UCS_OK);
        };
        const auto receive = [&](uint64_t tag, void* data, size_t size) {
            ASSERT_EQ(
                side.finish(ucp_tag_recv_nbx(side.worker, data, size, tag, UINT64_MAX, &kNothing)),
                UCS_OK);
        };
        uint8_t goes_on = !over;
        if (serves) {
            send(there, &goes_on, 1);
            if (goes_on == 0) return;
            send(there, bytes.data(), length);
            receive(back, received.data(), length);
        } else {
            receive(there, &goes_on, 1);
            if (goes_on == 0) return;
            receive(there, received.data(), length);
            send(back, received.data(), length);
        }
        ASSERT_EQ(received, bytes) << "thread " << thread << ", round " << round;
    }
}

TEST(ThreadsOnLanes, SwitchUnderTraffic) {
    Side sides[2];
    for (Side& side : sides) side.open();
    if (testing::Test::HasFatalFailure()) return;
    sides[0].connect(sides[1]);
    sides[1].connect(sides[0]);
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < kThreadsEach; ++thread) {
        threads.emplace_back([&, thread] { play(sides[0], thread, true, over); });
        threads.emplace_back([&, thread] { play(sides[1], thread, false, over); });
    }
    for (unsigned count = 0; count < kSwitches; ++count) {
        const bool up = count % 2 == 0;
        const ucpx_lane_state_t wanted =
            up ? UCPX_LANE_STATE_ESTABLISHED : UCPX_LANE_STATE_SCALABLE;
        ucpx_ep_lanes_request(sides[0].endpoint,
                              up ? UCPX_LANE_POLICY_DEDICATED : UCPX_LANE_POLICY_SCALABLE);
        while (sides[0].state() != wanted) sched_yield();
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    for (const Side& side : sides) ucp_worker_destroy(side.worker);
}

}  // namespace
}  // namespace ucp::test

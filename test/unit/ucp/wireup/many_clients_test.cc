// SPDX-License-Identifier: BSD-3-Clause

// Clients that come and go: a server's memory and descriptors stay as they are. UCX_TEST_CLIENTS
// says how many, 300 by default (make check-clients: 1,000,000).

#include <malloc.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "ucp/endpoint/endpoint.h"
#include "uct/sm/component.h"
#include "uct/tcp/component.h"
#include "unit/ucp/runtime/sender_wires.h"
#include "unit/ucp/wireup/server.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

size_t heap() {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

size_t descriptors() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        ++count;
    return count;
}

class ManyClients : public testing::TestWithParam<SenderWire> {};

TEST_P(ManyClients, LeaveNothingBehind) {
    constexpr size_t kServer = 0, kClient = 1, kFirst = 100;
    const char* const wanted = std::getenv("UCX_TEST_CLIENTS");
    const size_t clients = wanted == nullptr ? 300 : std::strtoull(wanted, nullptr, 10);
    const std::unique_ptr<Wire> wire = GetParam().make();
    Cluster cluster(2, options_for(GetParam(), *wire));
    Server server(cluster);
    size_t heap_before = 0, descriptors_before = 0;
    for (size_t count = 0; count < clients; ++count) {
        ConnectionEnd client, accepted;
        server.call(client, kClient);
        server.accept(accepted);
        uint64_t got = 0;
        const ucs_status_ptr_t sending =
            ucp_tag_send_nbx(client.endpoint, &count, sizeof(count), 7, &kNothing);
        ASSERT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(kServer), &got, sizeof(got), 7,
                                                  UINT64_MAX, &kNothing)),
                  UCS_OK);
        ASSERT_EQ(cluster.finish(sending), UCS_OK);
        ASSERT_EQ(got, count);
        ASSERT_EQ(cluster.finish(ucp_ep_close_nbx(client.endpoint, &kNothing)), UCS_OK);
        ASSERT_TRUE(cluster.until([&] { return accepted.errors != 0; }));
        const ucs_status_ptr_t closing = ucp_ep_close_nbx(accepted.endpoint, &kNothing);
        if (UCS_PTR_IS_PTR(closing)) cluster.finish(closing);
        ASSERT_TRUE(cluster.until([&] {
            return cluster.inner(kServer).endpoints().size() == 0 &&
                   cluster.inner(kClient).endpoints().size() == 0;
        }));
        if (count + 1 != kFirst) continue;
        heap_before = heap();
        descriptors_before = descriptors();
    }
    if (clients <= kFirst) return;
    // A pool or a table may have grown once more; 100 bytes a client would be 20,000 by now.
    EXPECT_LE(heap(), heap_before + 8192);
    EXPECT_LE(descriptors(), descriptors_before + 4);
    EXPECT_LE(cluster.inner(kServer).interfaces().peers().size(), 2u);
}

// Those that clients come by: a lane is nothing that they ask for.
std::vector<SenderWire> client_wires() {
    std::vector<SenderWire> wires = sender_wires();
    std::erase_if(wires, [](const SenderWire& wire) { return wire.has_lanes; });
    return wires;
}

INSTANTIATE_TEST_SUITE_P(Wires, ManyClients, testing::ValuesIn(client_wires()),
                         [](const auto& info) { return info.param.name; });

// A server that did not say how many peers it expects has 64 places in its shared queue.
TEST(LocalClients, TheOneThatFindsNoPlaceGoesAnotherWayAndIsTold) {
    constexpr size_t kPlaces = 64;
    uct::Component* const components[] = {&uct::sm::component(), &uct::tcp::component()};
    ContextSeams seams;
    seams.components = components;
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    std::unique_ptr<Context> context;
    ASSERT_EQ(Context::create(params, quiet_config(), seams, &context), UCS_OK);
    std::vector<ucp_worker_h> workers(kPlaces + 2);
    const ucp_worker_params_t defaults{};
    for (ucp_worker_h& worker : workers)
        ASSERT_EQ(ucp_worker_create(wrap(context.get()), &defaults, &worker), UCS_OK);
    const ucp_worker_h server = workers.back();
    ucp_address_t* address = nullptr;
    size_t length = 0;
    ASSERT_EQ(ucp_worker_get_address(server, &address, &length), UCS_OK);
    const ucs::LogCapture log;
    for (uint64_t client = 0; client <= kPlaces; ++client) {
        EXPECT_EQ(log.entries().size(), 0u) << "of client " << client;
        ucp_ep_params_t to_server{};
        to_server.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        to_server.address = address;
        ucp_ep_h endpoint = nullptr;
        ASSERT_EQ(ucp_ep_create(workers[client], &to_server, &endpoint), UCS_OK);
        std::array<ucpx_lane_t, 2> lanes{};
        ucpx_ep_attr_t attr{};
        attr.field_mask = UCPX_EP_ATTR_FIELD_LANES;
        attr.lanes = {lanes.data(), lanes.size(), sizeof(ucpx_lane_t)};
        ASSERT_EQ(ucpx_ep_query(endpoint, &attr), UCS_OK);
        EXPECT_STREQ(lanes[0].transport_name, client < kPlaces ? "sm_fifo" : "tcp");
        uint64_t got = 0;
        void* const receiving =
            ucp_tag_recv_nbx(server, &got, sizeof(got), 5, UINT64_MAX, &kNothing);
        void* const sending = ucp_tag_send_nbx(endpoint, &client, sizeof(client), 5, &kNothing);
        ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
        ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
        while (ucp_request_check_status(receiving) == UCS_INPROGRESS) {
            ucp_worker_progress(workers[client]);
            ucp_worker_progress(server);
        }
        EXPECT_EQ(got, client);
        ucp_request_free(receiving);
        if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
    }
    EXPECT_TRUE(log.contains("all 64 places for senders"));
    ucp_worker_release_address(server, address);
    for (const ucp_worker_h worker : workers) ucp_worker_destroy(worker);
}

}  // namespace
}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause

// Clients that come and go: a server's memory and descriptors stay as they are. UCX_TEST_CLIENTS
// says how many, 300 by default (make check-clients: 1,000,000).

#include <malloc.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "ucp/endpoint/endpoint.h"
#include "unit/ucp/runtime/sender_wires.h"
#include "unit/ucp/wireup/server.h"

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

}  // namespace
}  // namespace ucp::test

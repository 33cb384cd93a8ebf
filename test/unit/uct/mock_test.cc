// SPDX-License-Identifier: BSD-3-Clause
#include "common/mock_transport.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ucs/sys/random.h"
#include "ucs/sys/time.h"

namespace uct::mock {
namespace {

// A worker with both transports of a fabric.
struct Worker {
    Worker(Fabric& fabric, uint64_t id) : random(id) {
        table.entries.fill({[](void* arg, void* data, size_t length, ReceiveDescriptor*) {
                                static_cast<Worker*>(arg)->received.emplace_back(
                                    static_cast<const char*>(data), length);
                                return UCS_OK;
                            },
                            this});
        const InterfaceParams params{clock,
                                     random,
                                     table,
                                     [](void* arg, Endpoint* endpoint, ucs_status_t) {
                                         static_cast<Worker*>(arg)->failed.push_back(endpoint);
                                     },
                                     this,
                                     id,
                                     8};
        EXPECT_EQ(fabric.component().open_domain("mock0", &domain), UCS_OK);
        EXPECT_EQ(domain->open_interface("mock_dc", params, &dc), UCS_OK);
        EXPECT_EQ(domain->open_interface("mock_rc", params, &rc), UCS_OK);
    }
    void progress() {
        dc->progress();
        rc->progress();
    }
    std::unique_ptr<Endpoint> scalable_to(Worker& other) {
        std::vector<std::byte> device(dc->attributes().device_address_length);
        std::vector<std::byte> interface(dc->attributes().interface_address_length);
        EXPECT_EQ(other.dc->get_device_address(device), UCS_OK);
        EXPECT_EQ(other.dc->get_interface_address(interface), UCS_OK);
        std::unique_ptr<Endpoint> endpoint;
        EXPECT_EQ(dc->create_endpoint({device, interface, {}}, &endpoint), UCS_OK);
        return endpoint;
    }

    ucs::VirtualClock clock;
    ucs::Random random;
    AmTable table;
    std::vector<std::string> received;
    std::vector<Endpoint*> failed;
    std::unique_ptr<MemoryDomain> domain;
    std::unique_ptr<Interface> dc, rc;
};

void connect(Endpoint& near, Endpoint& far) {
    std::byte near_address[12], far_address[12];
    ASSERT_EQ(near.get_address(near_address), UCS_OK);
    ASSERT_EQ(far.get_address(far_address), UCS_OK);
    ASSERT_EQ(near.connect({{}, {}, far_address}), UCS_OK);
    ASSERT_EQ(far.connect({{}, {}, near_address}), UCS_OK);
}

void send(Endpoint& endpoint, Worker& worker, uint64_t number) {
    while (endpoint.am_short(1, number, nullptr, 0) == UCS_ERR_NO_RESOURCE) worker.progress();
}

std::vector<uint64_t> numbers(const Worker& worker) {
    std::vector<uint64_t> all;
    for (const std::string& message : worker.received) {
        std::memcpy(&all.emplace_back(), message.data(), 8);
    }
    return all;
}

TEST(Mock, LanesKeepTheirOrderAndOvertakeEachOther) {
    int overtaken = 0;
    std::vector<std::vector<uint64_t>> runs;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        Fabric fabric({.seed = seed / 2 + 1,
                       .stall_probability = 0.02,
                       .no_resource_probability = 0.1,
                       .transmit_depth = 8});
        Worker near(fabric, 1), far(fabric, 2);
        const auto scalable = near.scalable_to(far);
        std::unique_ptr<Endpoint> dedicated, other;
        ASSERT_EQ(near.rc->create_endpoint({}, &dedicated), UCS_OK);
        ASSERT_EQ(far.rc->create_endpoint({}, &other), UCS_OK);
        connect(*dedicated, *other);
        for (uint64_t i = 0; i < 50; ++i) {
            send(*scalable, near, i);
            send(*dedicated, near, 1000 + i);
        }
        while (!fabric.idle()) {
            near.progress();
            far.progress();
        }
        const auto all = numbers(far);
        ASSERT_EQ(all.size(), 100u);
        uint64_t next_scalable = 0, next_dedicated = 1000;
        for (const uint64_t number : all) {
            uint64_t& next = number < 1000 ? next_scalable : next_dedicated;
            ASSERT_EQ(number, next++);
            if (next_dedicated > next_scalable + 1000) ++overtaken;
        }
        runs.push_back(all);
        EXPECT_EQ(fabric.counters(Kind::kScalable).delivered, 50u);
    }
    EXPECT_GT(overtaken, 0);
    for (size_t i = 0; i < runs.size(); i += 2) EXPECT_EQ(runs[i], runs[i + 1]) << "seed " << i;
}

TEST(Mock, MessagesToADestroyedEndpointFailTheSender) {
    Fabric fabric;
    Worker near(fabric, 1), far(fabric, 2);
    std::unique_ptr<Endpoint> dedicated, other;
    ASSERT_EQ(near.rc->create_endpoint({}, &dedicated), UCS_OK);
    ASSERT_EQ(far.rc->create_endpoint({}, &other), UCS_OK);
    EXPECT_EQ(fabric.dedicated_endpoints(1), 1u);
    connect(*dedicated, *other);
    other.reset();
    send(*dedicated, near, 1);
    while (near.failed.empty()) near.progress();
    EXPECT_EQ(near.failed[0], dedicated.get());
}

TEST(Mock, TheLimitOfDedicatedEndpointsIsKept) {
    Fabric fabric({.max_dedicated = 2});
    Worker worker(fabric, 1);
    std::unique_ptr<Endpoint> endpoints[3];
    EXPECT_EQ(worker.rc->create_endpoint({}, &endpoints[0]), UCS_OK);
    EXPECT_EQ(worker.rc->create_endpoint({}, &endpoints[1]), UCS_OK);
    EXPECT_EQ(worker.rc->create_endpoint({}, &endpoints[2]), UCS_ERR_NO_RESOURCE);
    endpoints[0].reset();
    EXPECT_EQ(worker.rc->create_endpoint({}, &endpoints[2]), UCS_OK);
    EXPECT_EQ(fabric.counters(Kind::kDedicated).peak_endpoints, 2u);
}

TEST(Mock, AnObserverMayKillAtAChosenPacket) {
    for (uint64_t at = 0; at < 5; ++at) {
        Fabric fabric;
        Worker near(fabric, 1), far(fabric, 2);
        const auto endpoint = near.scalable_to(far);
        fabric.observe([&](const PacketEvent& event) {
            if (event.number == at) fabric.kill(2);
        });
        for (uint64_t i = 0; i < 5; ++i) send(*endpoint, near, i);
        while (near.failed.empty()) {
            near.progress();
            far.progress();
        }
        EXPECT_LE(far.received.size(), at);
        while (!fabric.idle()) near.progress();
    }
}

TEST(Mock, ReceiveBuffersThatAreUsedUpHoldMessagesBack) {
    Fabric fabric({.receive_buffers = 3});
    Worker near(fabric, 1), far(fabric, 2);
    static std::vector<ReceiveDescriptor*> kept;
    kept.clear();
    far.table.entries[1] = {[](void*, void*, size_t, ReceiveDescriptor* descriptor) {
                                kept.push_back(descriptor);
                                return UCS_INPROGRESS;
                            },
                            nullptr};
    const auto endpoint = near.scalable_to(far);
    for (uint64_t i = 0; i < 10; ++i) send(*endpoint, near, i);
    for (int i = 0; i < 500; ++i) far.progress();
    EXPECT_EQ(kept.size(), 3u);
    for (size_t i = 0; i < kept.size(); ++i) {
        kept[i]->release();
        for (int step = 0; step < 100; ++step) far.progress();
    }
    EXPECT_EQ(kept.size(), 10u);
}

}  // namespace
}  // namespace uct::mock

// SPDX-License-Identifier: BSD-3-Clause

// What a device of TCP says of its link, seen in a network namespace of the test's own.

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "ucs/sys/random.h"
#include "uct/tcp/component.h"
#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {
namespace {

bool run(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

// In a thread of a namespace of its own, with two ends of a cable: "near", with an address, "far".
template <typename Body>
void with_cable(Body&& body) {
    bool is_there = false;
    std::thread([&] {
        is_there = unshare(CLONE_NEWNET) == 0 && run("ip link add near type veth peer name far") &&
                   run("ip addr add 10.77.0.1/24 dev near") && run("ip link set far up") &&
                   run("ip link set near up");
        if (is_there) body();
    }).join();
    if (!is_there) GTEST_SKIP() << "needs the right to make a network namespace, and the tool ip";
}

// An interface on "near".
struct Opened {
    Opened() {
        // The kernel sees the carrier of a new cable in its own time.
        ucs_status_t status = UCS_ERR_NO_DEVICE;
        for (int i = 0; i < 200000 && status == UCS_ERR_NO_DEVICE; ++i) {
            status = tcp::component().open_domain("near", &domain);
        }
        EXPECT_EQ(status, UCS_OK);
        const InterfaceParams params{clock,   random, table, [](void*, Endpoint*, ucs_status_t) {},
                                     nullptr, 1,      1,     nullptr};
        if (domain) {
            EXPECT_EQ(domain->open_interface("tcp", params, &interface), UCS_OK);
        }
    }
    // The kernel tells of a change in its own time.
    bool becomes(bool up) {
        for (int i = 0; i < 200000 && interface->is_link_up() != up; ++i) {
            clock.advance(std::chrono::milliseconds(1));
            interface->progress();
        }
        return interface->is_link_up() == up;
    }
    ucs::VirtualClock clock;
    ucs::Random random{1};
    AmTable table{};
    std::unique_ptr<MemoryDomain> domain;
    std::unique_ptr<Interface> interface;
};

TEST(TcpCarrier, IsLostWithEitherEndAndComesBack) {
    with_cable([] {
        Opened opened;
        ASSERT_TRUE(opened.interface);
        EXPECT_TRUE(opened.becomes(true));
        for (const char* end : {"far", "near"}) {
            EXPECT_TRUE(run(std::string("ip link set down dev ") + end));
            EXPECT_TRUE(opened.becomes(false)) << end;
            EXPECT_TRUE(run(std::string("ip link set up dev ") + end));
            EXPECT_TRUE(opened.becomes(true)) << end;
        }
    });
}

TEST(TcpCarrier, OfOtherDevicesMeansNothing) {
    with_cable([] {
        Opened opened;
        ASSERT_TRUE(opened.interface);
        EXPECT_TRUE(opened.becomes(true));
        EXPECT_TRUE(run("ip link add third type veth peer name fourth"));
        EXPECT_TRUE(run("ip link set third up && ip link set third down && ip link del third"));
        for (int i = 0; i < 100; ++i) opened.interface->progress();
        EXPECT_TRUE(opened.interface->is_link_up());
    });
}

TEST(TcpCarrier, IsAmongTheFactsOfADevice) {
    with_cable([] {
        Opened opened;
        ASSERT_TRUE(opened.domain);
        const auto facts = opened.domain->describe();
        const auto value = [&](const std::string& name) {
            const auto found = std::ranges::find(facts, name, &DeviceFact::name);
            return found == facts.end() ? std::string() : found->value;
        };
        EXPECT_EQ(value("address"), "10.77.0.1/24");
        EXPECT_NE(value("link"), "");
        EXPECT_NE(value("estimate"), "");
    });
}

// Of the routes of a network namespace: while they are lost, nothing leads anywhere.
struct Routes {
    Routes() {
        EXPECT_TRUE(
            run("ip link set lo up && ip rule add pref 10 lookup local && ip rule del "
                "pref 0"));
    }
    void go() const { EXPECT_TRUE(run("ip rule add pref 5 unreachable")); }
    void come() const { EXPECT_TRUE(run("ip rule del pref 5")); }
};

TEST(TcpCarrier, AConnectionThatFindsNoWayIsMadeWhenThereIsOne) {
    with_cable([] {
        const Routes routes;
        TcpWorld world;
        Endpoint& endpoint = world.connect(0, 1);
        routes.go();
        EXPECT_EQ(endpoint.am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
        const auto pass = [&](int milliseconds) {
            for (int i = 0; i < milliseconds; ++i) {
                world.clock.advance(std::chrono::milliseconds(1));
                world.progress();
            }
        };
        pass(3000);
        // As if it were stopped.
        world.clock.advance(std::chrono::minutes(1));
        pass(3000);
        EXPECT_TRUE(world.peer(0).failures.empty());
        routes.come();
        world.until([&] {
            world.clock.advance(std::chrono::milliseconds(1));
            return endpoint.am_short(1, 7, nullptr, 0) == UCS_OK;
        });
        world.until([&] { return world.peer(1).received.size() == 1; });
    });
}

TEST(TcpCarrier, AConnectionThatFindsNoWayFailsInTime) {
    with_cable([] {
        const Routes routes;
        TcpWorld world(2, {{"TCP_CONN_TIMEOUT", "2s"}});
        Endpoint& endpoint = world.connect(0, 1);
        routes.go();
        EXPECT_EQ(endpoint.am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
        const ucs::Time begin = world.clock.now();
        world.until([&] {
            world.clock.advance(std::chrono::milliseconds(10));
            return !world.peer(0).failures.empty();
        });
        EXPECT_EQ(world.peer(0).failures[0].status, UCS_ERR_UNREACHABLE);
        const auto lasted = world.clock.now() - begin;
        EXPECT_GE(lasted, std::chrono::seconds(2));
        EXPECT_LE(lasted, std::chrono::seconds(3));
    });
}

// Who posts chains tries again so often and no more: a loss of a few seconds must not use that up.
void expect_bulk_to_wait(const char* lose, const char* restore) {
    with_cable([=] {
        const Routes routes;
        TcpWorld world(2, {{"TCP_FAILOVER", "y"}});
        Endpoint& endpoint = world.connect(0, 1);
        world.expect_traffic(0, 1);
        Buffer target(world.peer(0), 4096, '.'), source(world.peer(1), 4096, 'n');
        const std::vector<ChainPiece> piece = {{target.data(), target.size(),
                                                target.iov(0, target.size()).memory,
                                                source.address(), source.key_for(world.peer(0))}};
        EXPECT_TRUE(run(lose));
        Waiter get;
        unsigned failures = 0;
        const auto goes_on = [&] {
            world.clock.advance(std::chrono::milliseconds(1));
            if (get.done && get.status != UCS_OK) {
                EXPECT_EQ(get.status, UCS_ERR_UNREACHABLE);
                ++failures;
                get = {};
                EXPECT_EQ(endpoint.get_chain(piece, &get), 1);
            }
            return get.done;
        };
        EXPECT_EQ(endpoint.get_chain(piece, &get), 1);
        for (int i = 0; i < 5000; ++i) {
            EXPECT_FALSE(goes_on());
            world.progress();
        }
        EXPECT_LE(failures, 3u);
        EXPECT_TRUE(run(restore));
        world.until(goes_on);
        EXPECT_EQ(target.text(), source.text());
        EXPECT_TRUE(world.peer(0).failures.empty());
    });
}

TEST(TcpCarrier, ABulkConnectionOfASessionWaitsForALinkThatIsLost) {
    expect_bulk_to_wait("ip link set lo down", "ip link set lo up");
}

TEST(TcpCarrier, ABulkConnectionOfASessionWaitsForRoutesThatAreLost) {
    expect_bulk_to_wait("ip rule add pref 5 unreachable", "ip rule del pref 5");
}

// The time for a handshake is nearly over when the peer, which was stopped, goes on; then the link
// is lost, and what is sent finds no answer.
TEST(TcpCarrier, ThatIsLostLateInAHandshakeEndsItNotAtOnce) {
    with_cable([] {
        const Routes routes;
        TcpWorld world(2, {{"TCP_CONN_TIMEOUT", "10s"}});
        Impostor listener(world);
        std::unique_ptr<Endpoint> endpoint;
        ASSERT_EQ(world.peer(0).interface->create_endpoint(listener.address(), &endpoint), UCS_OK);
        EXPECT_EQ(endpoint->am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
        listener.hear<tcp::wire::Hello>();
        world.clock.advance(std::chrono::milliseconds(9900));
        listener.say(listener.challenge());
        EXPECT_TRUE(run("ip link set lo down"));
        world.progress_some(10);
        // The kernel sends it again in time of its own.
        poll(nullptr, 0, 1000);
        world.clock.advance(std::chrono::milliseconds(200));
        world.progress_some(10);
        EXPECT_TRUE(world.peer(0).failures.empty());
        EXPECT_TRUE(run("ip link set lo up"));
        listener.hear<tcp::wire::Proof>();
        endpoint.reset();
    });
}

}  // namespace
}  // namespace uct::test

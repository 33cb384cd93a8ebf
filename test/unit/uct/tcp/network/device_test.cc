// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/device.h"

#include <gtest/gtest.h>

#include <chrono>

namespace uct::tcp::test {
namespace {

using namespace std::chrono_literals;

unsigned asked;
bool leads;

bool ask(const NetworkDevice&, const IpAddress&) {
    ++asked;
    return leads;
}

IpAddress address(uint8_t last, uint8_t version = 4) {
    IpAddress made;
    made.version = version;
    made.bytes = {10, 0, 0, last};
    return made;
}

struct RoutesTest : testing::Test {
    RoutesTest() {
        asked = 0;
        leads = true;
    }
    NetworkDevice device;
    Routes routes{device, ask};
    ucs::Time now = ucs::Time{} + 1h;
};

TEST_F(RoutesTest, AreAskedForOnceForAnAddress) {
    for (unsigned count = 0; count < 100; ++count) EXPECT_TRUE(routes.lead_to(address(1), now));
    EXPECT_EQ(asked, 1u);
    leads = false;
    EXPECT_FALSE(routes.lead_to(address(2), now));
    EXPECT_FALSE(routes.lead_to(address(1, 6), now));
    EXPECT_TRUE(routes.lead_to(address(1), now + 999ms));
    EXPECT_EQ(asked, 3u);
}

TEST_F(RoutesTest, ChangeWithTimeAndLinks) {
    EXPECT_TRUE(routes.lead_to(address(1), now));
    leads = false;
    EXPECT_FALSE(routes.lead_to(address(1), now + 1s));
    leads = true;
    routes.forget();
    EXPECT_TRUE(routes.lead_to(address(1), now + 1s));
    EXPECT_EQ(asked, 3u);
}

TEST_F(RoutesTest, NoMoreAreKeptThanAreOfUse) {
    for (unsigned count = 0; count < 10000; ++count) {
        IpAddress to = address(0);
        to.bytes[2] = static_cast<uint8_t>(count >> 8);
        to.bytes[3] = static_cast<uint8_t>(count);
        EXPECT_TRUE(routes.lead_to(to, now));
    }
    EXPECT_EQ(asked, 10000u);
    EXPECT_LE(routes.kept(), 4096u);
}

}  // namespace
}  // namespace uct::tcp::test

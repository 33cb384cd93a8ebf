// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/driver/savings.h"

#include <gtest/gtest.h>

namespace ucp::test {
namespace {

uct::InterfaceAttributes costs(double latency, double overhead, double bandwidth) {
    uct::InterfaceAttributes attributes;
    attributes.latency = {latency, 0};
    attributes.overhead = overhead;
    attributes.bandwidth = bandwidth;
    return attributes;
}

TEST(Savings, AreTheDifferenceOfCosts) {
    const auto value = savings(costs(700e-9, 50e-9, 1e9), costs(600e-9, 40e-9, 2e9), 1000,
                               std::nullopt, std::nullopt);
    EXPECT_NEAR(value.per_message, 110, 1e-6);
    EXPECT_NEAR(value.per_byte, 0.5 + 0.11, 1e-6) << "the byte itself, and its part of a slice";
}

TEST(Savings, CountTheCostOfOneEndpointAtEachEnd) {
    auto dedicated = costs(600e-9, 0, 1e9);
    dedicated.latency.per_endpoint = 1e-9;
    const auto value = savings(costs(660e-9, 0, 1e9), dedicated, 65536, std::nullopt, std::nullopt);
    EXPECT_NEAR(value.per_message, 59, 1e-6);
    EXPECT_NEAR(value.per_byte, 59.0 / 65536, 1e-9);
}

TEST(Savings, AreNeverNothing) {
    const auto value =
        savings(costs(600e-9, 0, 2e9), costs(700e-9, 0, 1e9), 1000, std::nullopt, std::nullopt);
    EXPECT_EQ(value.per_message, 1);
    EXPECT_NEAR(value.per_byte, 1e-3, 1e-9);
}

TEST(Savings, AByteIsWorthWhatItWasMeasuredToTakeLess) {
    const auto one = costs(700e-9, 0, 1e9), other = costs(600e-9, 0, 2e9);
    const auto more = savings(one, other, 1000, std::nullopt, 0.2e-9);
    EXPECT_NEAR(more.per_message, 100, 1e-6);
    EXPECT_NEAR(more.per_byte, 0.2, 1e-9) << "slices are contained";
    EXPECT_EQ(savings(one, other, 1000, std::nullopt, -0.1e-9).per_byte, 0);
}

TEST(Savings, BytesWeighWhatTheUserSays) {
    const auto one = costs(700e-9, 0, 1e9), other = costs(600e-9, 0, 1e9);
    EXPECT_NEAR(savings(one, other, 1000, 50, 9e-9).per_byte, 2, 1e-6);
    EXPECT_EQ(savings(one, other, 1000, 0, 9e-9).per_byte, 0);
}

}  // namespace
}  // namespace ucp::test

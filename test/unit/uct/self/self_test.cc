// SPDX-License-Identifier: BSD-3-Clause
#include "uct/self/self_interface.h"

#include <memory>
#include <vector>

#include "unit/uct/world.h"

namespace uct::test {
namespace {

class Self : public testing::Test {
  protected:
    World world_{{"self", "self"}};
    Peer& peer_ = world_.peer(0);
    Endpoint& endpoint_ = world_.connect(0, 0);
};

TEST_F(Self, AHandlerThatAnswersItselfDoesNotHoldProgress) {
    peer_.on_message = [&](const Message&) {
        EXPECT_EQ(endpoint_.am_short(1, 0, nullptr, 0), UCS_OK);
    };
    ASSERT_EQ(endpoint_.am_short(1, 0, nullptr, 0), UCS_OK);
    for (size_t call = 1; call <= 3; ++call) {
        peer_.interface->progress();
        EXPECT_EQ(peer_.received.size(), call);
    }
}

TEST_F(Self, WhatIsSentIsToBeDelivered) {
    const Interest& interest = peer_.interface->interest();
    peer_.interface->progress();
    EXPECT_FALSE(interest.is_met());
    ASSERT_EQ(endpoint_.am_short(1, 0, nullptr, 0), UCS_OK);
    EXPECT_TRUE(interest.is_met());
    EXPECT_EQ(peer_.interface->progress(), 1u);
    EXPECT_FALSE(interest.is_met()) << "a look more for each message";
}

TEST_F(Self, MessagesThatAreQueuedOrKeptAreLimitedInNumber) {
    peer_.keep = true;
    unsigned sent = 0;
    while (endpoint_.am_short(1, 0, nullptr, 0) == UCS_OK) ASSERT_LT(++sent, 10000u);
    EXPECT_GE(sent, 64u);
    peer_.interface->progress();
    EXPECT_EQ(peer_.kept.size(), sent);
    EXPECT_EQ(endpoint_.am_short(1, 0, nullptr, 0), UCS_ERR_NO_RESOURCE) << "all are kept";
    peer_.kept.back().first->release();
    peer_.kept.pop_back();
    EXPECT_EQ(endpoint_.am_short(1, 0, nullptr, 0), UCS_OK);
}

TEST_F(Self, OnlyTheOwnWorkerIsReached) {
    std::vector<std::byte> interface = peer_.interface_address();
    EXPECT_TRUE(peer_.interface->is_reachable({{}, interface, {}}));
    interface.back() ^= std::byte{1};
    EXPECT_FALSE(peer_.interface->is_reachable({{}, interface, {}}));
    std::unique_ptr<Endpoint> endpoint;
    EXPECT_EQ(peer_.interface->create_endpoint({{}, interface, {}}, &endpoint),
              UCS_ERR_UNREACHABLE);
}

}  // namespace
}  // namespace uct::test

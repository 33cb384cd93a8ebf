// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <string>
#include <vector>

#include "unit/uct/chains.h"

// What comes behind a chain: messages, and immediate data that needs none.
namespace uct::test {
namespace {

const Settings kPatient = {
    {"RC_TIMEOUT", "10us"}, {"RC_RETRY_COUNT", "7"}, {"RC_TX_QUEUE_LEN", "32"}};
constexpr size_t kCount = 8;
constexpr uint64_t kTag = 0x1122334455667788;
constexpr uint8_t kId = 9;
constexpr uint32_t kValue = 0xfedcba98;

// Of a transport whose interface says that it can, in the settings of its line.
class Behind : public Chains {
  protected:
    explicit Behind(uint32_t capability = kOrderedChain, const Settings& settings = kPatient)
        : Chains(settings), capability_(capability) {}

    void SetUp() override {
        Chains::SetUp();
        if ((near.interface->attributes().capabilities & capability_) == 0) GTEST_SKIP();
    }

  private:
    const uint32_t capability_;
};

TEST_P(Behind, AMessageFindsEveryByteOfTheChainBeforeIt) {
    Buffer local(near, kCount * kPiece), remote(far, kCount * kPiece);
    const auto list = pieces(local, remote, kCount);
    size_t seen = 0;
    far.on_message = [&](const Message& message) {
        EXPECT_TRUE(remote.text() == std::string(remote.size(), message.data[0])) << seen;
        ++seen;
    };
    for (size_t round = 0; round < 20; ++round) {
        world.lose_packets(0.05, round + 1);
        const char fill = static_cast<char>('a' + round);
        std::memset(local.data(), fill, local.size());
        std::vector<Once> chains(kCount);
        const size_t posted = post_all(true, list, chains);
        send_bcopy(world, *endpoint, kId, {fill});
        world.until([&] { return seen == round + 1 && all_called(chains, posted); });
    }
    EXPECT_TRUE(near.failures.empty());
}

INSTANTIATE_TEST_SUITE_P(Uct, Behind, testing::ValuesIn(transports_where(has_chains)), case_name);

class Immediates : public Behind {
  protected:
    explicit Immediates(const Settings& settings = kPatient) : Behind(kImmediate, settings) {}

    void SetUp() override {
        Behind::SetUp();
        if (!IsSkipped()) other().deliver_immediates(kId, kTag);
    }
    Endpoint& other() { return world.other_end(*endpoint); }
    ssize_t put(std::span<const ChainPiece> list, uint32_t value, Completion* completion) {
        return endpoint->put_chain_immediate(list, value, completion);
    }
    static std::string content(uint64_t value) {
        const uint64_t words[] = {kTag, value};
        return {reinterpret_cast<const char*>(words), sizeof(words)};
    }
};

TEST_P(Immediates, ComeAsMessagesThatFindEveryByte) {
    Buffer local(near, kCount * kPiece), remote(far, kCount * kPiece);
    const auto list = pieces(local, remote, kCount);
    uint32_t round = 0;
    far.on_message = [&](const Message& message) {
        EXPECT_EQ(message.id, kId);
        EXPECT_EQ(message.data, content(kValue + round));
        EXPECT_TRUE(remote.text() == std::string(remote.size(), static_cast<char>('a' + round)));
    };
    for (; round < 20; ++round) {
        world.lose_packets(0.05, round + 1);
        std::memset(local.data(), static_cast<int>('a' + round), local.size());
        Once once;
        ASSERT_EQ(put(list, kValue + round, &once), ssize_t{kCount});
        world.until([&] { return once.calls == 1 && far.received.size() == round + 1; });
        EXPECT_EQ(once.status, UCS_OK);
    }
    world.progress_some(50);
    EXPECT_EQ(far.received.size(), 20u);
    EXPECT_TRUE(near.failures.empty());
}

TEST_P(Immediates, KeepTheirPlaceAmongMessages) {
    Buffer local(near, kPiece), remote(far, kPiece);
    const auto list = pieces(local, remote, 1);
    world.lose_packets(0.05, 7);
    Once once;
    once.count = 0;
    for (uint32_t i = 0; i < 50; ++i) {
        send_short(world, *endpoint, 1, i, "before");
        world.until([&] {
            ++once.count;
            const ssize_t taken = put(list, i, &once);
            if (taken == 0) --once.count;
            return taken != 0;
        });
        send_bcopy(world, *endpoint, 2, "behind");
    }
    world.until([&] { return far.received.size() == 150; });
    for (size_t i = 0; i < 150; ++i) {
        EXPECT_EQ(far.received[i].id, i % 3 == 0 ? 1 : i % 3 == 1 ? kId : 2);
    }
    EXPECT_EQ(flush(world, *endpoint), UCS_OK);
}

TEST_P(Immediates, WaitAtAClosedGateAsMessagesDo) {
    Gate gate;
    other().set_receive_gate(&gate);
    Buffer local(near, kPiece), remote(far, kPiece);
    const auto list = pieces(local, remote, 1);
    Once once;
    ASSERT_EQ(put(list, kValue, &once), 1);
    world.until([&] { return gate.held.size() == 1; });
    EXPECT_EQ(gate.held[0].id, kId);
    EXPECT_EQ(gate.held[0].data, content(kValue));
    EXPECT_TRUE(far.received.empty());
    other().set_receive_gate(nullptr);
}

TEST_P(Immediates, AreDroppedByAnEndpointThatExpectsNone) {
    Endpoint& quiet = world.connect(0, 1);
    Buffer local(near, kPiece), remote(far, kPiece);
    Once once;
    ASSERT_EQ(quiet.put_chain_immediate(pieces(local, remote, 1), kValue, &once), 1);
    world.until([&] { return once.calls == 1; });
    EXPECT_EQ(once.status, UCS_OK);
    world.progress_some(50);
    EXPECT_TRUE(far.received.empty());
    send_bcopy(world, quiet, 1, "alive");
    world.until([&] { return far.received.size() == 1; });
}

TEST_P(Immediates, GoOnlyWithAChainThatIsTakenWhole) {
    constexpr size_t kMany = 64;  // more than the queue has room for
    Buffer local(near, kMany * kPiece), remote(far, kMany * kPiece);
    Once once;
    const ssize_t taken = put(pieces(local, remote, kMany), kValue, &once);
    ASSERT_GT(taken, 0);
    ASSERT_LT(taken, ssize_t{kMany});
    world.until([&] { return once.calls == 1; });
    world.progress_some(50);
    EXPECT_TRUE(far.received.empty());
}

TEST_P(Immediates, OutliveTheReceivingEndpoint) {
    Buffer local(near, kPiece), remote(far, kPiece);
    far.runs = false;
    Once once;
    ASSERT_EQ(put(pieces(local, remote, 1), kValue, &once), 1);
    world.until([&] { return once.calls == 1; });
    world.destroy(other());
    far.runs = true;
    world.until([&] { return far.received.size() == 1; });
    EXPECT_EQ(far.received[0].data, content(kValue));
}

TEST_P(Immediates, OfAChainThatFailsDoNotCome) {
    Buffer local(near, kCount * kPiece), remote(far, kCount * kPiece);
    for (size_t position = 0; position < kCount; ++position) {
        endpoint = &world.connect(0, 1);
        other().deliver_immediates(kId, kTag);
        auto list = pieces(local, remote, kCount);
        list[position].remote += kCount * kPiece;  // past the end of the registration
        Once once;
        ASSERT_EQ(put(list, kValue, &once), ssize_t{kCount});
        world.until([&] { return once.calls != 0; });
        EXPECT_EQ(once.status, UCS_ERR_REJECTED);
        world.progress_some(50);
        EXPECT_TRUE(far.received.empty()) << position;
        EXPECT_LT(put(list, kValue, &once), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(Uct, Immediates, testing::ValuesIn(transports_where(has_chains)),
                         case_name);

class ImmediateCredits : public Immediates {
  protected:
    ImmediateCredits() : Immediates({{"RC_FC_WND_SIZE", "20"}, {"RC_RX_QUEUE_LEN", "256"}}) {}
};

TEST_P(ImmediateCredits, UseUpTheWindowAndLeaveRequestsToMessages) {
    Buffer local(near, kPiece), remote(far, kPiece);
    const auto list = pieces(local, remote, 1);
    Once once;
    once.count = 1;
    far.runs = false;
    size_t sent = 0, messages = 0;
    // Where the next message has to ask for more, only a message goes.
    for (int refusals = 0; refusals < 50;) {
        ++once.count;
        if (put(list, static_cast<uint32_t>(sent), &once) == 1) {
            ++sent;
            refusals = 0;
            continue;
        }
        --once.count;
        if (endpoint->am_short(1, 0, nullptr, 0) == UCS_OK) {
            ++messages;
        } else {
            ++refusals;
            world.progress();
        }
    }
    EXPECT_EQ(sent + messages, 20u);
    EXPECT_EQ(messages, 2u);
    EXPECT_EQ(world.receivers_not_ready(), 0u);
    // A chain alone needs no credit.
    Once alone;
    EXPECT_EQ(post(true, list, &alone), 1);

    far.runs = true;
    world.until([&] {
        ++once.count;
        const bool has_room = put(list, static_cast<uint32_t>(sent), &once) == 1;
        has_room ? ++sent : --once.count;
        if (!has_room && endpoint->am_short(1, 0, nullptr, 0) == UCS_OK) ++messages;
        return sent >= 500;
    });
    world.until([&] { return far.received.size() == sent + messages; });
    uint64_t next = 0;
    for (const Message& message : far.received) {
        if (message.id != kId) continue;
        EXPECT_EQ(message.data, content(next));
        ++next;
    }
    EXPECT_EQ(next, sent);
    EXPECT_EQ(flush(world, *endpoint), UCS_OK);
}

INSTANTIATE_TEST_SUITE_P(Uct, ImmediateCredits, testing::ValuesIn(transports_where(has_chains)),
                         case_name);

}  // namespace
}  // namespace uct::test

// SPDX-License-Identifier: BSD-3-Clause
#include <vector>

#include "unit/uct/world.h"

/** Variables of queue pairs and completion queues do what their help texts say. */
namespace uct::test {
namespace {

struct Counting : Completion {
    explicit Counting(int& total) : ends(total) {
        count = 1;
        callback = [](Completion* self) { ++static_cast<Counting*>(self)->ends; };
    }
    int& ends;
};

bool is_connected_adapter(const std::string& transport) {
    return is_soft_adapter(transport) && transport != "ud_verbs";
}

class QueueKnobs : public testing::TestWithParam<TransportCase> {};

TEST_P(QueueKnobs, MessagesTakenByOneCall) {
    for (const size_t most : {3, 7}) {
        World world(GetParam(), 2, {{"IB_RX_MAX_POLL", std::to_string(most)}});
        Endpoint& endpoint = world.connect(0, 1);
        world.peer(1).runs = false;
        for (uint64_t i = 0; i < 16; ++i) send_short(world, endpoint, 1, i, "");
        EXPECT_EQ(flush(world, endpoint), UCS_OK);  // they lie at the receiver
        world.peer(1).interface->progress();
        EXPECT_EQ(world.peer(1).received.size(), most);
    }
}

TEST_P(QueueKnobs, CompletionsTakenByOneCall) {
    for (const int most : {2, 5}) {
        World world(GetParam(), 2, {{"IB_TX_MAX_POLL", std::to_string(most)}});
        const auto& attributes = world.peer(0).interface->attributes();
        if ((attributes.capabilities & kPutChain) == 0) GTEST_SKIP() << "has no chains";
        Endpoint& endpoint = world.connect(0, 1);
        Buffer local(world.peer(0), 64), remote(world.peer(1), 64);
        const RemoteKey key = remote.key_for(world.peer(0));
        int ends = 0;
        std::vector<Counting> completions(8, Counting(ends));
        world.peer(0).runs = false;
        for (Counting& completion : completions) {
            const Iov iov = local.iov(0, 64);
            const ChainPiece piece{local.data(), 64, iov.memory, remote.address(), key};
            ASSERT_EQ(endpoint.put_chain({&piece, 1}, &completion), 1);
        }
        world.progress_some(200);
        ASSERT_EQ(ends, 0);
        world.peer(0).interface->progress();
        EXPECT_EQ(ends, most);
        world.peer(0).runs = true;
        world.until([&] { return ends == 8; });
    }
}

TEST_P(QueueKnobs, BytesInsideAWorkRequest) {
    World small(GetParam(), 2, {{"IB_TX_MIN_INLINE", "64"}});
    World large(GetParam(), 2, {{"IB_TX_MIN_INLINE", "400"}});
    EXPECT_LT(small.peer(0).interface->attributes().put.max_short, 400u);
    ASSERT_GE(large.peer(0).interface->attributes().put.max_short, 400u);
    Endpoint& endpoint = large.connect(0, 1);
    Buffer remote(large.peer(1), 400, '.');
    const std::string text(400, 'i');
    EXPECT_EQ(endpoint.put_short(text.data(), 400, remote.address(), remote.key_for(large.peer(0))),
              UCS_OK);
    EXPECT_EQ(flush(large, endpoint), UCS_OK);
    EXPECT_EQ(remote.text(), text);
}

TEST_P(QueueKnobs, PiecesOfAWorkRequest) {
    for (const size_t pieces : {2, 3, 5}) {
        World world(GetParam(), 2, {{"IB_TX_MIN_SGE", std::to_string(pieces)}});
        const InterfaceAttributes& attributes = world.peer(0).interface->attributes();
        ASSERT_EQ(attributes.put.max_iov, pieces - 1);
        EXPECT_EQ(attributes.get.max_iov, pieces - 1);
        EXPECT_EQ(attributes.am.max_iov, pieces - 1);
        Endpoint& endpoint = world.connect(0, 1);
        Buffer local(world.peer(0), 40, 'l'), remote(world.peer(1), 40, '.');
        const RemoteKey key = remote.key_for(world.peer(0));
        std::vector<Iov> iov;
        for (size_t i = 0; i + 1 < pieces; ++i) iov.push_back(local.iov(i * 10, 10));
        int ends = 0;
        Counting completion(ends);
        ASSERT_EQ(endpoint.put_zcopy(iov, remote.address(), key, &completion), UCS_INPROGRESS);
        world.until([&] { return ends == 1; });
        EXPECT_EQ(completion.status, UCS_OK);
        EXPECT_EQ(remote.text().substr(0, iov.size() * 10), std::string(iov.size() * 10, 'l'));
        iov.push_back(local.iov(0, 10));
        EXPECT_EQ(endpoint.put_zcopy(iov, remote.address(), key, nullptr), UCS_ERR_INVALID_PARAM);
    }
}

INSTANTIATE_TEST_SUITE_P(Uct, QueueKnobs, testing::ValuesIn(transports_where(is_connected_adapter)),
                         case_name);

}  // namespace
}  // namespace uct::test

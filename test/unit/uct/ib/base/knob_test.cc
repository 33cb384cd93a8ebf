// SPDX-License-Identifier: BSD-3-Clause
#include <vector>

#include "unit/uct/world.h"

// Variables of queue pairs and completion queues do what their help texts say.
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

// Writes until the endpoint has no room; nothing is acknowledged meanwhile. @return how many
unsigned fill_queue(Endpoint& endpoint, Buffer& local, Buffer& remote, RemoteKey key) {
    const Iov iov[] = {local.iov(0, 8)};
    for (unsigned count = 0;; ++count) {
        const ucs_status_t status = endpoint.put_zcopy(iov, remote.address(), key, nullptr);
        if (status == UCS_ERR_NO_RESOURCE) return count;
        EXPECT_EQ(status, UCS_INPROGRESS);
        if (status != UCS_INPROGRESS) return count;
    }
}

TEST_P(QueueKnobs, WorkRequestsOfAQueue) {
    for (const unsigned length : {16, 100}) {
        World world(GetParam(), 2, {{"IB_TX_QUEUE_LEN", std::to_string(length)}});
        Endpoint& endpoint = world.connect(0, 1);
        Buffer local(world.peer(0), 8), remote(world.peer(1), 8);
        const RemoteKey key = remote.key_for(world.peer(0));
        const unsigned posted = fill_queue(endpoint, local, remote, key);
        EXPECT_LE(posted, length);
        EXPECT_GE(posted, length - 2);  // one is kept for what completes the others
        EXPECT_EQ(flush(world, endpoint), UCS_OK);
    }
}

TEST_P(QueueKnobs, WorkRequestsOfAnInterface) {
    constexpr unsigned kQueues = 8;
    for (const unsigned length : {100, 200}) {
        World world(GetParam(), 2,
                    {{"IB_TX_CQ_LEN", std::to_string(length)}, {"IB_TX_QUEUE_LEN", "64"}});
        Buffer local(world.peer(0), 8), remote(world.peer(1), 8);
        const RemoteKey key = remote.key_for(world.peer(0));
        std::vector<Endpoint*> endpoints;
        for (unsigned i = 0; i < kQueues; ++i) endpoints.push_back(&world.connect(0, 1));
        unsigned posted = 0;
        for (Endpoint* endpoint : endpoints) posted += fill_queue(*endpoint, local, remote, key);
        EXPECT_LE(posted, length);
        EXPECT_GE(posted, length - 4 * kQueues);  // each queue keeps some for itself
        for (Endpoint* endpoint : endpoints) EXPECT_EQ(flush(world, *endpoint), UCS_OK);
    }
}

TEST_P(QueueKnobs, ReadsUnderWayOnAQueue) {
    constexpr unsigned kReads = 16;
    for (const unsigned most : {1, 4}) {
        World world(GetParam(), 2, {{"IB_MAX_RD_ATOMIC", std::to_string(most)}});
        Endpoint& endpoint = world.connect(0, 1);
        Buffer local(world.peer(0), 64), remote(world.peer(1), 64);
        const RemoteKey key = remote.key_for(world.peer(0));
        // Each read takes so long on its way, and nothing else takes any time.
        constexpr uint64_t kWay = 1000;
        softhca::FaultPlan plan;
        plan.delay = 1;
        plan.delay_ns = kWay;
        world.fabric()->set_faults(plan);
        int ends = 0;
        std::vector<Counting> completions(kReads, Counting(ends));
        const uint64_t start = world.fabric()->now();
        const Iov iov[] = {local.iov(0, 64)};
        for (Counting& completion : completions) {
            ASSERT_EQ(endpoint.get_zcopy(iov, remote.address(), key, &completion), UCS_INPROGRESS);
        }
        world.until([&] { return ends == kReads; });
        EXPECT_EQ(world.fabric()->now() - start, kReads / most * kWay);
    }
}

// A write to a peer that is dead. @return how long until it failed
uint64_t time_to_failure(World& world) {
    Endpoint& endpoint = world.connect(0, 1);
    Buffer local(world.peer(0), 8), remote(world.peer(1), 8);
    const RemoteKey key = remote.key_for(world.peer(0));
    world.kill(1);
    const uint64_t start = world.fabric()->now();
    int ends = 0;
    Counting completion(ends);
    const Iov iov[] = {local.iov(0, 8)};
    EXPECT_EQ(endpoint.put_zcopy(iov, remote.address(), key, &completion), UCS_INPROGRESS);
    while (ends == 0 && world.fabric()->step()) world.peer(0).interface->progress();
    EXPECT_EQ(completion.status, UCS_ERR_ENDPOINT_TIMEOUT);
    return world.fabric()->now() - start;
}

TEST_P(QueueKnobs, RetransmissionsBeforeAPeerCountsAsDead) {
    for (const unsigned count : {1, 5}) {
        World world(GetParam(), 2, {{"IB_RETRY_COUNT", std::to_string(count)}});
        time_to_failure(world);
        EXPECT_EQ(world.fabric()->counters(0).retransmissions, count);
    }
}

TEST_P(QueueKnobs, TimeBeforeARetransmission) {
    for (const unsigned exponent : {3, 8}) {
        const uint64_t wait = uint64_t{4096} << exponent;
        World world(GetParam(), 2,
                    {{"IB_TIMEOUT", std::to_string(wait) + "ns"}, {"IB_RETRY_COUNT", "3"}});
        EXPECT_EQ(time_to_failure(world), 4 * wait);
    }
}

INSTANTIATE_TEST_SUITE_P(Uct, QueueKnobs, testing::ValuesIn(transports_where(is_connected_adapter)),
                         case_name);

}  // namespace
}  // namespace uct::test

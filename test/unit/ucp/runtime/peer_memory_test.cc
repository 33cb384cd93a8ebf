// SPDX-License-Identifier: BSD-3-Clause

// A peer that sends and sends while nobody receives: it is cut off, and others go on.

#include "ucp/runtime/peer_memory.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/runtime/sender_wires.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

constexpr size_t kReceiver = 0, kModest = 1, kGreedy = 2;
constexpr size_t kLimit = 1 << 20;

class GreedyBase {
  protected:
    explicit GreedyBase(SenderWire kind)
        : kind_(std::move(kind)), wire_(kind_.make()), cluster_(3, options()) {
        for (const size_t peer : {kModest, kGreedy}) {
            pass(kReceiver, peer);
            pass(peer, kReceiver);
        }
        if (kind_.has_lanes) join_by_lane(cluster_, kGreedy, kReceiver);
    }

    Cluster::Options options() {
        Cluster::Options options = options_for(kind_, *wire_);
        options.config.peer_memory.emplace().bytes = kLimit;
        options.config.rndv_threshold.emplace().bytes = 256 * 1024;
        return options;
    }
    void pass(size_t from, size_t to) {
        test::pass(cluster_, from, to, (uint64_t{1} << 40) + 10 * from + to);
    }
    bool is_well(size_t from, size_t to) {
        return !unwrap(cluster_.endpoint(from, to)).is_failed();
    }
    PeerMemory& held() { return cluster_.inner(kReceiver).interfaces().peer_memory(); }

    const SenderWire kind_;
    const std::unique_ptr<Wire> wire_;
    Cluster cluster_;
    ucs::LogCapture log_{ucs::LogLevel::kError};
};

class GreedyPeer : public GreedyBase,
                   public testing::TestWithParam<std::tuple<SenderWire, size_t>> {
  protected:
    GreedyPeer() : GreedyBase(std::get<0>(GetParam())) {}
};

TEST_P(GreedyPeer, IsCutOffAndOthersGoOn) {
    const std::vector<char> data(std::get<1>(GetParam()), 'x');
    std::vector<ucs_status_ptr_t> sends;
    for (size_t count = 0; count < 100000 && is_well(kReceiver, kGreedy); ++count) {
        const ucs_status_ptr_t sending = ucp_tag_send_nbx(
            cluster_.endpoint(kGreedy, kReceiver), data.data(), data.size(), count, &kNothing);
        if (UCS_PTR_IS_PTR(sending)) sends.push_back(sending);
        cluster_.steps(2);
        ASSERT_LE(held().held(cluster_.uuid(kGreedy)), kLimit);
    }
    EXPECT_FALSE(is_well(kReceiver, kGreedy));
    EXPECT_EQ(unwrap(cluster_.endpoint(kReceiver, kGreedy)).status(), UCS_ERR_EXCEEDS_LIMIT);
    EXPECT_TRUE(log_.contains("UCX_PEER_MEMORY"));
    // It learns of it: what it sends from here on fails.
    EXPECT_TRUE(cluster_.until([&] { return !is_well(kGreedy, kReceiver); }));
    for (const ucs_status_ptr_t sending : sends) cluster_.finish(sending);
    EXPECT_TRUE(is_well(kReceiver, kModest));
    pass(kModest, kReceiver);
    pass(kReceiver, kModest);
    // What had come before is there, in order, and gives its memory back.
    std::vector<char> got(data.size());
    ucs_status_t status = UCS_OK;
    size_t received = 0;
    for (; status == UCS_OK; ++received) {
        ucp_tag_recv_info_t info;
        if (ucp_tag_probe_nb(cluster_.worker(kReceiver), received, UINT64_MAX, 0, &info) == nullptr)
            break;
        status = cluster_.finish(ucp_tag_recv_nbx(cluster_.worker(kReceiver), got.data(),
                                                  got.size(), received, UINT64_MAX, &kNothing));
        EXPECT_TRUE(status != UCS_OK || got == data);
    }
    EXPECT_GE(received, size_t{3});
    EXPECT_EQ(held().held(cluster_.uuid(kGreedy)), 0u);
}

INSTANTIATE_TEST_SUITE_P(Lengths, GreedyPeer,
                         testing::Combine(testing::ValuesIn(sender_wires()),
                                          testing::Values(0, 1000, 200000)),
                         [](const auto& info) {
                             return std::get<0>(info.param).name + "_" +
                                    std::to_string(std::get<1>(info.param));
                         });

class GreedySender : public GreedyBase, public testing::TestWithParam<SenderWire> {
  protected:
    GreedySender() : GreedyBase(GetParam()) {}
};

TEST_P(GreedySender, OfStreamsNobodyReadsIsCutOff) {
    const std::vector<char> data(50000, 'x');
    std::vector<ucs_status_ptr_t> sends;
    for (size_t count = 0; count < 1000 && is_well(kReceiver, kGreedy); ++count) {
        const ucs_status_ptr_t sending = ucp_stream_send_nbx(cluster_.endpoint(kGreedy, kReceiver),
                                                             data.data(), data.size(), &kNothing);
        if (UCS_PTR_IS_PTR(sending)) sends.push_back(sending);
        cluster_.steps(4);
    }
    EXPECT_EQ(unwrap(cluster_.endpoint(kReceiver, kGreedy)).status(), UCS_ERR_EXCEEDS_LIMIT);
    EXPECT_TRUE(log_.contains("UCX_PEER_MEMORY"));
    EXPECT_TRUE(cluster_.until([&] { return !is_well(kGreedy, kReceiver); }));
    for (const ucs_status_ptr_t sending : sends) cluster_.finish(sending);
    pass(kModest, kReceiver);
}

TEST_P(GreedySender, OfBeginningsWithoutEndsIsCutOff) {
    struct {
        AmFirstHeader header;
        char data[1000];
    } first{{{3, 0, 0}, {cluster_.uuid(kGreedy), 0}, 1 << 20}, {}};
    for (size_t count = 0; count < 10000 && is_well(kReceiver, kGreedy); ++count) {
        first.header.id.number = (1u << 20) + count;
        unwrap(cluster_.endpoint(kGreedy, kReceiver))
            .send_control(AmId::kAmFirst, std::as_bytes(std::span(&first, 1)));
        cluster_.steps(2);
        ASSERT_LE(held().held(cluster_.uuid(kGreedy)), kLimit);
    }
    EXPECT_EQ(unwrap(cluster_.endpoint(kReceiver, kGreedy)).status(), UCS_ERR_EXCEEDS_LIMIT);
    pass(kModest, kReceiver);
    pass(kReceiver, kModest);
}

// Connections keep the account of their peer; which is not the one that they have kept when it has
// been forgotten meanwhile.
TEST_P(GreedySender, IsCountedAlsoWhenItsAccountWasForgotten) {
    const uint64_t peer = cluster_.uuid(kGreedy);
    const auto send = [&] {
        const uint64_t data = 1;
        cluster_.finish(ucp_tag_send_nbx(cluster_.endpoint(kGreedy, kReceiver), &data, sizeof(data),
                                         1, &kNothing));
        ASSERT_TRUE(cluster_.until([&] { return held().held(peer) != 0; }));
    };
    const auto receive = [&] {
        uint64_t data = 0;
        EXPECT_EQ(cluster_.finish(ucp_tag_recv_nbx(cluster_.worker(kReceiver), &data, sizeof(data),
                                                   1, UINT64_MAX, &kNothing)),
                  UCS_OK);
        EXPECT_EQ(held().held(peer), 0u);
    };
    send();
    receive();
    for (uint64_t other = 1; other <= 2 * PeerMemory::kFewAccounts; ++other)
        ASSERT_NE(held().account_of(other), nullptr);
    send();
    receive();
}

INSTANTIATE_TEST_SUITE_P(Wires, GreedySender, testing::ValuesIn(sender_wires()),
                         [](const auto& info) { return info.param.name; });

TEST(PeerMemory, CountsByPeerAndForgetsThoseThatHaveNothingWhenTheyAreMany) {
    PeerMemory memory;
    memory.set_limit(100);
    HeldBytes one, other;
    EXPECT_TRUE(one.open(memory, memory.account_of(1), 60));
    EXPECT_TRUE(other.open(memory, memory.account_of(2), 100));
    EXPECT_FALSE(other.grow(memory, 1));
    EXPECT_FALSE(one.grow(memory, 41));
    EXPECT_TRUE(one.grow(memory, 40));
    EXPECT_EQ(memory.held(1), 100u);
    {
        HeldBytes more;
        EXPECT_FALSE(more.open(memory, memory.account_of(1), 1));
        EXPECT_FALSE(more.open(memory, memory.account_of(1), SIZE_MAX));
        EXPECT_TRUE(more.open(memory, memory.account_of(0), SIZE_MAX)) << "its own";
    }
    one.release();
    other.release();
    EXPECT_EQ(memory.held(1), 0u);
    // Of those that come and go nobody is forgotten who has something.
    HeldBytes kept;
    EXPECT_TRUE(kept.open(memory, memory.account_of(3), 50));
    const uint32_t generation = memory.generation();
    for (uint64_t worker = 4; worker < 20 * PeerMemory::kFewAccounts; ++worker) {
        HeldBytes brief, again;
        EXPECT_TRUE(brief.open(memory, memory.account_of(worker), 100));
        if (worker == 4) continue;
        EXPECT_TRUE(again.open(memory, memory.account_of(worker - 1), 100));
        ASSERT_EQ(memory.held(worker - 1), 100u) << "what it had may be forgotten by now";
    }
    EXPECT_LE(memory.size(), PeerMemory::kFewAccounts);
    EXPECT_NE(memory.generation(), generation) << "accounts that were asked for before are gone";
    EXPECT_TRUE(kept.grow(memory, 50));
    EXPECT_FALSE(kept.grow(memory, 1));
    kept.release();
    EXPECT_EQ(memory.held(3), 0u);
}

TEST(PeerMemory, PeersThatTakeTurnsKeepTheirAccounts) {
    PeerMemory memory;
    memory.set_limit(100);
    for (int turn = 0; turn < 3; ++turn) {
        for (uint64_t worker = 1; worker <= 8; ++worker) {
            HeldBytes brief;
            EXPECT_TRUE(brief.open(memory, memory.account_of(worker), 100));
        }
    }
    EXPECT_EQ(memory.size(), 8u);
    EXPECT_EQ(memory.generation(), 0u);
}

}  // namespace
}  // namespace ucp::test

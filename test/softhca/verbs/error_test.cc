// SPDX-License-Identifier: BSD-3-Clause
#include <memory>

#include "softhca/support.h"

namespace softhca::test {
namespace {

class Errors : public VirtualTest {
  protected:
    Errors() : a_(host(0)), b_(host(1)), mine_(host(0), 64), theirs_(host(1), 64) {}
    void connect(const Wiring& wiring = {}) { join(a_, b_, wiring); }
    ibv_wc_status only_status() {
        run();
        const auto wc = host(0).poll();
        EXPECT_TRUE(wc);
        return wc ? wc->status : IBV_WC_GENERAL_ERR;
    }
    QueuePair a_;
    QueuePair b_;
    Buffer mine_;
    Buffer theirs_;
};

TEST_F(Errors, WrongLocalKeyStopsAtTheRequester) {
    connect();
    ibv_sge sge = mine_.all();
    sge.lkey ^= 1;
    a_.rdma(IBV_WR_RDMA_WRITE, 1, sge, theirs_.addr(), theirs_.mr->rkey, 0);
    EXPECT_EQ(only_status(), IBV_WC_LOC_PROT_ERR) << "an error completes even without a signal";
    EXPECT_EQ(a_.state(), IBV_QPS_ERR);
    EXPECT_EQ(b_.state(), IBV_QPS_RTS) << "the peer never heard of it";
}

TEST_F(Errors, LocalSgeOutOfBounds) {
    connect();
    a_.rdma(IBV_WR_RDMA_WRITE, 1, {mine_.addr(1), 64, mine_.mr->lkey}, theirs_.addr(),
            theirs_.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Errors, ReadIntoMemoryWithoutLocalWrite) {
    connect();
    Buffer constant(host(0), 64, IBV_ACCESS_REMOTE_READ);
    a_.rdma(IBV_WR_RDMA_READ, 1, constant.all(), theirs_.addr(), theirs_.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_LOC_PROT_ERR);
}

TEST_F(Errors, WrongRemoteKeyFailsBothEnds) {
    connect();
    b_.post_recv(9, theirs_.all());
    a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.all(), theirs_.addr(), theirs_.mr->rkey ^ 1);
    EXPECT_EQ(only_status(), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(b_.state(), IBV_QPS_ERR);
    const auto flushed = host(1).poll();
    ASSERT_TRUE(flushed);
    EXPECT_EQ(flushed->status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed->wr_id, 9u);
    const auto event = host(1).async_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_QP_ACCESS_ERR);
    EXPECT_EQ(event->element.qp, b_.qp);
}

TEST_F(Errors, RemoteBoundsAreExact) {
    connect();
    a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.sge(0, 8), theirs_.addr(56), theirs_.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_SUCCESS);
    a_.rdma(IBV_WR_RDMA_READ, 2, mine_.sge(0, 9), theirs_.addr(56), theirs_.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Errors, MissingRemoteRightsOfTheRegion) {
    Buffer readable(host(1), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    connect();
    a_.rdma(IBV_WR_RDMA_READ, 1, mine_.all(), readable.addr(), readable.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_SUCCESS);
    a_.rdma(IBV_WR_RDMA_WRITE, 2, mine_.all(), readable.addr(), readable.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Errors, MissingRemoteRightsOfTheQp) {
    connect({.access = IBV_ACCESS_REMOTE_WRITE});
    a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_SUCCESS);
    a_.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 2, mine_.sge(0, 8), theirs_.addr(), theirs_.mr->rkey, 1);
    EXPECT_EQ(only_status(), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Errors, KeyOfADeregisteredRegionIsStale) {
    connect();
    const uint32_t stale = theirs_.mr->rkey;
    ASSERT_EQ(ibv_dereg_mr(theirs_.mr), 0);
    theirs_.mr = ibv_reg_mr(host(1).pd, theirs_.bytes.data(), 64, kAllAccess);
    EXPECT_NE(theirs_.mr->rkey, stale);
    a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.all(), theirs_.addr(), stale);
    EXPECT_EQ(only_status(), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Errors, RegionOfAnotherProtectionDomain) {
    connect();
    ibv_pd* other = ibv_alloc_pd(host(1).context);
    ibv_mr* mr = ibv_reg_mr(other, theirs_.bytes.data(), 64, kAllAccess);
    a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.all(), theirs_.addr(), mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    ibv_dereg_mr(mr);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(Errors, MisalignedAtomic) {
    connect();
    a_.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, mine_.sge(0, 8), theirs_.addr(4), theirs_.mr->rkey,
              1);
    EXPECT_EQ(only_status(), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(Errors, ReceiveTooSmall) {
    connect();
    b_.post_recv(5, theirs_.sge(0, 63));
    a_.send(1, mine_.all());
    EXPECT_EQ(only_status(), IBV_WC_REM_INV_REQ_ERR);
    const auto recv = host(1).poll();
    ASSERT_TRUE(recv);
    EXPECT_EQ(recv->status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(recv->wr_id, 5u);
    EXPECT_EQ(b_.state(), IBV_QPS_ERR);
}

TEST_F(Errors, ReceiveWithABadKey) {
    connect();
    ibv_sge sge = theirs_.all();
    sge.lkey ^= 1;
    b_.post_recv(5, sge);
    a_.send(1, mine_.all());
    EXPECT_EQ(only_status(), IBV_WC_REM_OP_ERR);
    EXPECT_EQ(host(1).poll()->status, IBV_WC_LOC_PROT_ERR);
}

TEST_F(Errors, RnrGivesUpAfterItsRetries) {
    connect({.rnr_retry = 2});
    a_.send(1, mine_.all());
    EXPECT_EQ(only_status(), IBV_WC_RNR_RETRY_EXC_ERR);
    EXPECT_EQ(fabric_.counters(1).rnr, 3u) << "one try and two retries";
    EXPECT_EQ(b_.state(), IBV_QPS_RTS);
}

TEST_F(Errors, RnrSevenWaitsForEverAndKeepsOrder) {
    connect({.rnr_retry = 7});
    for (unsigned i = 0; i < 4; ++i) a_.send(i, mine_.sge(8 * i, 8));
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(fabric_.step());
    EXPECT_FALSE(host(0).poll());
    for (unsigned i = 0; i < 4; ++i) {
        mine_.word(i) = i;
        b_.post_recv(i, theirs_.sge(8 * i, 8));
    }
    run();
    EXPECT_EQ(host(0).poll_all().size(), 4u);
    const auto received = host(1).poll_all();
    ASSERT_EQ(received.size(), 4u);
    for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(theirs_.word(i), i);
}

TEST_F(Errors, PeerWithoutSuchAQp) {
    a_.connect(host(1).lid, 0xfffff);
    a_.send(1, mine_.all());
    EXPECT_EQ(only_status(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Errors, PeerInErrorOrReset) {
    connect();
    EXPECT_EQ(b_.modify(IBV_QPS_ERR), 0);
    a_.send(1, mine_.all());
    EXPECT_EQ(only_status(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(a_.modify(IBV_QPS_RESET), 0);
    EXPECT_EQ(b_.modify(IBV_QPS_RESET), 0);
    a_.connect(host(1).lid, b_.qp->qp_num);
    a_.send(2, mine_.all());
    EXPECT_EQ(only_status(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Errors, PeerThatConnectsLateIsReached) {
    a_.connect(host(1).lid, b_.qp->qp_num, {.retry_cnt = 7, .timeout = 14});
    a_.send(1, mine_.all());
    for (int i = 0; i < 3; ++i) fabric_.step();
    b_.connect(host(0).lid, a_.qp->qp_num);
    b_.post_recv(1, theirs_.all());
    EXPECT_EQ(only_status(), IBV_WC_SUCCESS);
}

TEST_F(Errors, DeadNodeAndLinkDown) {
    connect();
    fabric_.set_link(1, false);
    a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(host(1).async_event()->event_type, IBV_EVENT_PORT_ERR);
    fabric_.set_link(1, true);
    EXPECT_EQ(host(1).async_event()->event_type, IBV_EVENT_PORT_ACTIVE);
    QueuePair c(host(0));
    QueuePair d(host(1));
    join(c, d);
    fabric_.kill_node(1);
    c.rdma(IBV_WR_RDMA_WRITE, 2, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Errors, FlushCompletesEverythingInOrder) {
    connect();
    for (uint64_t i = 0; i < 5; ++i) a_.post_recv(100 + i, mine_.sge(0, 8));
    a_.rdma(IBV_WR_RDMA_WRITE, 0, mine_.all(), theirs_.addr(), 0x12345, 0);
    for (uint64_t i = 1; i < 5; ++i) {
        a_.rdma(IBV_WR_RDMA_WRITE, i, mine_.all(), theirs_.addr(), theirs_.mr->rkey, 0);
    }
    run();
    const auto all = host(0).poll_all();
    ASSERT_EQ(all.size(), 10u);
    std::vector<uint64_t> sends;
    std::vector<uint64_t> receives;
    for (const ibv_wc& wc : all) {
        (wc.wr_id < 100 ? sends : receives).push_back(wc.wr_id);
        EXPECT_EQ(wc.status, wc.wr_id == 0 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
    }
    EXPECT_EQ(sends, (std::vector<uint64_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(receives, (std::vector<uint64_t>{100, 101, 102, 103, 104}));
    EXPECT_EQ(all[0].wr_id, 0u) << "the reason comes first";
    // Whatever is posted from now on is flushed too.
    a_.send(50, mine_.all(), 0);
    a_.post_recv(150, mine_.all());
    const auto late = host(0).poll_all();
    ASSERT_EQ(late.size(), 2u);
    EXPECT_EQ(late[0].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(late[1].status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Errors, LastWqeReachedOfAnSrqQp) {
    QueuePair c(host(0));
    QueuePair d(host(1), {.use_srq = true});
    join(c, d);
    ASSERT_EQ(d.modify(IBV_QPS_ERR), 0);
    const auto event = host(1).async_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    EXPECT_EQ(event->element.qp, d.qp);
}

TEST_F(Errors, ErrorsOfOtherQpsDoNotSpread) {
    QueuePair c(host(0));
    QueuePair d(host(1));
    connect();
    join(c, d);
    a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.all(), theirs_.addr(), 0x12345);
    c.rdma(IBV_WR_RDMA_WRITE, 2, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
    run();
    const auto all = host(0).poll_all();
    ASSERT_EQ(all.size(), 2u);
    for (const ibv_wc& wc : all) {
        EXPECT_EQ(wc.status, wc.wr_id == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
    }
}

TEST_F(Errors, ResetQpWorksAgain) {
    connect();
    a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.all(), theirs_.addr(), 0x12345);
    EXPECT_EQ(only_status(), IBV_WC_REM_ACCESS_ERR);
    ASSERT_EQ(a_.modify(IBV_QPS_RESET), 0);
    ASSERT_EQ(b_.modify(IBV_QPS_RESET), 0);
    connect();
    a_.rdma(IBV_WR_RDMA_WRITE, 2, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
    EXPECT_EQ(only_status(), IBV_WC_SUCCESS);
}

TEST_F(Errors, DestroyedQpLeavesNoCompletions) {
    connect();
    auto c = std::make_unique<QueuePair>(host(0));
    QueuePair d(host(1));
    join(*c, d);
    c->rdma(IBV_WR_RDMA_WRITE, 1, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
    a_.rdma(IBV_WR_RDMA_WRITE, 2, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
    run();
    c.reset();
    const auto all = host(0).poll_all();
    ASSERT_EQ(all.size(), 1u);
    EXPECT_EQ(all[0].wr_id, 2u);
}

}  // namespace
}  // namespace softhca::test

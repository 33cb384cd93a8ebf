// SPDX-License-Identifier: BSD-3-Clause
#include <memory>

#include "softhca/support.h"

namespace softhca::test {
namespace {

class Rc : public VirtualTest {
  protected:
    Rc() : a_(host(0)), b_(host(1)) { join(a_, b_); }
    QueuePair a_;
    QueuePair b_;
};

TEST_F(Rc, SendArrivesWithLengthAndQpNumbers) {
    Buffer from(host(0), 100, kAllAccess, 'x');
    Buffer to(host(1), 200);
    ASSERT_EQ(b_.post_recv(7, to.all()), 0);
    ASSERT_EQ(a_.send(1, from.all()), 0);
    EXPECT_FALSE(host(1).poll()) << "nothing happens before time moves";
    run();
    const auto recv = host(1).poll();
    ASSERT_TRUE(recv);
    EXPECT_EQ(recv->status, IBV_WC_SUCCESS);
    EXPECT_EQ(recv->opcode, IBV_WC_RECV);
    EXPECT_EQ(recv->wr_id, 7u);
    EXPECT_EQ(recv->byte_len, 100u);
    EXPECT_EQ(recv->qp_num, b_.qp->qp_num);
    EXPECT_EQ(recv->src_qp, a_.qp->qp_num);
    EXPECT_EQ(to.bytes[99], 'x');
    EXPECT_EQ(to.bytes[100], 0);
    const auto sent = host(0).poll();
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->wr_id, 1u);
    EXPECT_EQ(sent->opcode, IBV_WC_SEND);
}

TEST_F(Rc, ImmediateWriteReadAndInline) {
    Buffer mine(host(0), 64, kAllAccess, 'w');
    Buffer theirs(host(1), 64);
    ASSERT_EQ(b_.post_recv(1, {0, 0, 0}), 0);
    ASSERT_EQ(a_.rdma(IBV_WR_RDMA_WRITE_WITH_IMM, 1, mine.all(), theirs.addr(), theirs.mr->rkey,
                      IBV_SEND_SIGNALED | IBV_SEND_INLINE, 0xabcd),
              0);
    mine.bytes.assign(64, 'z');  // inline data was taken at the post
    run();
    const auto recv = host(1).poll();
    ASSERT_TRUE(recv);
    EXPECT_EQ(recv->opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(recv->wc_flags, unsigned(IBV_WC_WITH_IMM));
    EXPECT_EQ(recv->imm_data, 0xabcdu);
    EXPECT_EQ(recv->byte_len, 64u);
    EXPECT_EQ(theirs.bytes[63], 'w');
    EXPECT_EQ(host(0).poll()->opcode, IBV_WC_RDMA_WRITE);

    ASSERT_EQ(a_.rdma(IBV_WR_RDMA_READ, 2, mine.all(), theirs.addr(), theirs.mr->rkey), 0);
    run();
    const auto read = host(0).poll();
    ASSERT_TRUE(read);
    EXPECT_EQ(read->opcode, IBV_WC_RDMA_READ);
    EXPECT_EQ(mine.bytes[0], 'w');
}

TEST_F(Rc, AtomicsReturnTheOldValue) {
    Buffer mine(host(0), 8);
    Buffer theirs(host(1), 16);
    theirs.word(1) = 5;
    a_.atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, mine.all(), theirs.addr(8), theirs.mr->rkey, 3);
    run();
    EXPECT_EQ(host(0).poll()->opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(mine.word(0), 5u);
    EXPECT_EQ(theirs.word(1), 8u);
    a_.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 2, mine.all(), theirs.addr(8), theirs.mr->rkey, 8, 100);
    run();
    EXPECT_EQ(host(0).poll()->opcode, IBV_WC_COMP_SWAP);
    EXPECT_EQ(mine.word(0), 8u);
    EXPECT_EQ(theirs.word(1), 100u);
    a_.atomic(IBV_WR_ATOMIC_CMP_AND_SWP, 3, mine.all(), theirs.addr(8), theirs.mr->rkey, 8, 200);
    run();
    EXPECT_EQ(mine.word(0), 100u);
    EXPECT_EQ(theirs.word(1), 100u) << "a comparison that fails stores nothing";
}

TEST_F(Rc, ManyMessagesStayInOrderAcrossKinds) {
    Buffer from(host(0), 64 * 8);
    Buffer to(host(1), 64 * 8);
    for (unsigned i = 0; i < 48; ++i) {
        from.word(i) = i;
        ASSERT_EQ(b_.post_recv(i, to.sge(8 * i, 8)), 0);
        if (i % 3 == 0) {
            ASSERT_EQ(
                a_.rdma(IBV_WR_RDMA_READ, 1000 + i, from.sge(500, 8), to.addr(500), to.mr->rkey, 0),
                0);
        }
        if (i < 40) {
            ASSERT_EQ(a_.send(i, from.sge(8 * i, 8)), 0);
        }
    }
    run();
    const auto received = host(1).poll_all();
    ASSERT_EQ(received.size(), 40u);
    for (unsigned i = 0; i < 40; ++i) {
        EXPECT_EQ(received[i].wr_id, i);
        EXPECT_EQ(to.word(i), i);
    }
    const auto sent = host(0).poll_all();
    ASSERT_EQ(sent.size(), 40u) << "unsignalled reads complete silently";
    for (unsigned i = 0; i < 40; ++i) EXPECT_EQ(sent[i].wr_id, i);
}

TEST_F(Rc, SlotsComeBackOnlyWithAPolledSignal) {
    Buffer mine(host(0), 8);
    Buffer theirs(host(1), 8);
    auto write = [&](unsigned flags) {
        return a_.rdma(IBV_WR_RDMA_WRITE, 0, mine.all(), theirs.addr(), theirs.mr->rkey, flags);
    };
    for (int i = 0; i < 63; ++i) ASSERT_EQ(write(0), 0);
    run();
    ASSERT_EQ(write(IBV_SEND_SIGNALED), 0);
    run();
    EXPECT_EQ(write(0), ENOMEM) << "all 64 are done, but nobody polled";
    ASSERT_TRUE(host(0).poll());
    for (int i = 0; i < 64; ++i) ASSERT_EQ(write(0), 0);
    EXPECT_EQ(write(0), ENOMEM);
    run();
}

TEST_F(Rc, BuildersPostBatchesAndAbort) {
    Buffer from(host(0), 64, kAllAccess, 'b');
    Buffer to(host(1), 64);
    ibv_qp_ex* ex = a_.ex();
    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = 0;
    ibv_wr_rdma_write(ex, to.mr->rkey, to.addr());
    const ibv_sge list[2] = {from.sge(0, 8), from.sge(8, 8)};
    ibv_wr_set_sge_list(ex, 2, list);
    ex->wr_id = 2;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, to.mr->rkey, to.addr(32));
    char text[4] = "abc";
    ibv_wr_set_inline_data(ex, text, 4);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    ibv_wr_start(ex);
    ex->wr_id = 3;
    ibv_wr_rdma_write(ex, to.mr->rkey, to.addr(48));
    ibv_wr_set_sge(ex, from.mr->lkey, from.addr(), 8);
    ibv_wr_abort(ex);
    run();
    const auto done = host(0).poll_all();
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].wr_id, 2u);
    EXPECT_EQ(to.bytes[15], 'b');
    EXPECT_EQ(to.bytes[16], 0);
    EXPECT_STREQ(&to.bytes[32], "abc");
    EXPECT_EQ(to.bytes[48], 0);

    std::vector<char> too_long(65);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, too_long.data(), too_long.size());
    EXPECT_NE(ibv_wr_complete(ex), 0);
    EXPECT_EQ(fabric_.next_event_time(), VirtualFabric::kNever);
}

TEST_F(Rc, SharedReceiveQueueServesSeveralQps) {
    QueuePair c(host(0));
    QueuePair d(host(1), {.use_srq = true});
    QueuePair e(host(0));
    QueuePair f(host(1), {.use_srq = true});
    join(c, d);
    join(e, f);
    Buffer from(host(0), 8);
    Buffer to(host(1), 16);
    post_srq(host(1), 1, to.sge(0, 8));
    post_srq(host(1), 2, to.sge(8, 8));
    from.word(0) = 42;
    c.send(1, from.all());
    run();
    e.send(2, from.all());
    run();
    const auto received = host(1).poll_all();
    ASSERT_EQ(received.size(), 2u);
    EXPECT_EQ(received[0].qp_num, d.qp->qp_num);
    EXPECT_EQ(received[1].qp_num, f.qp->qp_num);
    EXPECT_EQ(to.word(0), 42u);
    EXPECT_EQ(to.word(1), 42u);
}

TEST_F(Rc, LoopbackToItself) {
    QueuePair self(host(0));
    self.connect(host(0).lid, self.qp->qp_num);
    Buffer buffer(host(0), 16, kAllAccess, 'l');
    self.post_recv(1, buffer.sge(0, 8));
    self.send(2, buffer.sge(8, 8));
    run();
    EXPECT_EQ(host(0).poll_all().size(), 2u);
}

}  // namespace
}  // namespace softhca::test

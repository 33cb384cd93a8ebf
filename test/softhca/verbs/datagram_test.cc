// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "softhca/support.h"

namespace softhca::test {
namespace {

constexpr uint32_t kQkey = 0x11111111;

class Datagram : public VirtualTest {
  protected:
    Datagram()
        : a_(host(0), {.type = IBV_QPT_UD}),
          b_(host(1), {.type = IBV_QPT_UD}),
          to_b_(host(0), host(1).lid),
          mine_(host(0), 8192, kAllAccess, 'u'),
          theirs_(host(1), 8192) {
        a_.connect(0, 0);
        b_.connect(0, 0);
    }
    int send(size_t bytes, ibv_ah* ah, uint32_t qkey = kQkey, size_t offset = 0) {
        ibv_sge sge = mine_.sge(offset, bytes);
        ibv_send_wr wr{};
        wr.wr_id = 1;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.ud = {ah, b_.qp->qp_num, qkey};
        return a_.post(wr);
    }
    QueuePair a_;
    QueuePair b_;
    Address to_b_;
    Buffer mine_;
    Buffer theirs_;
};

TEST_F(Datagram, PayloadFollowsTheRoomForTheGrh) {
    b_.post_recv(1, theirs_.all());
    ASSERT_EQ(send(100, to_b_.ah), 0);
    run();
    const auto recv = host(1).poll();
    ASSERT_TRUE(recv);
    EXPECT_EQ(recv->byte_len, 140u);
    EXPECT_EQ(recv->src_qp, a_.qp->qp_num);
    EXPECT_EQ(recv->slid, host(0).lid);
    EXPECT_EQ(recv->wc_flags & IBV_WC_GRH, 0u);
    EXPECT_EQ(theirs_.bytes[39], 0);
    EXPECT_EQ(theirs_.bytes[40], 'u');
}

TEST_F(Datagram, AnswerByTheCompletionsAddress) {
    ibv_gid gid;
    ASSERT_EQ(ibv_query_gid(host(1).context, 1, 0, &gid), 0);
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.grh.dgid = gid;
    attr.port_num = 1;
    ibv_ah* ah = ibv_create_ah(host(0).pd, &attr);
    b_.post_recv(1, theirs_.all());
    send(8, ah);
    run();
    auto recv = host(1).poll();
    ASSERT_TRUE(recv);
    EXPECT_NE(recv->wc_flags & IBV_WC_GRH, 0u);
    auto* grh = reinterpret_cast<ibv_grh*>(theirs_.bytes.data());
    ibv_gid sender;
    ibv_query_gid(host(0).context, 1, 0, &sender);
    EXPECT_EQ(std::memcmp(&grh->sgid, &sender, sizeof(sender)), 0);
    ibv_ah* back = ibv_create_ah_from_wc(host(1).pd, &*recv, grh, 1);
    ASSERT_NE(back, nullptr);
    a_.post_recv(2, mine_.all());
    ibv_qp_ex* ex = b_.ex();
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_imm(ex, 7);
    ibv_wr_set_ud_addr(ex, back, recv->src_qp, kQkey);
    ibv_wr_set_sge(ex, theirs_.mr->lkey, theirs_.addr(), 8);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    run();
    const auto answers = host(0).poll_all();
    ASSERT_EQ(answers.size(), 2u);
    EXPECT_EQ(answers[1].imm_data, 7u);
    ibv_destroy_ah(back);
    ibv_destroy_ah(ah);
}

TEST_F(Datagram, WrongQkeyOrNoReceiveIsLostSilently) {
    send(8, to_b_.ah);
    b_.post_recv(1, theirs_.all());
    run();
    EXPECT_EQ(host(1).poll_all().size(), 1u) << "posted before it arrived";
    b_.post_recv(1, theirs_.all());
    send(8, to_b_.ah, kQkey + 1);
    run();
    EXPECT_FALSE(host(1).poll());
    const auto sent = host(0).poll_all();
    ASSERT_EQ(sent.size(), 2u);
    for (const ibv_wc& wc : sent) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

TEST_F(Datagram, FaultsLoseAndReorderThem) {
    constexpr size_t kSent = 60;
    for (size_t i = 0; i < kSent; ++i) mine_.bytes[i * 8] = char(i);
    const auto arrivals = [&](const char* faults) {
        FaultPlan plan;
        std::string error;
        EXPECT_TRUE(FaultPlan::parse(faults, &plan, &error)) << error;
        fabric_.set_faults(plan);
        EXPECT_EQ(b_.modify(IBV_QPS_RESET), 0);
        b_.connect(0, 0);
        for (size_t i = 0; i < kSent; ++i) b_.post_recv(i, theirs_.sge(i * 80, 80));
        for (size_t i = 0; i < kSent; ++i) EXPECT_EQ(send(8, to_b_.ah, kQkey, i * 8), 0);
        run();
        host(0).poll_all();
        std::vector<char> order;
        while (const auto recv = host(1).poll()) {
            order.push_back(theirs_.bytes[recv->wr_id * 80 + 40]);
        }
        return order;
    };
    const auto lost = arrivals("ud_drop=0.3,seed=3");
    EXPECT_LT(lost.size(), kSent - 8);
    EXPECT_GT(lost.size(), kSent / 2);
    EXPECT_TRUE(std::ranges::is_sorted(lost));
    const auto late = arrivals("ud_delay=0.3:5000,seed=3");
    EXPECT_EQ(late.size(), kSent);
    EXPECT_FALSE(std::ranges::is_sorted(late));
}

TEST_F(Datagram, FaultsDoubleThem) {
    FaultPlan plan;
    plan.ud_duplicate = 1;
    fabric_.set_faults(plan);
    b_.post_recv(1, theirs_.sge(0, 80));
    b_.post_recv(2, theirs_.sge(80, 80));
    ASSERT_EQ(send(8, to_b_.ah), 0);
    run();
    EXPECT_EQ(host(1).poll_all().size(), 2u);
    EXPECT_EQ(theirs_.bytes[40], 'u');
    EXPECT_EQ(theirs_.bytes[120], 'u');
    EXPECT_EQ(host(0).poll_all().size(), 1u);
}

TEST_F(Datagram, LongerThanTheMtuLeavesTheQueueInSqe) {
    send(4097, to_b_.ah);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(a_.state(), IBV_QPS_SQE);
    ASSERT_EQ(a_.modify(IBV_QPS_RTS), 0);
    b_.post_recv(1, theirs_.all());
    send(4096, to_b_.ah);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    EXPECT_EQ(host(1).poll()->byte_len, 4136u);
}

TEST_F(Datagram, OperationsOfConnectionsAreRefused) {
    ibv_sge sge = mine_.sge(0, 8);
    ibv_send_wr wr{};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_INV;
    wr.wr.ud = {to_b_.ah, b_.qp->qp_num, kQkey};
    ASSERT_EQ(a_.post(wr), 0);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(Datagram, UnreliableConnectedLosesWithoutError) {
    QueuePair c(host(0), {.type = IBV_QPT_UC});
    QueuePair d(host(1), {.type = IBV_QPT_UC});
    join(c, d);
    c.send(1, mine_.sge(0, 8));
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS) << "no receive, nobody tells";
    c.rdma(IBV_WR_RDMA_WRITE, 2, mine_.sge(0, 8), theirs_.addr(), theirs_.mr->rkey);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    EXPECT_EQ(theirs_.bytes[0], 'u');
    c.rdma(IBV_WR_RDMA_READ, 3, mine_.sge(0, 8), theirs_.addr(), theirs_.mr->rkey);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_LOC_QP_OP_ERR);
}

}  // namespace
}  // namespace softhca::test

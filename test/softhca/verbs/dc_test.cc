// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/support.h"

namespace softhca::test {
namespace {

class Dc : public VirtualTest {
  protected:
    explicit Dc(const VirtualFabric::Options& options = instant(3))
        : VirtualTest(options),
          dci_(make_dci(host(0))),
          dct1_(make_dct(host(1))),
          dct2_(make_dct(host(2))),
          to1_(host(0), host(1).lid),
          to2_(host(0), host(2).lid),
          mine_(host(0), 64, kAllAccess, 'd'),
          at1_(host(1), 64),
          at2_(host(2), 64) {}

    int send(uint64_t id, const Address& to, const QueuePair& dct, uint64_t key = kDcKey) {
        ibv_qp_ex* ex = dci_.ex();
        ibv_wr_start(ex);
        ex->wr_id = id;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(ex);
        mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), to.ah, dct.qp->qp_num, key);
        ibv_wr_set_sge(ex, mine_.mr->lkey, mine_.addr(), 8);
        return ibv_wr_complete(ex);
    }
    int write(uint64_t id, const Address& to, const QueuePair& dct, const Buffer& at) {
        ibv_qp_ex* ex = dci_.ex();
        ibv_wr_start(ex);
        ex->wr_id = id;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(ex, at.mr->rkey, at.addr());
        mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), to.ah, dct.qp->qp_num, kDcKey);
        ibv_wr_set_sge(ex, mine_.mr->lkey, mine_.addr(), 8);
        return ibv_wr_complete(ex);
    }

    QueuePair dci_;
    QueuePair dct1_;
    QueuePair dct2_;
    Address to1_;
    Address to2_;
    Buffer mine_;
    Buffer at1_;
    Buffer at2_;
};

TEST_F(Dc, OneInitiatorReachesManyTargets) {
    post_srq(host(1), 1, at1_.all());
    post_srq(host(2), 2, at2_.all());
    ASSERT_EQ(send(10, to1_, dct1_), 0);
    ASSERT_EQ(send(11, to2_, dct2_), 0);
    run();
    const auto first = host(1).poll();
    const auto second = host(2).poll();
    ASSERT_TRUE(first);
    ASSERT_TRUE(second);
    EXPECT_EQ(first->qp_num, dct1_.qp->qp_num);
    EXPECT_EQ(first->src_qp, dci_.qp->qp_num);
    EXPECT_EQ(first->byte_len, 8u);
    EXPECT_EQ(at2_.bytes[7], 'd');
    const auto sent = host(0).poll_all();
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].wr_id, 10u);
    EXPECT_EQ(fabric_.counters(0).dci_switches, 2u);
}

TEST_F(Dc, WrongKeyFailsTheInitiatorAndItCanBeReset) {
    post_srq(host(1), 1, at1_.all());
    send(1, to1_, dct1_, kDcKey + 1);
    run();
    const auto wc = host(0).poll();
    ASSERT_TRUE(wc);
    EXPECT_EQ(wc->status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(dci_.state(), IBV_QPS_ERR);
    EXPECT_FALSE(host(1).poll()) << "nothing was received";
    EXPECT_EQ(dct1_.state(), IBV_QPS_RTR) << "a target serves others: it goes on";

    ASSERT_EQ(dci_.modify(IBV_QPS_RESET), 0);
    QueuePair again = make_dci(host(0));
    std::swap(dci_.qp, again.qp);
    send(2, to1_, dct1_);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    EXPECT_EQ(host(1).poll()->wr_id, 1u);
}

TEST_F(Dc, UnknownTargetExceedsRetries) {
    ibv_qp_ex* ex = dci_.ex();
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), to1_.ah, 0xabcdef, kDcKey);
    ibv_wr_set_sge(ex, mine_.mr->lkey, mine_.addr(), 8);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(Dc, TooLongForTheReceiveSparesTheTarget) {
    post_srq(host(1), 1, at1_.sge(0, 4));
    post_srq(host(1), 2, at1_.all());
    send(1, to1_, dct1_);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(host(1).poll()->status, IBV_WC_LOC_LEN_ERR);
    QueuePair other = make_dci(host(0));
    std::swap(dci_.qp, other.qp);
    send(2, to1_, dct1_);
    run();
    EXPECT_EQ(host(1).poll()->status, IBV_WC_SUCCESS);
}

TEST_F(Dc, ATargetNeedsAnSrq) {
    ibv_qp_init_attr_ex attr{};
    attr.recv_cq = attr.send_cq = host(0).cq;
    attr.qp_type = IBV_QPT_DRIVER;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = host(0).pd;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    EXPECT_EQ(mlx5dv_create_qp(host(0).context, &attr, &dv), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(Dc, StreamsFailOneByOne) {
    QueuePair dci = make_dci(host(0), {}, mlx5dv_dci_streams{3, 1});
    auto post = [&](uint64_t id, uint16_t stream, uint32_t rkey) {
        ibv_qp_ex* ex = dci.ex();
        ibv_wr_start(ex);
        ex->wr_id = id;
        ex->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(ex, rkey, at1_.addr());
        mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(ex), to1_.ah, dct1_.qp->qp_num,
                                     kDcKey, stream);
        ibv_wr_set_sge(ex, mine_.mr->lkey, mine_.addr(), 8);
        ASSERT_EQ(ibv_wr_complete(ex), 0);
    };
    const uint32_t good = at1_.mr->rkey;
    post(0, 1, good + 1);
    post(1, 2, good);
    post(2, 1, good);
    post(3, 2, good);
    run();
    const auto first = host(0).poll_all();
    ASSERT_EQ(first.size(), 4u);
    EXPECT_EQ(first[0].status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(first[1].status, IBV_WC_SUCCESS) << "another stream goes on";
    EXPECT_EQ(first[2].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(first[3].status, IBV_WC_SUCCESS);
    EXPECT_EQ(fabric_.counters(1).messages, 2u) << "nothing is executed twice";
    EXPECT_EQ(at1_.bytes[0], 'd');
    EXPECT_EQ(dci.state(), IBV_QPS_RTS);

    EXPECT_NE(mlx5dv_dci_stream_id_reset(dci.qp, 2), 0) << "was not in error";
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(dci.qp, 1), 0);
    post(4, 1, good);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    post(5, 1, good + 1);
    post(6, 3, good + 1);
    post(7, 2, good);
    run();
    const auto last = host(0).poll_all();
    ASSERT_EQ(last.size(), 3u);
    EXPECT_EQ(last[1].status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(last[2].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(dci.state(), IBV_QPS_ERR) << "as many streams failed as it may have";
}

// With the modelled costs: a change of target costs a microsecond, after the last reply.
class DcTime : public Dc {
  protected:
    static VirtualFabric::Options timed() {
        VirtualFabric::Options options = instant(3);
        options.model = Model();
        options.model.cache_miss = 0;
        return options;
    }
    DcTime() : Dc(timed()) {
        write(0, to1_, dct1_, at1_);
        run();
        host(0).poll_all();
        fabric_.take_cpu_time(0);
    }
    uint64_t elapsed(bool same) {
        const uint64_t start = fabric_.now();
        for (uint64_t i = 0; i < 4; ++i) {
            const bool first = same || i % 2 == 0;
            write(i, first ? to1_ : to2_, first ? dct1_ : dct2_, first ? at1_ : at2_);
        }
        run();
        EXPECT_EQ(host(0).poll_all().size(), 4u);
        return fabric_.now() - start;
    }
};

TEST_F(DcTime, ChangeOfTargetIsSerial) {
    const uint64_t same = elapsed(true);
    const uint64_t changing = elapsed(false);
    EXPECT_LT(same, 3000u) << "four in flight overlap";
    // Three changes: each waits for the reply (1.2 us there and back) and takes 1 us more.
    EXPECT_GT(changing, same + 3 * 2200 - 1000);
    EXPECT_LT(changing, same + 3 * 2200 + 1000);
    EXPECT_EQ(fabric_.counters(0).dci_switches, 4u);
}

}  // namespace
}  // namespace softhca::test

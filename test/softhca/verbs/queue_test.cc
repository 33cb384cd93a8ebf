// SPDX-License-Identifier: BSD-3-Clause
#include <poll.h>

#include "softhca/support.h"

// Completion queues, channels, shared receive queues and their limits.
namespace softhca::test {
namespace {

class Queues : public VirtualTest {
  protected:
    Queues() : a_(host(0)), b_(host(1)), mine_(host(0), 64), theirs_(host(1), 64) { join(a_, b_); }
    void write(uint64_t id) {
        ASSERT_EQ(a_.rdma(IBV_WR_RDMA_WRITE, id, mine_.all(), theirs_.addr(), theirs_.mr->rkey), 0);
    }
    QueuePair a_;
    QueuePair b_;
    Buffer mine_;
    Buffer theirs_;
};

TEST_F(Queues, OverrunIsACqErrorAndAnEvent) {
    ibv_cq* small = ibv_create_cq(host(0).context, 3, nullptr, nullptr, 0);
    EXPECT_EQ(small->cqe, 3);
    std::swap(host(0).cq, small);
    {
        QueuePair c(host(0));
        QueuePair d(host(1));
        join(c, d);
        for (uint64_t i = 0; i < 4; ++i) {
            c.rdma(IBV_WR_RDMA_WRITE, i, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
        }
        run();
        const auto event = host(0).async_event();
        ASSERT_TRUE(event);
        EXPECT_EQ(event->event_type, IBV_EVENT_CQ_ERR);
        EXPECT_EQ(event->element.cq, host(0).cq);
        ibv_wc wc[8];
        EXPECT_EQ(ibv_poll_cq(host(0).cq, 8, wc), 3);
        EXPECT_LT(ibv_poll_cq(host(0).cq, 8, wc), 0);
        EXPECT_EQ(ibv_destroy_cq(host(0).cq), EBUSY) << "a QP still uses it";
    }
    std::swap(host(0).cq, small);
    EXPECT_EQ(ibv_destroy_cq(small), 0);
}

TEST_F(Queues, ResizeKeepsWhatIsThere) {
    for (uint64_t i = 0; i < 5; ++i) write(i);
    run();
    EXPECT_EQ(ibv_resize_cq(host(0).cq, 3), EINVAL);
    ASSERT_EQ(ibv_resize_cq(host(0).cq, 2000), 0);
    EXPECT_GE(host(0).cq->cqe, 2000);
    write(5);
    run();
    const auto all = host(0).poll_all();
    ASSERT_EQ(all.size(), 6u);
    for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(all[i].wr_id, i);
}

TEST_F(Queues, ExtendedPollReadsEveryField) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 16;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS | uint64_t{IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
    ibv_cq_ex* ex = ibv_create_cq_ex(host(1).context, &attr);
    ASSERT_NE(ex, nullptr);
    ibv_cq* plain = ibv_cq_ex_to_cq(ex);
    std::swap(host(1).cq, plain);
    {
        QueuePair c(host(0));
        QueuePair d(host(1));
        join(c, d);
        for (uint64_t i = 0; i < 2; ++i) {
            d.post_recv(10 + i, theirs_.all());
            ibv_sge sge = mine_.sge(0, 5);
            ibv_send_wr wr{};
            wr.sg_list = &sge;
            wr.num_sge = 1;
            wr.opcode = IBV_WR_SEND_WITH_IMM;
            wr.imm_data = uint32_t(100 + i);
            c.post(wr);
        }
        run();
        ibv_poll_cq_attr poll{};
        ASSERT_EQ(ibv_start_poll(ex, &poll), 0);
        EXPECT_EQ(ex->wr_id, 10u);
        EXPECT_EQ(ex->status, IBV_WC_SUCCESS);
        EXPECT_EQ(ibv_wc_read_opcode(ex), IBV_WC_RECV);
        EXPECT_EQ(ibv_wc_read_byte_len(ex), 5u);
        EXPECT_EQ(ibv_wc_read_imm_data(ex), 100u);
        EXPECT_EQ(ibv_wc_read_qp_num(ex), d.qp->qp_num);
        EXPECT_EQ(ibv_wc_read_src_qp(ex), c.qp->qp_num);
        EXPECT_EQ(ibv_wc_read_wc_flags(ex), unsigned(IBV_WC_WITH_IMM));
        ASSERT_EQ(ibv_next_poll(ex), 0);
        EXPECT_EQ(ex->wr_id, 11u);
        EXPECT_EQ(ibv_next_poll(ex), ENOENT);
        ibv_end_poll(ex);
        EXPECT_EQ(ibv_start_poll(ex, &poll), ENOENT);
    }
    std::swap(host(1).cq, plain);
    EXPECT_EQ(ibv_destroy_cq(plain), 0);
}

// A CQ with a channel in place of the host's own.
class Channels : public Queues {
  protected:
    Channels() {
        channel_ = ibv_create_comp_channel(host(1).context);
        other_ = ibv_create_cq(host(1).context, 16, this, channel_, 0);
        std::swap(host(1).cq, other_);
        c_.emplace(host(0));
        d_.emplace(host(1));
        join(*c_, *d_);
    }
    ~Channels() override {
        c_.reset();
        d_.reset();
        std::swap(host(1).cq, other_);
        EXPECT_EQ(ibv_destroy_comp_channel(channel_), EBUSY);
        EXPECT_EQ(ibv_destroy_cq(other_), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    }
    bool readable() {
        pollfd event{channel_->fd, POLLIN, 0};
        return ::poll(&event, 1, 0) == 1;
    }
    void consume() {
        ibv_cq* cq = nullptr;
        void* context = nullptr;
        ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &context), 0);
        EXPECT_EQ(cq, host(1).cq);
        EXPECT_EQ(context, this);
        ibv_ack_cq_events(cq, 1);
    }
    void send(unsigned flags) {
        d_->post_recv(1, theirs_.all());
        c_->send(1, mine_.all(), flags);
        run();
    }
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* other_ = nullptr;
    std::optional<QueuePair> c_;
    std::optional<QueuePair> d_;
};

TEST_F(Channels, OneEventForOneRequest) {
    send(0);
    EXPECT_FALSE(readable()) << "nobody asked";
    ASSERT_EQ(ibv_req_notify_cq(host(1).cq, 0), 0);
    EXPECT_FALSE(readable()) << "only completions after the request count";
    send(0);
    send(0);
    EXPECT_TRUE(readable());
    consume();
    EXPECT_FALSE(readable());
}

TEST_F(Channels, SolicitedOnly) {
    ASSERT_EQ(ibv_req_notify_cq(host(1).cq, 1), 0);
    send(0);
    EXPECT_FALSE(readable());
    send(IBV_SEND_SOLICITED);
    EXPECT_TRUE(readable());
    consume();
}

TEST_F(Channels, EventsOfADestroyedCqAreGone) {
    ibv_cq* doomed = ibv_create_cq(host(1).context, 16, this, channel_, 0);
    std::swap(host(1).cq, doomed);
    {
        QueuePair e(host(0));
        QueuePair f(host(1));
        join(e, f);
        ASSERT_EQ(ibv_req_notify_cq(host(1).cq, 0), 0);
        f.post_recv(1, theirs_.all());
        e.send(1, mine_.all());
        run();
        EXPECT_TRUE(readable());
    }
    std::swap(host(1).cq, doomed);
    EXPECT_EQ(ibv_destroy_cq(doomed), 0);
    EXPECT_FALSE(readable());
}

TEST_F(Queues, SrqLimitEventComesOnce) {
    QueuePair c(host(0));
    QueuePair d(host(1), {.use_srq = true});
    join(c, d);
    for (uint64_t i = 0; i < 4; ++i) post_srq(host(1), i, theirs_.all());
    ibv_srq_attr attr{0, 0, 3};
    ASSERT_EQ(ibv_modify_srq(host(1).srq, &attr, IBV_SRQ_LIMIT), 0);
    c.send(1, mine_.all());
    run();
    EXPECT_FALSE(host(1).async_event()) << "three are left";
    c.send(2, mine_.all());
    run();
    const auto event = host(1).async_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event->element.srq, host(1).srq);
    c.send(3, mine_.all());
    run();
    EXPECT_FALSE(host(1).async_event());
    ASSERT_EQ(ibv_query_srq(host(1).srq, &attr), 0);
    EXPECT_EQ(attr.srq_limit, 0u);
    EXPECT_EQ(attr.max_wr, 1024u);
}

TEST_F(Queues, ReceiveQueuesHaveTheirDepth) {
    for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(b_.post_recv(i, theirs_.all()), 0);
    EXPECT_EQ(b_.post_recv(64, theirs_.all()), ENOMEM);
    a_.send(1, mine_.all());
    run();
    EXPECT_EQ(b_.post_recv(64, theirs_.all()), ENOMEM) << "the slot is free once it is polled";
    ASSERT_TRUE(host(1).poll());
    EXPECT_EQ(b_.post_recv(64, theirs_.all()), 0);
}

TEST_F(Queues, PostsAreRefusedInTheWrongStates) {
    QueuePair fresh(host(0));
    EXPECT_EQ(fresh.post_recv(1, mine_.all()), EINVAL);
    EXPECT_EQ(fresh.send(1, mine_.all()), EINVAL);
    QueuePair with_srq(host(0), {.use_srq = true});
    with_srq.connect(host(1).lid, 1);
    EXPECT_EQ(with_srq.post_recv(1, mine_.all()), EINVAL);
}

}  // namespace
}  // namespace softhca::test

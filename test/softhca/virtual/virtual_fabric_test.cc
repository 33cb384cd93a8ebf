// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/support.h"

// Time, determinism, counters, faults.
namespace softhca::test {
namespace {

VirtualFabric::Options modelled(unsigned nodes = 2) {
    VirtualFabric::Options options;
    options.nodes = nodes;
    options.model = Model();
    return options;
}

class Timed : public VirtualTest {
  protected:
    explicit Timed(VirtualFabric::Options options = modelled())
        : VirtualTest(options),
          a_(host(0)),
          b_(host(1)),
          mine_(host(0), 1 << 20),
          theirs_(host(1), 1 << 20) {
        join(a_, b_, {.timeout = 14});
        // Both contexts are cached from here on.
        read(8);
        finish(1);
    }
    void read(size_t bytes) {
        ASSERT_EQ(
            a_.rdma(IBV_WR_RDMA_READ, 1, mine_.sge(0, bytes), theirs_.addr(), theirs_.mr->rkey), 0);
    }
    void write(size_t bytes, unsigned flags = IBV_SEND_SIGNALED) {
        ASSERT_EQ(a_.rdma(IBV_WR_RDMA_WRITE, 1, mine_.sge(0, bytes), theirs_.addr(),
                          theirs_.mr->rkey, flags),
                  0);
    }
    // Runs to the end. @return how long it took.
    uint64_t finish(size_t completions) {
        const uint64_t start = fabric_.now();
        run();
        EXPECT_EQ(host(0).poll_all().size(), completions);
        fabric_.take_cpu_time(0);
        return fabric_.now() - start;
    }
    QueuePair a_;
    QueuePair b_;
    Buffer mine_;
    Buffer theirs_;
};

TEST_F(Timed, OneReadTakesWhatFasstMeasured) {
    read(8);
    EXPECT_NEAR(double(finish(1)), 1900, 60);
}

TEST_F(Timed, InlineSavesTheFetch) {
    write(8);
    const uint64_t fetched = finish(1);
    write(8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    EXPECT_NEAR(double(finish(1)), double(fetched - 350), 1);
}

TEST_F(Timed, BandwidthIsTheLinks) {
    for (int i = 0; i < 16; ++i) write(1 << 20);
    const double ns = double(finish(16));
    const double gbps = 16.0 * (1 << 20) * 8 / ns;
    EXPECT_GT(gbps, 380);
    EXPECT_LT(gbps, 400);
}

class LimitedQueues : public Timed {
  protected:
    static VirtualFabric::Options limited() {
        VirtualFabric::Options options = modelled();
        options.model.qp_gbps = 50;
        return options;
    }
    LimitedQueues() : Timed(limited()) {}
};

TEST_F(LimitedQueues, EachMovesItsShareAndTogetherTheyMoveMore) {
    for (int i = 0; i < 16; ++i) write(1 << 20);
    const double bits = 16.0 * (1 << 20) * 8;
    EXPECT_NEAR(bits / double(finish(16)), 50, 4);
    for (int i = 0; i < 16; ++i) read(1 << 20);
    EXPECT_NEAR(bits / double(finish(16)), 50, 4);

    QueuePair c(host(0)), d(host(1));
    join(c, d, {.timeout = 14});
    for (int i = 0; i < 16; ++i) {
        write(1 << 20);
        ASSERT_EQ(c.rdma(IBV_WR_RDMA_WRITE, 1, mine_.sge(0, 1 << 20), theirs_.addr(),
                         theirs_.mr->rkey, IBV_SEND_SIGNALED),
                  0);
    }
    EXPECT_NEAR(2 * bits / double(finish(32)), 100, 8);
}

TEST_F(Timed, OneQueuesRateIsAThreads) {
    write(8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    const double one = double(finish(1));
    for (int i = 0; i < 60; ++i) write(8, IBV_SEND_INLINE);
    write(8, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    const double ns = double(finish(1));
    EXPECT_NEAR(ns, 60 * 91.7 + one, 50);
}

TEST_F(Timed, CallsCostCpuTimeAndDelayWhatFollows) {
    write(8);
    EXPECT_EQ(fabric_.take_cpu_time(0), 80u) << "a work request and a doorbell";
    host(0).poll();
    EXPECT_EQ(fabric_.take_cpu_time(0), 10u);
    finish(1);
    write(8);
    const uint64_t plain = finish(1);
    fabric_.charge_cpu(0, 1000);
    write(8);
    EXPECT_NEAR(double(finish(1)), double(plain + 1000), 1);
}

TEST_F(Timed, EventsWaitForTheirTime) {
    write(8);
    const uint64_t start = fabric_.now();
    EXPECT_GT(fabric_.next_event_time(), start);
    fabric_.advance_to(start + 500);
    EXPECT_FALSE(host(0).poll());
    EXPECT_EQ(fabric_.now(), start + 500);
    fabric_.advance_to(start + 5000);
    EXPECT_TRUE(host(0).poll());
    EXPECT_EQ(fabric_.next_event_time(), VirtualFabric::kNever);
}

TEST_F(Timed, ActivityNamesTheNode) {
    std::vector<unsigned> active;
    fabric_.on_activity([&](unsigned node) { active.push_back(node); });
    b_.post_recv(1, theirs_.all());
    a_.send(1, mine_.sge(0, 8));
    run();
    EXPECT_EQ(active, (std::vector<unsigned>{1, 0}));
    EXPECT_EQ(fabric_.counters(0).wqes, 2u);
    EXPECT_EQ(fabric_.counters(1).messages, 2u);
    EXPECT_EQ(fabric_.counters(1).bytes, 16u);
    EXPECT_EQ(fabric_.total().doorbells, 2u);
}

TEST_F(Timed, SpinningOnACqMakesTimePass) {
    fabric_.set_auto_advance(true);
    write(8);
    int polls = 0;
    while (!host(0).poll()) ASSERT_LT(++polls, 100);
    EXPECT_EQ(fabric_.next_event_time(), VirtualFabric::kNever);
}

TEST_F(Timed, FullCachesMiss) {
    VirtualFabric::Options options = modelled();
    options.model.requester_cache = 4;
    VirtualFabric fabric(options);
    {
        fabric.set_current_node(0);
        Host left;
        fabric.set_current_node(1);
        Host right;
        Buffer mine(left, 8);
        Buffer theirs(right, 8);
        std::vector<QueuePair> qps;
        for (int i = 0; i < 5; ++i) {
            qps.emplace_back(left);
            qps.emplace_back(right);
            join(qps[2 * i], qps[2 * i + 1]);
        }
        for (int round = 0; round < 3; ++round) {
            for (int i = 0; i < 5; ++i) {
                qps[2 * i].rdma(IBV_WR_RDMA_WRITE, 1, mine.all(), theirs.addr(), theirs.mr->rkey);
                fabric.run_until_idle();
            }
        }
        EXPECT_EQ(fabric.counters(0).requester_misses, 15u) << "five in turn never fit in four";
        EXPECT_EQ(fabric.counters(1).responder_misses, 5u);
    }
    fabric_.make_current();
}

// What a slow responder has taken in, but not yet executed, is not lost with a message behind it.
TEST(Loss, OfOneMessageLeavesThoseBeforeItAlone) {
    VirtualFabric::Options options = modelled();
    options.model.responder_gap = 500;
    options.faults.drop = 0.2;
    VirtualFabric fabric(options);
    std::vector<std::unique_ptr<Host>> hosts;
    for (unsigned node = 0; node < 2; ++node) {
        fabric.set_current_node(node);
        hosts.push_back(std::make_unique<Host>());
    }
    constexpr unsigned kMessages = 40;
    Buffer from(*hosts[0], 8), to(*hosts[1], 8);
    QueuePair a(*hosts[0]), b(*hosts[1]);
    join(a, b, {.rnr_retry = 7, .retry_cnt = 7, .timeout = 1});
    for (unsigned id = 0; id < kMessages; ++id) ASSERT_EQ(b.post_recv(id, to.all()), 0);
    for (unsigned id = 0; id < kMessages; ++id) ASSERT_EQ(a.send(id, from.all()), 0);
    fabric.run_until_idle();
    for (auto& host : hosts) {
        const auto completions = host->poll_all();
        ASSERT_EQ(completions.size(), kMessages);
        for (unsigned id = 0; id < kMessages; ++id) {
            EXPECT_EQ(completions[id].wr_id, id);
            EXPECT_EQ(completions[id].status, IBV_WC_SUCCESS);
        }
    }
    EXPECT_GT(fabric.total().retransmissions, 0u);
}

// A busy run with losses and delays: a function of its seed.
uint64_t busy_run(uint64_t seed, uint64_t* end) {
    VirtualFabric::Options options = modelled(3);
    options.faults.drop = 0.05;
    options.faults.delay = 0.2;
    options.faults.delay_ns = 5000;
    options.faults.seed = seed;
    VirtualFabric fabric(options);
    std::vector<std::unique_ptr<Host>> hosts;
    for (unsigned node = 0; node < 3; ++node) {
        fabric.set_current_node(node);
        hosts.push_back(std::make_unique<Host>());
    }
    {
        std::vector<QueuePair> qps;
        std::vector<std::unique_ptr<Buffer>> buffers;
        for (auto& host : hosts) buffers.push_back(std::make_unique<Buffer>(*host, 4096));
        for (unsigned i = 0; i < 3; ++i) {
            qps.emplace_back(*hosts[i]);
            qps.emplace_back(*hosts[(i + 1) % 3]);
            join(qps[2 * i], qps[2 * i + 1], {.rnr_retry = 7, .retry_cnt = 7, .timeout = 8});
        }
        for (unsigned round = 0; round < 20; ++round) {
            for (unsigned i = 0; i < 3; ++i) {
                Buffer& from = *buffers[i];
                Buffer& to = *buffers[(i + 1) % 3];
                from.word(round) = round + 1;
                EXPECT_EQ(qps[2 * i + 1].post_recv(round, to.sge(1024 + 8 * round, 8)), 0);
                EXPECT_EQ(qps[2 * i].send(round, from.sge(8 * round, 8)), 0);
            }
            if (round % 5 == 0) fabric.run_until_idle();
        }
        fabric.run_until_idle();
        EXPECT_GT(fabric.total().retransmissions, 0u);
        for (unsigned i = 0; i < 3; ++i) {
            for (unsigned round = 0; round < 20; ++round) {
                EXPECT_EQ(buffers[i]->word(128 + round), round + 1) << "lost or out of order";
            }
            for (const ibv_wc& wc : hosts[i]->poll_all()) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
        }
    }
    *end = fabric.now();
    return fabric.trace_hash();
}

TEST(Determinism, SameSeedSameTrace) {
    uint64_t end[3];
    const uint64_t first = busy_run(1, &end[0]);
    EXPECT_EQ(busy_run(1, &end[1]), first);
    EXPECT_EQ(end[0], end[1]);
    EXPECT_NE(busy_run(2, &end[2]), first);
}

class Faults : public VirtualTest {
  protected:
    Faults() : a_(host(0)), b_(host(1)), mine_(host(0), 64), theirs_(host(1), 64) {
        join(a_, b_, {.retry_cnt = 3});
    }
    int write(uint64_t id) {
        return a_.rdma(IBV_WR_RDMA_WRITE, id, mine_.all(), theirs_.addr(), theirs_.mr->rkey);
    }
    void set(const char* text) {
        FaultPlan plan;
        std::string error;
        ASSERT_TRUE(FaultPlan::parse(text, &plan, &error)) << error;
        fabric_.set_faults(plan);
    }
    QueuePair a_;
    QueuePair b_;
    Buffer mine_;
    Buffer theirs_;
};

TEST_F(Faults, EverythingLostExceedsRetries) {
    set("drop=1");
    write(1);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(fabric_.counters(0).retransmissions, 3u);
}

TEST_F(Faults, NthPostAndCreateFail) {
    set("fail_post=2,fail_create=1");
    EXPECT_EQ(write(1), 0);
    EXPECT_EQ(write(2), ENOMEM);
    EXPECT_EQ(write(3), 0);
    EXPECT_EQ(ibv_create_cq(host(0).context, 4, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    run();
}

TEST_F(Faults, KilledQpFlushes) {
    set("kill_qp=2");
    for (uint64_t i = 1; i <= 3; ++i) write(i);
    run();
    const auto all = host(0).poll_all();
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[2].status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(host(0).async_event()->event_type, IBV_EVENT_QP_FATAL);
    EXPECT_EQ(a_.state(), IBV_QPS_ERR);
}

TEST_F(Faults, DelayedMessageArrivesLate) {
    set("delay=1:7000");
    write(1);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    EXPECT_EQ(fabric_.now(), 7000u);
}

TEST_F(Faults, LinkGoesDownAtAnOperation) {
    set("link_down=2");
    write(1);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_SUCCESS);
    write(2);
    run();
    EXPECT_EQ(host(0).poll()->status, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(host(0).async_event()->event_type, IBV_EVENT_PORT_ERR);
}

}  // namespace
}  // namespace softhca::test

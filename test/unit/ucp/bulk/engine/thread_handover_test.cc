// SPDX-License-Identifier: BSD-3-Clause

// What the engine hands over to threads and gets back from them. The thread is real, on a device of
// these tests; its time is that of the cluster, which these tests move.

#include <gtest/gtest.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/threads/bulk_thread.h"
#include "ucp/bulk/threads/thread_pool.h"
#include "unit/ucp/bulk/engine/two_rails.h"
#include "unit/ucp/bulk/threads/fake_device.h"

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;
using ucp::test::Cluster;

constexpr ucs::Duration kStall = 40ms;

// The cluster's time, for threads.
class SharedClock final : public ucs::Clock {
  public:
    ucs::Time now() const override { return ucs::Time(ucs::Duration(now_.load())); }
    void set(ucs::Time now) { now_ = now.time_since_epoch().count(); }

  private:
    std::atomic<ucs::Duration::rep> now_{0};
};

// An endpoint with two rails of its own and a queue pair of a thread.
class Handover : public testing::Test, private PathOwner {
  protected:
    static Cluster::Options options() {
        Cluster::Options options = BulkCluster::options();
        options.config.bulk_stall_timeout = kStall;
        options.tick = 100us;
        return options;
    }

    Handover() : pair_(1 << 20, options()) {
        Worker& worker = pair_.cluster.inner(0);
        const Rules rules{.schedule = {.slice = options().config.bulk_slice_size,
                                       .window = options().config.bulk_window,
                                       .chain = options().config.bulk_max_wr_per_post},
                          .max_retries = 3,
                          .stall_timeout = kStall,
                          .shards = 1};
        worker.bulk().use_threads(std::make_unique<ThreadPool>(
            worker.host().work, worker.interfaces(), worker.context(), 1, rules));
        const BulkThread::Params params{clock_, pool().events, rules, counters_, {}, 1, 1};
        EXPECT_EQ(BulkThread::start(params, domain_, "fake", &thread_), UCS_OK);
        std::shared_ptr<ThreadQueuePair> queue_pair;
        EXPECT_EQ(thread_->make_queue_pair(&queue_pair), UCS_OK);
        proxy_ = std::make_unique<QueuePairProxy>(std::move(queue_pair));
        const Lane lane = unwrap(pair_.endpoint).one_sided_lane();
        worker.bulk().add_path(unwrap(pair_.endpoint),
                               {.transport = proxy_.get(),
                                .interface = unwrap(pair_.endpoint).interface_of(lane),
                                .domains = lane.domains},
                               *this);
    }

    ThreadPool& pool() { return *pair_.cluster.inner(0).bulk().threads(); }
    // Nothing but the thread, and a minute of processor time: a machine may be stopped longer.
    static bool await(const std::function<bool()>& condition) {
        const std::clock_t limit = std::clock() + 60 * CLOCKS_PER_SEC;
        while (!condition() && std::clock() < limit) std::this_thread::yield();
        return condition();
    }
    bool until(const std::function<bool()>& condition) {
        return await([&] {
            pair_.cluster.step();
            const ucs::Time now = pair_.cluster.clock.now();
            clock_.set(now);
            // How long a silence lasts is for the thread to say: between two commands it looks at
            // everything once, whoever has its processor meanwhile.
            if (now - shown_ >= kStall / 8) {
                shown_ = now;
                thread_->call([] {});
                thread_->call([] {});
            }
            return condition();
        });
    }
    ucs_status_t finish(ucs_status_ptr_t operation) {
        EXPECT_TRUE(until([&] { return ucp_request_check_status(operation) != UCS_INPROGRESS; }));
        return pair_.cluster.finish(operation);
    }
    uint64_t moved() const { return counters_.bytes; }

    FakeDevice device_;

  private:
    void path_failed(Path&, ucs_status_t) override { proxy_.reset(); }
    void path_gone(Path&) override { proxy_.reset(); }

    FakeDomain domain_{device_};
    SharedClock clock_;
    ucs::Time shown_;
    ThreadCounters counters_;
    std::unique_ptr<BulkThread> thread_;
    std::unique_ptr<uct::Endpoint> proxy_;

  protected:
    BulkCluster pair_;
};

TEST_F(Handover, WhatIsHandedOverComesBackDone) {
    pair_.fill(1);
    const ucs_status_ptr_t put = pair_.start_put();
    EXPECT_TRUE(await([&] { return pool().events.any(); }));
    EXPECT_EQ(moved(), pair_.here.size());
    EXPECT_EQ(finish(put), UCS_OK);
    EXPECT_TRUE(pair_.here == pair_.there);
}

// Else threads would make a transfer slower that the lane and the rails could carry as well.
TEST_F(Handover, TheOtherPathsStealWhileTheProgramMakesCalls) {
    // It has no more than its window, and waits.
    device_.is_silent = true;
    pair_.fill(5);
    const ucs_status_ptr_t put = pair_.start_put();
    EXPECT_TRUE(await([&] { return moved() != 0; }));
    EXPECT_EQ(pair_.counters().put, 0u);
    const ucs::Time start = pair_.cluster.clock.now();
    EXPECT_TRUE(until([&] { return pair_.counters().put != 0; }));
    EXPECT_LT(pair_.cluster.clock.now() - start, kStall / 4);  // before anything is taken back
    device_.is_silent = false;
    EXPECT_EQ(finish(put), UCS_OK);
    EXPECT_TRUE(pair_.here == pair_.there);
    EXPECT_GT(pair_.counters().put, 0u);
    EXPECT_LT(moved(), pair_.here.size());
    EXPECT_EQ(pool().shared_transfers.in_use(), 0u);
}

TEST_F(Handover, WhatThreadsTakeNothingOfGoesByTheOtherPaths) {
    device_.room = 0;
    pair_.fill(2);
    const ucs_status_ptr_t first = pair_.start_put();
    const ucs_status_ptr_t second = pair_.start_put();
    EXPECT_EQ(finish(first), UCS_OK);
    EXPECT_EQ(finish(second), UCS_OK);
    EXPECT_TRUE(pair_.here == pair_.there);
    EXPECT_EQ(moved(), 0u);
    EXPECT_EQ(pool().shared_transfers.in_use(), 0u);
}

// All of the transfer is under way on it, and the other paths have nothing to do.
TEST_F(Handover, ASilentQueuePairIsNoticedThoughNothingWaits) {
    device_.is_silent = true;
    pair_.fill(3);
    const ucs_status_ptr_t put =
        ucp_put_nbx(pair_.endpoint, pair_.here.data(), 16384, pair_.remote(), pair_.key, &kNothing);
    EXPECT_TRUE(await([&] { return moved() == 16384; }));
    const ucs::Time start = pair_.cluster.clock.now();
    EXPECT_EQ(finish(put), UCS_OK);
    EXPECT_LT(pair_.cluster.clock.now() - start, 4 * kStall);
    EXPECT_TRUE(std::equal(pair_.here.begin(), pair_.here.begin() + 16384, pair_.there.begin()));
    EXPECT_TRUE(until([&] { return pool().shared_transfers.in_use() == 0; }));
}

TEST_F(Handover, AQueuePairWithoutLinkIsNoticedThoughNothingWaits) {
    device_.is_silent = true;
    pair_.fill(4);
    const ucs_status_ptr_t put =
        ucp_put_nbx(pair_.endpoint, pair_.here.data(), 16384, pair_.remote(), pair_.key, &kNothing);
    EXPECT_TRUE(await([&] { return moved() == 16384; }));
    device_.link_up = false;
    const ucs::Time start = pair_.cluster.clock.now();
    EXPECT_EQ(finish(put), UCS_OK);
    EXPECT_LT(pair_.cluster.clock.now() - start, kStall);
}

}  // namespace
}  // namespace ucp::bulk::test

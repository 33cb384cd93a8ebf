// SPDX-License-Identifier: BSD-3-Clause

// Threads that move handed over transfers, over devices of these tests.

#include "ucp/bulk/threads/bulk_thread.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <array>
#include <csignal>
#include <list>
#include <system_error>

#include "ucp/bulk/engine/transfer.h"
#include "ucs/runtime/runtime.h"
#include "unit/ucp/bulk/threads/fake_device.h"
#include "unit/ucp/cluster.h"

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;

constexpr size_t kSlice = 4096;

// Two devices with a thread and a queue pair each, and a transfer that they are handed over.
class ThreadsOfBulk : public testing::Test {
  protected:
    ThreadsOfBulk()
        : cluster_(1),
          events_(cluster_.inner(0).host().work),
          here_(ucp::test::pattern(kLength, 1)),
          there_(kLength) {
        for (size_t index = 0; index < 2; ++index) {
            EXPECT_EQ(BulkThread::start(params(index), domains_[index], "fake", &threads_[index]),
                      UCS_OK);
            EXPECT_EQ(threads_[index]->make_queue_pair(&queue_pairs_[index]), UCS_OK);
        }
    }
    ~ThreadsOfBulk() override {
        for (const auto& queue_pair : queue_pairs_) queue_pair->thread.close(*queue_pair);
        for (auto& thread : threads_) thread.reset();
        for (const FakeDevice& device : devices_) EXPECT_EQ(device.endpoints, 0u);
    }

    BulkThread::Params params(size_t index) {
        Rules rules;
        rules.schedule = {.slice = kSlice, .window = 16 * kSlice, .chain = 8};
        rules.stall_timeout = 20ms;
        rules.max_retries = 3;
        return {*ucs::runtime().clock, events_, rules, counters_, {}, index, 1};
    }
    void begin(size_t index, unsigned domain = 0, double rate = 1e9) {
        threads_[index]->begin(*queue_pairs_[index], queue_, domain, rate);
    }
    void hand_over(Direction direction = Direction::kPut) {
        const SliceRules slices{.slice = kSlice, .fragment = 0};
        piece_ = {here_.data(), reinterpret_cast<uintptr_t>(there_.data()), kLength, nullptr,
                  nullptr};
        transfer_.emplace(std::span<const Piece>(&piece_, 1), slices);
        shared_.emplace(*transfer_, transfer_->slices, queue_, direction);
        shared_->access = {{PieceAccess{nullptr, 0}}};
        transfer_->slices.hand_over(shared_->slices);
        {
            std::lock_guard lock(shard_.mutex);
            queue_.transfers.push_back(*shared_);
            queue_.has_work = true;
        }
        for (const auto& thread : threads_) thread->wake();
    }
    // Until there are so many.
    std::vector<ThreadEvent> returned(size_t count) {
        std::vector<ThreadEvent> all;
        const auto limit = std::chrono::steady_clock::now() + 60s;
        while (all.size() < count && std::chrono::steady_clock::now() < limit) {
            for (ThreadEvent& entry : events_.take()) all.push_back(std::move(entry));
            std::this_thread::yield();
        }
        EXPECT_EQ(all.size(), count);
        all.resize(count);
        return all;
    }
    void expect_done(const ThreadEvent& entry) {
        EXPECT_EQ(entry.kind, ThreadEvent::Kind::kReturned);
        EXPECT_EQ(entry.shared, &*shared_);
        EXPECT_EQ(shared_->slices.status(), UCS_OK);
        EXPECT_TRUE(shared_->slices.is_over());
        EXPECT_TRUE(here_ == there_);
    }

    static constexpr size_t kLength = 1 << 20;

    ucp::test::Cluster cluster_;
    ThreadEvents events_;
    ThreadCounters counters_;
    std::array<FakeDevice, 2> devices_;
    std::array<FakeDomain, 2> domains_{FakeDomain(devices_[0]), FakeDomain(devices_[1])};
    Shard shard_;
    SharedQueue queue_{shard_};
    std::vector<uint8_t> here_, there_;
    Piece piece_{};
    std::optional<Transfer> transfer_;
    std::optional<SharedTransfer> shared_;
    std::array<std::unique_ptr<BulkThread>, 2> threads_;
    std::array<std::shared_ptr<ThreadQueuePair>, 2> queue_pairs_;
};

TEST_F(ThreadsOfBulk, CarryWhatTheyAreGiven) {
    begin(0);
    begin(1);
    for (const Direction direction : {Direction::kPut, Direction::kGet}) {
        hand_over(direction);
        expect_done(returned(1)[0]);
    }
    EXPECT_EQ(counters_.bytes, 2 * kLength);
    EXPECT_GE(counters_.chains, 2 * kLength / kSlice / 8);
}

TEST_F(ThreadsOfBulk, WhatADeviceHasNoRoomForGoesBack) {
    devices_[0].room = 3;
    devices_[1].room = 0;
    begin(0);
    begin(1);
    hand_over();
    expect_done(returned(1)[0]);
    EXPECT_EQ(counters_.bytes, kLength);
    EXPECT_GE(counters_.chains, kLength / kSlice / 3);
}

TEST_F(ThreadsOfBulk, AQueuePairThatFailsIsReportedBeforeTheEndOfWhatItCarried) {
    devices_[0].is_broken = true;
    begin(0);
    hand_over();
    // The last one: what waits comes back.
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_CONNECTION_RESET);
    ASSERT_FALSE(entries[0].transfers.empty());
    EXPECT_EQ(entries[0].transfers[0], &*transfer_);
    EXPECT_EQ(entries[1].kind, ThreadEvent::Kind::kReturned);
    EXPECT_EQ(shared_->slices.status(), UCS_OK);
    EXPECT_EQ(shared_->slices.bytes_waiting(), kLength);
    EXPECT_EQ(devices_[0].endpoints, 0u);
}

TEST_F(ThreadsOfBulk, AnotherQueuePairCarriesWhatAFailedOneHad) {
    devices_[0].is_silent = true;
    devices_[1].room = 1;
    begin(0);
    hand_over();
    while (counters_.chains == 0) std::this_thread::yield();
    begin(1);
    devices_[0].is_broken = true;
    devices_[0].is_silent = false;
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kFailed);
    EXPECT_EQ(entries[0].queue_pair, queue_pairs_[0]);
    expect_done(entries[1]);
}

TEST_F(ThreadsOfBulk, ASilentQueuePairHasFailedIfOthersWentOn) {
    devices_[0].is_silent = true;
    begin(0);
    hand_over();
    // Alone it may be that nobody gets anything done.
    while (counters_.chains == 0) std::this_thread::yield();
    begin(1);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_TIMED_OUT);
    EXPECT_EQ(entries[0].queue_pair, queue_pairs_[0]);
    expect_done(entries[1]);
}

TEST_F(ThreadsOfBulk, AQueuePairWithoutLinkHasFailedIfAnotherHasOne) {
    devices_[0].is_silent = true;
    begin(0);
    hand_over();
    while (counters_.chains == 0) std::this_thread::yield();
    devices_[0].link_up = false;
    begin(1);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kFailed);
    EXPECT_EQ(entries[0].queue_pair, queue_pairs_[0]);
    expect_done(entries[1]);
}

TEST_F(ThreadsOfBulk, AQueuePairWithoutLinkHasFailedIfAPathOfTheWorkersHasOne) {
    devices_[0].is_silent = true;
    begin(0);
    hand_over();
    while (counters_.chains == 0) std::this_thread::yield();
    {
        std::lock_guard lock(shard_.mutex);
        queue_.others_have_link = true;
    }
    devices_[0].link_up = false;
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_UNREACHABLE);
    EXPECT_EQ(entries[1].kind, ThreadEvent::Kind::kReturned);
    EXPECT_EQ(shared_->slices.bytes_waiting(), kLength);
}

TEST_F(ThreadsOfBulk, WhatWaitsComesBackWhenTheLinkIsLost) {
    devices_[0].room = 0;
    begin(0);
    hand_over();
    devices_[0].link_up = false;
    EXPECT_EQ(returned(1)[0].kind, ThreadEvent::Kind::kReturned);
    EXPECT_EQ(shared_->slices.bytes_waiting(), kLength);
}

// The other queue pair would have it done a thousand times sooner, if it knew the memory.
TEST_F(ThreadsOfBulk, NothingIsLeftToAQueuePairThatDoesNotServeIt) {
    begin(1, 1, 1e12);
    begin(0, 0, 1e9);
    hand_over();
    expect_done(returned(1)[0]);
}

TEST_F(ThreadsOfBulk, WhatNoQueuePairServesAnyMoreComesBack) {
    devices_[0].room = 0;
    begin(1, 1, 1e12);
    begin(0, 0, 1e9);
    hand_over();
    threads_[0]->stop(*queue_pairs_[0]);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kReturned);
    EXPECT_EQ(shared_->slices.bytes_waiting(), kLength);
    EXPECT_EQ(entries[1].kind, ThreadEvent::Kind::kStopped);
}

TEST_F(ThreadsOfBulk, WhatIsTakenBackWithNothingUnderWayEnds) {
    std::unique_lock lock(shard_.mutex);
    queue_.queue_pairs.push_back(queue_pairs_[0].get());  // that of a thread which takes nothing
    lock.unlock();
    hand_over();
    lock.lock();
    EXPECT_EQ(queue_.take_back(events_), std::vector<Transfer*>{&*transfer_});
    EXPECT_TRUE(queue_.transfers.empty());
    queue_.queue_pairs.clear();
    lock.unlock();
    EXPECT_EQ(returned(1)[0].kind, ThreadEvent::Kind::kReturned);
    EXPECT_EQ(transfer_->slices.bytes_waiting(), kLength);
}

TEST_F(ThreadsOfBulk, WhatIsTakenBackWithSomethingUnderWayEndsWithThat) {
    devices_[0].is_silent = true;
    begin(0);
    hand_over();
    while (counters_.chains < 2) std::this_thread::yield();
    {
        std::lock_guard lock(shard_.mutex);
        EXPECT_EQ(queue_.take_back(events_), std::vector<Transfer*>{&*transfer_});
        EXPECT_EQ(queue_.transfers.size(), 1u);
    }
    EXPECT_FALSE(events_.any());
    // A chain that was pulled before is counted when it is posted.
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (transfer_->slices.bytes_waiting() != kLength - counters_.bytes &&
           std::chrono::steady_clock::now() < limit)
        std::this_thread::yield();
    EXPECT_EQ(transfer_->slices.bytes_waiting(), kLength - counters_.bytes);
    devices_[0].is_silent = false;
    EXPECT_EQ(returned(1)[0].kind, ThreadEvent::Kind::kReturned);
    EXPECT_TRUE(shared_->slices.is_over());
}

TEST_F(ThreadsOfBulk, WhatIsUnderWayEndsWhenAQueuePairIsToldToStop) {
    devices_[0].is_silent = true;
    begin(0);
    hand_over();
    while (counters_.chains < 2) std::this_thread::yield();
    threads_[0]->stop(*queue_pairs_[0]);
    EXPECT_FALSE(events_.any());
    devices_[0].is_silent = false;
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kReturned);
    EXPECT_EQ(entries[1].kind, ThreadEvent::Kind::kStopped);
    EXPECT_EQ(shared_->slices.bytes_waiting(), kLength - counters_.bytes);
}

TEST_F(ThreadsOfBulk, AQueuePairMayBeClosedWithChainsUnderWay) {
    devices_[0].is_silent = true;
    begin(0);
    hand_over(Direction::kGet);
    while (counters_.chains < 2) std::this_thread::yield();
    threads_[0]->close(*queue_pairs_[0]);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kFailed);
    // Gets of a queue pair that is destroyed write nothing any more.
    EXPECT_TRUE(entries[0].transfers.empty());
    EXPECT_EQ(entries[1].kind, ThreadEvent::Kind::kReturned);
    EXPECT_EQ(shared_->slices.bytes_waiting(), kLength);
}

TEST_F(ThreadsOfBulk, SlicesThatFailTooOftenEndTheTransfer) {
    // Each new queue pair fails with the same slices.
    devices_[0].is_broken = true;
    begin(0);
    hand_over();
    unsigned rounds = 0;
    for (; rounds < 10; ++rounds) {
        returned(2);
        if (shared_->slices.status() != UCS_OK) break;
        threads_[0]->close(*queue_pairs_[0]);
        ASSERT_EQ(threads_[0]->make_queue_pair(&queue_pairs_[0]), UCS_OK);
        {
            std::lock_guard lock(shard_.mutex);
            queue_.transfers.push_back(*shared_);
            queue_.has_work = true;
        }
        begin(0);
    }
    EXPECT_EQ(rounds, 3u);
    EXPECT_EQ(shared_->slices.status(), UCS_ERR_CONNECTION_RESET);
}

// The queue pair goes down with both.
TEST_F(ThreadsOfBulk, ARefusalIsNoErrorOfAnotherTransferOnTheSameQueuePair) {
    devices_[0].is_silent = true;
    const SliceRules slices{.slice = kSlice, .fragment = 0};
    std::vector<uint8_t> bytes(8 * kSlice), more(8 * kSlice);
    std::array<Piece, 2> pieces;
    std::list<Transfer> transfers;
    std::list<SharedTransfer> shared_transfers;
    {
        std::lock_guard lock(shard_.mutex);
        queue_.has_work = true;
        for (Piece& piece : pieces) {
            piece = {bytes.data(), reinterpret_cast<uintptr_t>(more.data()), bytes.size(), nullptr,
                     nullptr};
            Transfer& transfer = transfers.emplace_back(std::span<const Piece>(&piece, 1), slices);
            SharedTransfer& shared =
                shared_transfers.emplace_back(transfer, transfer.slices, queue_, Direction::kPut);
            shared.access = {{PieceAccess{nullptr, 0}}};
            transfer.slices.hand_over(shared.slices);
            queue_.transfers.push_back(shared);
        }
    }
    begin(0);
    while (counters_.bytes < 2 * bytes.size()) std::this_thread::yield();
    devices_[0].refuses_next = true;
    devices_[0].is_silent = false;
    auto entries = returned(3);
    EXPECT_EQ(entries[0].kind, ThreadEvent::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_REJECTED);
    EXPECT_EQ(shared_transfers.front().slices.status(), UCS_ERR_REJECTED);
    EXPECT_EQ(shared_transfers.back().slices.status(), UCS_OK);
    EXPECT_EQ(shared_transfers.back().slices.bytes_waiting(), bytes.size());
}

TEST_F(ThreadsOfBulk, RunOnTheProcessorsThatTheyAreGiven) {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        BulkThread::Params bound = params(0);
        bound.cpus = {cpu};
        std::unique_ptr<BulkThread> thread;
        ASSERT_EQ(BulkThread::start(bound, domains_[0], "fake", &thread), UCS_OK);
        cpu_set_t set;
        thread->call([&] { EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0); });
        EXPECT_EQ(CPU_COUNT(&set), 1);
        EXPECT_TRUE(CPU_ISSET(cpu, &set));
    }
    // Without any: where the program may.
    cpu_set_t set;
    threads_[0]->call([&] { EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0); });
    EXPECT_TRUE(CPU_EQUAL(&set, &allowed));
}

TEST_F(ThreadsOfBulk, WhereNoThreadMayBeStartedNothingIsLeft) {
    BulkThread::Params without = params(0);
    // NOLINTNEXTLINE(performance-unnecessary-value-param): the type of the member
    without.spawn = [](std::function<void()>) -> std::thread {
        throw std::system_error(EAGAIN, std::generic_category());
    };
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, nullptr, &before);
    std::unique_ptr<BulkThread> thread;
    EXPECT_EQ(BulkThread::start(without, domains_[0], "fake", &thread), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(thread, nullptr);
    pthread_sigmask(SIG_BLOCK, nullptr, &after);
    EXPECT_EQ(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
    EXPECT_EQ(sigismember(&after, SIGUSR1), 0);
}

}  // namespace
}  // namespace ucp::bulk::test

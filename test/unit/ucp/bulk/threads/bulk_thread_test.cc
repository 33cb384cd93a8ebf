// SPDX-License-Identifier: BSD-3-Clause

// Threads that move lent transfers, over devices of these tests.

#include "ucp/bulk/threads/bulk_thread.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <array>
#include <csignal>
#include <list>
#include <system_error>

#include "ucp/bulk/engine/path.h"
#include "ucs/runtime.h"
#include "unit/ucp/bulk/threads/fake_device.h"
#include "unit/ucp/cluster.h"

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;

constexpr size_t kSlice = 4096;

/** Two devices with a thread and a strand each, and a transfer that they are lent. */
class Movers : public testing::Test {
  protected:
    Movers()
        : cluster_(1),
          returns_(cluster_.inner(0)),
          here_(ucp::test::pattern(kLength, 1)),
          there_(kLength) {
        for (size_t index = 0; index < 2; ++index) {
            EXPECT_EQ(Mover::start(params(index), domains_[index], "fake", &movers_[index]),
                      UCS_OK);
            EXPECT_EQ(movers_[index]->make(&strands_[index]), UCS_OK);
        }
    }
    ~Movers() override {
        for (const auto& strand : strands_) strand->mover.close(*strand);
        for (auto& mover : movers_) mover.reset();
        for (const Device& device : devices_) EXPECT_EQ(device.endpoints, 0u);
    }

    Mover::Params params(size_t index) {
        MoverRules rules;
        rules.schedule = {.slice = kSlice, .window = 16 * kSlice, .chain = 8};
        rules.stall_timeout = 20ms;
        rules.max_retries = 3;
        return {*ucs::runtime().clock, returns_, rules, counters_, {}, index, 1};
    }
    void begin(size_t index, unsigned domain = 0, double rate = 1e9) {
        movers_[index]->begin(*strands_[index], crew_, domain, rate);
    }
    void lend(Direction direction = Direction::kPut) {
        const SliceRules slices{.slice = kSlice, .fragment = 0};
        piece_ = {here_.data(), reinterpret_cast<uintptr_t>(there_.data()), kLength, nullptr,
                  nullptr};
        job_.emplace(std::span<const Piece>(&piece_, 1), slices);
        load_.emplace(*job_, crew_, direction, job_->work.pieces(), slices);
        load_->grips = {{Grip{nullptr, 0}}};
        job_->work.lend(load_->work);
        {
            std::lock_guard lock(shard_.mutex);
            crew_.loads.push_back(*load_);
            crew_.has_work = true;
        }
        for (const auto& mover : movers_) mover->wake();
    }
    /** Until there are so many. */
    std::vector<Return> returned(size_t count) {
        std::vector<Return> all;
        const auto limit = std::chrono::steady_clock::now() + 60s;
        while (all.size() < count && std::chrono::steady_clock::now() < limit) {
            for (Return& entry : returns_.take()) all.push_back(std::move(entry));
            std::this_thread::yield();
        }
        EXPECT_EQ(all.size(), count);
        all.resize(count);
        return all;
    }
    void expect_done(const Return& entry) {
        EXPECT_EQ(entry.kind, Return::Kind::kLoad);
        EXPECT_EQ(entry.load, &*load_);
        EXPECT_EQ(load_->work.status(), UCS_OK);
        EXPECT_TRUE(load_->work.is_over());
        EXPECT_TRUE(here_ == there_);
    }

    static constexpr size_t kLength = 1 << 20;

    ucp::test::Cluster cluster_;
    Returns returns_;
    MoverCounters counters_;
    std::array<Device, 2> devices_;
    std::array<FakeDomain, 2> domains_{FakeDomain(devices_[0]), FakeDomain(devices_[1])};
    Shard shard_;
    Crew crew_{shard_};
    std::vector<uint8_t> here_, there_;
    Piece piece_{};
    std::optional<Job> job_;
    std::optional<Load> load_;
    std::array<std::unique_ptr<Mover>, 2> movers_;
    std::array<std::shared_ptr<MoverStrand>, 2> strands_;
};

TEST_F(Movers, CarryWhatTheyAreLent) {
    begin(0);
    begin(1);
    for (const Direction direction : {Direction::kPut, Direction::kGet}) {
        lend(direction);
        expect_done(returned(1)[0]);
    }
    EXPECT_EQ(counters_.bytes, 2 * kLength);
    EXPECT_GE(counters_.chains, 2 * kLength / kSlice / 8);
}

TEST_F(Movers, WhatADeviceHasNoRoomForGoesBack) {
    devices_[0].room = 3;
    devices_[1].room = 0;
    begin(0);
    begin(1);
    lend();
    expect_done(returned(1)[0]);
    EXPECT_EQ(counters_.bytes, kLength);
    EXPECT_GE(counters_.chains, kLength / kSlice / 3);
}

TEST_F(Movers, AStrandThatFailsIsReportedBeforeTheEndOfWhatItCarried) {
    devices_[0].is_broken = true;
    begin(0);
    lend();
    // The last one: what waits comes back.
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_CONNECTION_RESET);
    ASSERT_FALSE(entries[0].jobs.empty());
    EXPECT_EQ(entries[0].jobs[0], &*job_);
    EXPECT_EQ(entries[1].kind, Return::Kind::kLoad);
    EXPECT_EQ(load_->work.status(), UCS_OK);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength);
    EXPECT_EQ(devices_[0].endpoints, 0u);
}

TEST_F(Movers, AnotherStrandCarriesWhatAFailedOneHad) {
    devices_[0].is_silent = true;
    devices_[1].room = 1;
    begin(0);
    lend();
    while (counters_.chains == 0) std::this_thread::yield();
    begin(1);
    devices_[0].is_broken = true;
    devices_[0].is_silent = false;
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].strand, strands_[0]);
    expect_done(entries[1]);
}

TEST_F(Movers, ASilentStrandHasFailedIfOthersWentOn) {
    devices_[0].is_silent = true;
    begin(0);
    lend();
    // Alone it may be that nobody gets anything done.
    while (counters_.chains == 0) std::this_thread::yield();
    begin(1);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_TIMED_OUT);
    EXPECT_EQ(entries[0].strand, strands_[0]);
    expect_done(entries[1]);
}

TEST_F(Movers, AStrandWithoutLinkHasFailedIfAnotherHasOne) {
    devices_[0].is_silent = true;
    begin(0);
    lend();
    while (counters_.chains == 0) std::this_thread::yield();
    devices_[0].link_up = false;
    begin(1);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].strand, strands_[0]);
    expect_done(entries[1]);
}

TEST_F(Movers, AStrandWithoutLinkHasFailedIfAPathOfTheWorkersHasOne) {
    devices_[0].is_silent = true;
    begin(0);
    lend();
    while (counters_.chains == 0) std::this_thread::yield();
    {
        std::lock_guard lock(shard_.mutex);
        crew_.others_have_link = true;
    }
    devices_[0].link_up = false;
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_UNREACHABLE);
    EXPECT_EQ(entries[1].kind, Return::Kind::kLoad);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength);
}

TEST_F(Movers, WhatWaitsComesBackWhenTheLinkIsLost) {
    devices_[0].room = 0;
    begin(0);
    lend();
    devices_[0].link_up = false;
    EXPECT_EQ(returned(1)[0].kind, Return::Kind::kLoad);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength);
}

// The other strand would have it done a thousand times sooner, if it knew the memory.
TEST_F(Movers, NothingIsLeftToAStrandThatDoesNotServeIt) {
    begin(1, 1, 1e12);
    begin(0, 0, 1e9);
    lend();
    expect_done(returned(1)[0]);
}

TEST_F(Movers, WhatNoStrandServesAnyMoreComesBack) {
    devices_[0].room = 0;
    begin(1, 1, 1e12);
    begin(0, 0, 1e9);
    lend();
    movers_[0]->stop(*strands_[0]);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kLoad);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength);
    EXPECT_EQ(entries[1].kind, Return::Kind::kStopped);
}

TEST_F(Movers, WhatIsTakenBackWithNothingUnderWayEnds) {
    std::unique_lock lock(shard_.mutex);
    crew_.strands.push_back(strands_[0].get());  // that of a mover which takes nothing
    lock.unlock();
    lend();
    lock.lock();
    EXPECT_EQ(crew_.take_back(returns_), std::vector<Job*>{&*job_});
    EXPECT_TRUE(crew_.loads.empty());
    crew_.strands.clear();
    lock.unlock();
    EXPECT_EQ(returned(1)[0].kind, Return::Kind::kLoad);
    EXPECT_EQ(job_->work.bytes_waiting(), kLength);
}

TEST_F(Movers, WhatIsTakenBackWithSomethingUnderWayEndsWithThat) {
    devices_[0].is_silent = true;
    begin(0);
    lend();
    while (counters_.chains < 2) std::this_thread::yield();
    {
        std::lock_guard lock(shard_.mutex);
        EXPECT_EQ(crew_.take_back(returns_), std::vector<Job*>{&*job_});
        EXPECT_EQ(crew_.loads.size(), 1u);
    }
    EXPECT_FALSE(returns_.any());
    // A chain that was pulled before is counted when it is posted.
    const auto limit = std::chrono::steady_clock::now() + 60s;
    while (job_->work.bytes_waiting() != kLength - counters_.bytes &&
           std::chrono::steady_clock::now() < limit)
        std::this_thread::yield();
    EXPECT_EQ(job_->work.bytes_waiting(), kLength - counters_.bytes);
    devices_[0].is_silent = false;
    EXPECT_EQ(returned(1)[0].kind, Return::Kind::kLoad);
    EXPECT_TRUE(load_->work.is_over());
}

TEST_F(Movers, WhatIsUnderWayEndsWhenAStrandIsToldToStop) {
    devices_[0].is_silent = true;
    begin(0);
    lend();
    while (counters_.chains < 2) std::this_thread::yield();
    movers_[0]->stop(*strands_[0]);
    EXPECT_FALSE(returns_.any());
    devices_[0].is_silent = false;
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kLoad);
    EXPECT_EQ(entries[1].kind, Return::Kind::kStopped);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength - counters_.bytes);
}

TEST_F(Movers, AStrandMayBeClosedWithChainsUnderWay) {
    devices_[0].is_silent = true;
    begin(0);
    lend(Direction::kGet);
    while (counters_.chains < 2) std::this_thread::yield();
    movers_[0]->close(*strands_[0]);
    auto entries = returned(2);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    // Gets of a strand that is destroyed write nothing any more.
    EXPECT_TRUE(entries[0].jobs.empty());
    EXPECT_EQ(entries[1].kind, Return::Kind::kLoad);
    EXPECT_EQ(load_->work.bytes_waiting(), kLength);
}

TEST_F(Movers, SlicesThatFailTooOftenEndTheTransfer) {
    // Each new strand fails with the same slices.
    devices_[0].is_broken = true;
    begin(0);
    lend();
    unsigned rounds = 0;
    for (; rounds < 10; ++rounds) {
        returned(2);
        if (load_->work.status() != UCS_OK) break;
        movers_[0]->close(*strands_[0]);
        ASSERT_EQ(movers_[0]->make(&strands_[0]), UCS_OK);
        {
            std::lock_guard lock(shard_.mutex);
            crew_.loads.push_back(*load_);
            crew_.has_work = true;
        }
        begin(0);
    }
    EXPECT_EQ(rounds, 3u);
    EXPECT_EQ(load_->work.status(), UCS_ERR_CONNECTION_RESET);
}

// The queue pair goes down with both.
TEST_F(Movers, ARefusalIsNoErrorOfAnotherTransferOnTheSameStrand) {
    devices_[0].is_silent = true;
    const SliceRules slices{.slice = kSlice, .fragment = 0};
    std::vector<uint8_t> bytes(8 * kSlice), more(8 * kSlice);
    std::array<Piece, 2> pieces;
    std::list<Job> jobs;
    std::list<Load> loads;
    {
        std::lock_guard lock(shard_.mutex);
        crew_.has_work = true;
        for (Piece& piece : pieces) {
            piece = {bytes.data(), reinterpret_cast<uintptr_t>(more.data()), bytes.size(), nullptr,
                     nullptr};
            Job& job = jobs.emplace_back(std::span<const Piece>(&piece, 1), slices);
            Load& load = loads.emplace_back(job, crew_, Direction::kPut, job.work.pieces(), slices);
            load.grips = {{Grip{nullptr, 0}}};
            job.work.lend(load.work);
            crew_.loads.push_back(load);
        }
    }
    begin(0);
    while (counters_.bytes < 2 * bytes.size()) std::this_thread::yield();
    devices_[0].refuses_next = true;
    devices_[0].is_silent = false;
    auto entries = returned(3);
    EXPECT_EQ(entries[0].kind, Return::Kind::kFailed);
    EXPECT_EQ(entries[0].status, UCS_ERR_REJECTED);
    EXPECT_EQ(loads.front().work.status(), UCS_ERR_REJECTED);
    EXPECT_EQ(loads.back().work.status(), UCS_OK);
    EXPECT_EQ(loads.back().work.bytes_waiting(), bytes.size());
}

TEST_F(Movers, RunOnTheProcessorsThatTheyAreGiven) {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        Mover::Params bound = params(0);
        bound.cpus = {cpu};
        std::unique_ptr<Mover> mover;
        ASSERT_EQ(Mover::start(bound, domains_[0], "fake", &mover), UCS_OK);
        cpu_set_t set;
        mover->call([&] { EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0); });
        EXPECT_EQ(CPU_COUNT(&set), 1);
        EXPECT_TRUE(CPU_ISSET(cpu, &set));
    }
    // Without any: where the program may.
    cpu_set_t set;
    movers_[0]->call([&] { EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0); });
    EXPECT_TRUE(CPU_EQUAL(&set, &allowed));
}

TEST_F(Movers, WhereNoThreadMayBeStartedNothingIsLeft) {
    Mover::Params without = params(0);
    without.spawn = [](std::function<void()>) -> std::thread {
        throw std::system_error(EAGAIN, std::generic_category());
    };
    sigset_t before, after;
    pthread_sigmask(SIG_BLOCK, nullptr, &before);
    std::unique_ptr<Mover> mover;
    EXPECT_EQ(Mover::start(without, domains_[0], "fake", &mover), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(mover, nullptr);
    pthread_sigmask(SIG_BLOCK, nullptr, &after);
    EXPECT_EQ(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
    EXPECT_EQ(sigismember(&after, SIGUSR1), 0);
}

}  // namespace
}  // namespace ucp::bulk::test

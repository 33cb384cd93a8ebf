// SPDX-License-Identifier: BSD-3-Clause

// Bulk transfers by threads (UCX_BULK_WORKERS), over emulated adapters that are really there: the
// host-wide fabric, in real time.

#include <unistd.h>

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "common/leaks_fail.h"
#include "system/host_pair.h"

namespace ucp::test {
namespace {

using namespace std::chrono_literals;

struct Case {
    unsigned workers, shards;
};
// BULK_SOAK_SECONDS=0, with which the thread sanitizer runs: the one with most threads.
std::vector<Case> cases() {
    const char* seconds = std::getenv("BULK_SOAK_SECONDS");
    if (seconds != nullptr && std::atoi(seconds) == 0) return {{4, 4}};
    return {{1, 1}, {4, 1}, {4, 4}};
}

HostPair::Options options(const Case& each) {
    HostPair::Options options;
    options.workers = each.workers;
    options.shards = each.shards;
    return options;
}

TEST(BulkThreads, MoveATransferWhileTheProgramMakesNoCall) {
    for (const Case& each : cases()) {
        for (const bool is_put : {true, false}) {
            HostPair pair(options(each));
            pair.promote();
            EXPECT_EQ(pair.pool(0)->threads() % each.workers, 0u);
            pair.fill(1);
            pair.fill_there(2);
            const auto before = is_put ? pair.here : pair.there;
            const uint64_t moved = pair.moved(0);
            HostOperation& operation = is_put ? pair.start_put() : pair.start_get();
            ASSERT_TRUE(HostPair::await([&] { return pair.pool(0)->events.any(); }));
            EXPECT_EQ(operation.ends, 0u);
            EXPECT_EQ(pair.moved(0) - moved, pair.here.size());
            ucp_worker_progress(pair.worker(0));
            EXPECT_EQ(operation.ends, 1u);
            EXPECT_EQ(operation.status, UCS_OK);
            EXPECT_TRUE(pair.here == before);
            EXPECT_TRUE(pair.there == before);
        }
    }
}

TEST(BulkThreads, MoveARendezvousWhileNeitherProgramMakesACall) {
    for (const Case& each : cases()) {
        HostPair pair(options(each));
        pair.promote();
        // Who reads or writes the data has had bulk transfers as well.
        const auto sent = pattern(pair.here.size(), 3);
        std::vector<uint8_t> received(sent.size());
        for (const bool is_counted : {false, true}) {
            std::fill(received.begin(), received.end(), 0);
            const uint64_t moved = pair.moved(0) + pair.moved(1);
            HostOperation& receive = pair.start_receive(received.data(), received.size());
            HostOperation& send = pair.start_send(sent.data(), sent.size());
            if (is_counted) {
                // The message and its answer, up to the first slice.
                ASSERT_TRUE(pair.until([&] { return pair.moved(0) + pair.moved(1) > moved; }));
                ASSERT_TRUE(HostPair::await([&] {
                    return pair.pool(0)->events.any() || pair.pool(1)->events.any() ||
                           receive.ends != 0;
                }));
                // The rest, if any, went by other paths while progress was called.
                EXPECT_GT(pair.moved(0) + pair.moved(1) - moved, 0u);
            }
            EXPECT_EQ(pair.finish(receive), UCS_OK);
            EXPECT_EQ(pair.finish(send), UCS_OK);
            EXPECT_TRUE(received == sent);
            const auto second_has_queue_pairs = [&] {
                return pair.inner(1).bulk_queue_pairs().holds(unwrap(pair.endpoint(1)));
            };
            ASSERT_TRUE(pair.until(second_has_queue_pairs));
        }
    }
}

TEST(BulkThreads, NoneByDefault) {
    HostPair pair(options({0, 4}));
    pair.promote();
    EXPECT_EQ(pair.pool(0), nullptr);
    pair.fill(4);
    EXPECT_EQ(pair.finish(pair.start_put()), UCS_OK);
    EXPECT_TRUE(pair.here == pair.there);
}

// UCX_BULK_WORKERS, as users set it.
TEST(BulkThreads, AreAsManyForEachDeviceAsTheVariableSays) {
    for (const unsigned workers : {1, 3}) {
        HostPair::Options wanted = options({workers, 2});
        wanted.variables = {{"BULK_WORKERS", std::to_string(workers)}};
        HostPair pair(wanted);
        pair.promote();
        std::set<unsigned> devices;
        pair.inner(0).bulk_queue_pairs().for_each(
            unwrap(pair.endpoint(0)), [&](unsigned interface) { devices.insert(interface); });
        EXPECT_EQ(pair.pool(0)->threads(), workers * devices.size());
    }
}

TEST(BulkThreads, WakeUpASleepingProgram) {
    HostPair::Options with_wakeup = options({2, 1});
    with_wakeup.features |= UCP_FEATURE_WAKEUP;
    HostPair pair(with_wakeup);
    pair.promote();
    int descriptor = -1;
    ASSERT_EQ(ucp_worker_get_efd(pair.worker(0), &descriptor), UCS_OK);
    pair.fill(5);
    HostOperation& put = pair.start_put();
    while (put.ends == 0) {
        const ucs_status_t armed = ucp_worker_arm(pair.worker(0));
        if (armed == UCS_OK) {
            pollfd entry{descriptor, POLLIN, 0};
            ASSERT_EQ(poll(&entry, 1, 60000), 1);
        }
        ucp_worker_progress(pair.worker(0));
    }
    EXPECT_EQ(put.status, UCS_OK);
    EXPECT_TRUE(pair.here == pair.there);
}

// A thread pushes whenever its last entry was taken, the program calls progress all the time and
// now and then puts work aside itself.
TEST(BulkThreads, NothingThatAThreadSaysIsOverlooked) {
    HostPair pair(options({1, 1}));
    pair.promote();
    bulk::ThreadEvents& events = pair.pool(0)->events;
    const bulk::PathGroup* group = pair.inner(0).bulk().find(unwrap(pair.endpoint(0)));
    ASSERT_NE(group, nullptr);
    const auto on_thread = std::ranges::find_if(
        group->paths, [](const auto& path) { return path->on_thread != nullptr; });
    ASSERT_NE(on_thread, group->paths.end());
    // One that no path knows: the worker has nothing to do about it.
    const auto queue_pair =
        std::make_shared<bulk::ThreadQueuePair>((*on_thread)->on_thread->thread);
    std::atomic<bool> is_over{false};
    std::atomic<uint64_t> pushed{0};
    std::thread thread([&] {
        while (!is_over) {
            ++pushed;
            events.push({.kind = bulk::ThreadEvent::Kind::kStopped, .queue_pair = queue_pair});
            HostPair::await([&] { return !events.any() || is_over; });
        }
    });
    const auto end = std::chrono::steady_clock::now() + 1s;
    bool is_heard = true;
    while (is_heard && std::chrono::steady_clock::now() < end) {
        const uint64_t before = pushed;
        pair.inner(0).host().work.notify();
        ucp_worker_progress(pair.worker(0));
        is_heard = pair.until([&] { return pushed > before; }, 10s);
    }
    EXPECT_TRUE(is_heard) << pushed;
    is_over = true;
    thread.join();
}

TEST(BulkThreads, TransfersGoOnWhileQueuePairsComeAndGo) {
    HostPair::Options narrow = options({2, 2});
    narrow.window = 256 << 10;
    HostPair pair(narrow);
    pair.promote();
    for (unsigned round = 0; round < 10; ++round) {
        pair.fill(round);
        pair.fill_there(round + 100);
        const bool is_put = round % 2 == 0;
        const auto expected = is_put ? pair.here : pair.there;
        HostOperation& operation = is_put ? pair.start_put() : pair.start_get();
        pair.demote();
        EXPECT_EQ(pair.finish(operation), UCS_OK);
        EXPECT_TRUE(pair.here == expected);
        EXPECT_TRUE(pair.there == expected);
        HostOperation& again = is_put ? pair.start_put() : pair.start_get();
        EXPECT_EQ(ucpx_ep_lanes_request(pair.endpoint(0), UCPX_LANE_POLICY_DEDICATED), UCS_OK);
        EXPECT_TRUE(pair.until([&] { return pair.has_queue_pairs(); }));
        EXPECT_EQ(pair.finish(again), UCS_OK);
    }
}

// The n-th operation from the start on kills its queue pair, one for bulk.
TEST(BulkThreads, AQueuePairThatFailsCostsNoTransferAndNoByte) {
    for (const Case& each : cases()) {
        for (const unsigned position : {1, 60}) {
            for (const bool is_put : {true, false}) {
                HostPair pair(options(each));
                pair.promote();
                pair.fill(position);
                pair.fill_there(position + 1000);
                const auto expected = is_put ? pair.here : pair.there;
                softhca::FaultPlan plan;
                plan.kill_qp_after = position;
                softhca::HostFabric::instance()->faults.set(plan);
                HostOperation& operation = is_put ? pair.start_put() : pair.start_get();
                HostPair::await([&] { return pair.pool(0)->events.any(); }, 1s);
                softhca::HostFabric::instance()->faults.set({});
                EXPECT_EQ(pair.finish(operation), UCS_OK);
                EXPECT_TRUE(pair.here == expected);
                EXPECT_TRUE(pair.there == expected);
                // What comes late would fall on this.
                std::fill(pair.here.begin(), pair.here.end(), 0x5a);
                std::fill(pair.there.begin(), pair.there.end(), 0x5a);
                for (unsigned count = 0; count < 2000; ++count) pair.step();
                EXPECT_TRUE(is_all(pair.here, 0x5a));
                EXPECT_TRUE(is_all(pair.there, 0x5a));
                EXPECT_EQ(operation.ends, 1u);
                EXPECT_EQ(pair.pool(0)->shared_transfers.in_use(), 0u);
            }
        }
    }
}

TEST(BulkThreads, ARefusalEndsTheTransferOnceWithTheError) {
    for (const Case& each : cases()) {
        HostPair pair(options(each));
        pair.promote();
        pair.withdraw_memory();
        HostOperation& first = pair.start_put();
        HostOperation& second = pair.start_get();
        EXPECT_NE(pair.finish(first), UCS_OK);
        EXPECT_NE(pair.finish(second), UCS_OK);
        for (unsigned count = 0; count < 2000; ++count) pair.step();
        EXPECT_EQ(first.ends, 1u);
        EXPECT_EQ(second.ends, 1u);
        EXPECT_EQ(pair.pool(0)->shared_transfers.in_use(), 0u);
    }
}

TEST(BulkThreads, AWorkerMayEndInTheMiddleOfATransfer) {
    for (const Case& each : cases()) {
        for (const size_t ends : {0, 1}) {
            HostPair pair(options(each));
            pair.promote();
            const size_t half = pair.here.size() / 2;
            HostOperation& put = pair.start_put(0, half);
            HostOperation& get = pair.start_get(half, half);
            pair.destroy(ends);
            for (unsigned count = 0; count < 100; ++count) pair.step();
            if (ends == 0) {
                EXPECT_EQ(put.ends, 1u);
                EXPECT_EQ(get.ends, 1u);
            }
        }
    }
}

TEST(BulkThreads, ManyTransfersAtATime) {
    HostPair pair(options({4, 2}));
    pair.promote();
    constexpr size_t kPart = 192 << 10;
    for (unsigned round = 0; round < 20; ++round) {
        pair.fill(round);
        std::vector<HostOperation*> operations;
        for (size_t offset = 0; offset < pair.here.size(); offset += kPart) {
            operations.push_back(&pair.start_put(offset, kPart));
        }
        for (HostOperation* operation : operations) EXPECT_EQ(pair.finish(*operation), UCS_OK);
        EXPECT_TRUE(pair.here == pair.there);
    }
    EXPECT_GT(pair.moved(0), 0u);
}

// --- copies within the host

HostPair::Options within_the_host(unsigned workers) {
    HostPair::Options options;
    options.workers = workers;
    options.transports = {"sm"};
    return options;
}

TEST(CopyThreads, MoveATransferWhileTheProgramMakesNoCall) {
    for (const unsigned workers : {1u, 3u}) {
        for (const bool is_put : {true, false}) {
            HostPair pair(within_the_host(workers));
            pair.fill(1);
            pair.fill_there(2);
            const auto expected = is_put ? pair.here : pair.there;
            HostOperation& operation = is_put ? pair.start_put() : pair.start_get();
            ASSERT_TRUE(HostPair::await([&] { return pair.copied(0) == pair.here.size(); }));
            EXPECT_EQ(operation.ends, 0u);
            EXPECT_EQ(pair.finish(operation), UCS_OK);
            EXPECT_TRUE(pair.here == expected);
            EXPECT_TRUE(pair.there == expected);
        }
    }
}

// Once the receiver has read what announces it.
TEST(CopyThreads, MoveAMessageWhileNeitherProgramMakesACall) {
    // So long that the program does not do it all before a thread is awake.
    HostPair::Options large = within_the_host(1);
    large.length = 64 << 20;
    HostPair pair(large);
    const auto sent = pattern(pair.here.size(), 3);
    const auto copied = [&] { return pair.copied(0) + pair.copied(1); };
    // On a busy machine it does so all the same, and then another message has to show it.
    for (int tries = 0;; ++tries) {
        ASSERT_LT(tries, 20) << "no thread is awake before all is copied";
        std::vector<uint8_t> received(sent.size());
        const auto before = copied();
        HostOperation& receive = pair.start_receive(received.data(), received.size());
        HostOperation& send = pair.start_send(sent.data(), sent.size());
        ASSERT_TRUE(pair.until([&] { return copied() != before || receive.ends != 0; }));
        const bool is_late = receive.ends != 0;
        if (!is_late) {
            ASSERT_TRUE(HostPair::await([&] { return received == sent; }));
            EXPECT_EQ(receive.ends, 0u);
        }
        EXPECT_EQ(pair.finish(receive), UCS_OK);
        EXPECT_EQ(pair.finish(send), UCS_OK);
        if (!is_late) return;
    }
}

TEST(CopyThreads, NoneByDefault) {
    HostPair pair(within_the_host(0));
    pair.fill(4);
    EXPECT_EQ(pair.inner(0).interfaces().copy_threads(), nullptr);
    EXPECT_EQ(pair.finish(pair.start_put()), UCS_OK);
    EXPECT_TRUE(pair.here == pair.there);
}

TEST(CopyThreads, WakeUpASleepingProgram) {
    HostPair::Options with_wakeup = within_the_host(1);
    with_wakeup.features |= UCP_FEATURE_WAKEUP;
    with_wakeup.length = 64 << 20;
    HostPair pair(with_wakeup);
    int descriptor = -1;
    ASSERT_EQ(ucp_worker_get_efd(pair.worker(0), &descriptor), UCS_OK);
    pair.fill(5);
    HostOperation& put = pair.start_put();
    unsigned calls = 0;
    while (put.ends == 0) {
        const ucs_status_t armed = ucp_worker_arm(pair.worker(0));
        if (armed == UCS_OK) {
            pollfd entry{descriptor, POLLIN, 0};
            ASSERT_EQ(poll(&entry, 1, 60000), 1);
        }
        ++calls;
        ucp_worker_progress(pair.worker(0));
    }
    // It has slept, and not copied all of it itself.
    EXPECT_LT(calls, 20u);
    EXPECT_GT(pair.copied(0), pair.here.size() / 2);
    EXPECT_EQ(put.status, UCS_OK);
    EXPECT_TRUE(pair.here == pair.there);
}

TEST(CopyThreads, AWorkerMayEndInTheMiddleOfATransfer) {
    for (const size_t ends : {0, 1}) {
        HostPair::Options large = within_the_host(2);
        large.length = 64 << 20;
        HostPair pair(large);
        const size_t half = pair.here.size() / 2;
        HostOperation& put = pair.start_put(0, half);
        HostOperation& get = pair.start_get(half, half);
        pair.destroy(ends);
        // Nothing is written to what is canceled.
        if (ends == 0) {
            std::fill(pair.here.begin(), pair.here.end(), 0x5a);
            EXPECT_EQ(put.ends, 1u);
            EXPECT_EQ(get.ends, 1u);
        }
        for (unsigned count = 0; count < 100; ++count) pair.step();
        if (ends == 0) {
            EXPECT_TRUE(is_all(pair.here, 0x5a));
        }
        (void)pair.finish(put);
        (void)pair.finish(get);
    }
}

TEST(CopyThreads, WithdrawnMemoryIsARefusal) {
    HostPair pair(within_the_host(1));
    pair.withdraw_memory();
    HostOperation& put = pair.start_put();
    EXPECT_EQ(pair.finish(put), UCS_ERR_INVALID_ADDR);
    for (unsigned count = 0; count < 100; ++count) pair.step();
    EXPECT_EQ(put.ends, 1u);
}

}  // namespace
}  // namespace ucp::test

int main(int argc, char** argv) {
    const std::string fabric = "bulk-threads-" + std::to_string(getpid());
    setenv("SOFTHCA_FABRIC", fabric.c_str(), 1);
    setenv("SOFTHCA_DEVICES", "2", 0);
    testing::InitGoogleTest(&argc, argv);
    const ucs::test::LeaksFail log;
    return RUN_ALL_TESTS();
}

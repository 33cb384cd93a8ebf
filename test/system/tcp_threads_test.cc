// SPDX-License-Identifier: BSD-3-Clause

// Bulk transfers over TCP by threads (UCX_BULK_WORKERS), each with an interface of its own.

#include <dirent.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "system/host_pair.h"

namespace ucp::test {
namespace {

// The ends of connections in this process.
std::set<int> connections() {
    std::set<int> found;
    DIR* const all = opendir("/proc/self/fd");
    while (const dirent* entry = readdir(all)) {
        const int descriptor = std::atoi(entry->d_name);
        sockaddr_storage peer{};
        socklen_t length = sizeof(peer);
        const bool has_peer =
            getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
        if (has_peer && peer.ss_family == AF_INET) found.insert(descriptor);
    }
    closedir(all);
    return found;
}

// Two workers whose threads have queue pairs on all devices.
class TcpThreads : public testing::TestWithParam<unsigned> {
  protected:
    void open(size_t length = 8 << 20) {
        make_pair(length);
        open_queue_pairs();
    }
    void make_pair(size_t length = 8 << 20) {
        HostPair::Options options;
        options.workers = options.qps = GetParam();
        options.transports = {"tcp"};
        options.length = length;
        pair.emplace(options);
        EXPECT_EQ(pair->finish(pair->start_put(0, 8)), UCS_OK);
        EXPECT_TRUE(pair->until([] { return connections().size() == 2; }));
        of_messages = connections();
    }
    void open_queue_pairs() {
        EXPECT_EQ(pair->finish(pair->start_put(0, 1 << 20)), UCS_OK);
        EXPECT_TRUE(pair->until([&] { return pair->has_queue_pairs(); }));
    }
    HostOperation& start(bool is_put) { return is_put ? pair->start_put() : pair->start_get(); }
    // What there is here and there when such a transfer has ended.
    std::vector<uint8_t> filled(bool is_put, uint64_t seed) {
        pair->fill(seed);
        pair->fill_there(seed + 1);
        return is_put ? pair->here : pair->there;
    }
    void expect_all(const std::vector<uint8_t>& bytes) {
        EXPECT_TRUE(pair->here == bytes);
        EXPECT_TRUE(pair->there == bytes);
    }
    // Nothing is written late. What a get has read elsewhere may still be read.
    void expect_quiet(bool is_put) {
        std::vector<uint8_t>& target = is_put ? pair->there : pair->here;
        std::fill(target.begin(), target.end(), 0x5a);
        for (unsigned count = 0; count < 2000; ++count) pair->step();
        EXPECT_TRUE(is_all(target, 0x5a));
        EXPECT_EQ(pair->pool(0)->shared_transfers.in_use(), 0u);
    }

    std::optional<HostPair> pair;
    std::set<int> of_messages;
};
INSTANTIATE_TEST_SUITE_P(Workers, TcpThreads, testing::Values(1, 3));

TEST_P(TcpThreads, MoveATransferWhileNeitherProgramMakesACall) {
    open();
    for (const bool is_put : {true, false}) {
        const auto expected = filled(is_put, 1);
        const uint64_t moved = pair->moved(0);
        HostOperation& operation = start(is_put);
        ASSERT_TRUE(HostPair::await([&] { return pair->pool(0)->events.any(); }));
        EXPECT_EQ(operation.ends, 0u);
        EXPECT_EQ(pair->moved(0) - moved, pair->here.size());
        ucp_worker_progress(pair->worker(0));
        EXPECT_EQ(operation.ends, 1u);
        EXPECT_EQ(operation.status, UCS_OK);
        expect_all(expected);
    }
}

TEST_P(TcpThreads, AreOneForEachQueuePairOfADevice) {
    open();
    std::multiset<unsigned> devices;
    pair->inner(0).bulk_queue_pairs().for_each(
        unwrap(pair->endpoint(0)), [&](unsigned interface) { devices.insert(interface); });
    EXPECT_EQ(pair->pool(0)->threads(), devices.size());
    for (const unsigned device : devices) EXPECT_EQ(devices.count(device), GetParam());
}

// The program's thread is bound to a processor when it has a worker, as one that computes is.
TEST_P(TcpThreads, KeepOffTheProcessorThatTheProgramIsBoundTo) {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one processor for all";
    size_t own = 0;
    while (!CPU_ISSET(own, &all)) ++own;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(own, &one);
    make_pair();
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    open_queue_pairs();
    EXPECT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
    unsigned count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream(task.path() / "comm") >> name;
        if (name != "bulk") continue;
        cpu_set_t its;
        const pid_t thread = std::atoi(task.path().filename().c_str());
        ASSERT_EQ(sched_getaffinity(thread, sizeof(its), &its), 0);
        EXPECT_FALSE(CPU_ISSET(own, &its));
        ++count;
    }
    EXPECT_EQ(count, 2 * GetParam());
}

TEST_P(TcpThreads, MessagesAndTransfersInBothDirectionsAtATime) {
    open();
    constexpr size_t kPart = 192 << 10;
    const auto sent = pattern(4 << 20, 3);
    for (unsigned round = 0; round < 10; ++round) {
        pair->fill(round);
        std::vector<uint8_t> received(sent.size());
        std::vector<HostOperation*> operations = {
            &pair->start_receive(received.data(), received.size())};
        for (size_t offset = 0; offset < pair->here.size(); offset += kPart) {
            operations.push_back(&pair->start_put(offset, kPart));
        }
        operations.push_back(&pair->start_send(sent.data(), sent.size()));
        for (HostOperation* operation : operations) EXPECT_EQ(pair->finish(*operation), UCS_OK);
        EXPECT_TRUE(pair->here == pair->there);
        EXPECT_TRUE(received == sent);
    }
}

// All that there are beside the one of messages break in the midst of it, or one alone does.
TEST_P(TcpThreads, ConnectionsThatBreakCostNoTransferAndNoByteAndAreMadeAnew) {
    // Long enough that connections break before it is over.
#ifdef __SANITIZE_THREAD__
    open(16 << 20);
#else
    open(64 << 20);
#endif
    for (unsigned round = 0; round < 4; ++round) {
        const bool is_put = round % 2 == 0;
        const auto expected = filled(is_put, round);
        const uint64_t moved = pair->moved(0);
        HostOperation& operation = start(is_put);
        ASSERT_TRUE(HostPair::await([&] { return pair->moved(0) - moved >= (1u + round) << 20; }));
        EXPECT_FALSE(pair->pool(0)->events.any()) << "it is over already";
        for (const int connection : connections()) {
            if (of_messages.contains(connection)) continue;
            shutdown(connection, SHUT_RDWR);
            if (round < 2) break;
        }
        EXPECT_EQ(pair->finish(operation), UCS_OK);
        expect_all(expected);
        expect_quiet(is_put);
        EXPECT_EQ(operation.ends, 1u);
        open_queue_pairs();
    }
}

TEST_P(TcpThreads, ARefusalEndsTheTransferOnceWithTheError) {
    open();
    pair->withdraw_memory();
    HostOperation& first = pair->start_put();
    HostOperation& second = pair->start_get();
    EXPECT_NE(pair->finish(first), UCS_OK);
    EXPECT_NE(pair->finish(second), UCS_OK);
    expect_quiet(true);
    EXPECT_EQ(first.ends, 1u);
    EXPECT_EQ(second.ends, 1u);
}

TEST_P(TcpThreads, AWorkerMayEndInTheMiddleOfATransfer) {
    for (const size_t ends : {0, 1}) {
        open();
        const size_t half = pair->here.size() / 2;
        HostOperation& put = pair->start_put(0, half);
        HostOperation& get = pair->start_get(half, half);
        pair->destroy(ends);
        for (unsigned count = 0; count < 100; ++count) pair->step();
        if (ends == 0) {
            EXPECT_EQ(put.ends, 1u);
            EXPECT_EQ(get.ends, 1u);
        }
    }
}

}  // namespace
}  // namespace ucp::test

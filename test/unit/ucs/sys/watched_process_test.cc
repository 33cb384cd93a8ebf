// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/watched_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

namespace ucs {
namespace {

size_t open_descriptors() {
    DIR* const directory = opendir("/proc/self/fd");
    size_t count = 0;
    while (readdir(directory) != nullptr) ++count;
    closedir(directory);
    return count;
}

class WatchedProcessTest : public ::testing::Test {
  protected:
    WatchedProcessTest() : child_(fork()) {
        if (child_ == 0) {
            pause();
            _exit(0);
        }
        other_ = Process::find(static_cast<uint32_t>(child_)).value_or(Process{});
        EXPECT_EQ(other_.pid, static_cast<uint32_t>(child_));
    }
    ~WatchedProcessTest() override {
        kill_child();
        waitpid(child_, nullptr, 0);
    }
    // It stays a zombie.
    void kill_child() const {
        kill(child_, SIGKILL);
        siginfo_t info;
        waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT);
    }

    const pid_t child_;
    Process other_;
};

TEST_F(WatchedProcessTest, IsAliveUntilItDies) {
    const auto watched = WatchedProcess::of(other_);
    EXPECT_TRUE(watched->is_alive());
    kill_child();
    EXPECT_FALSE(watched->is_alive()) << "a zombie is dead";
    EXPECT_FALSE(WatchedProcess::of(other_)->is_alive());
}

TEST_F(WatchedProcessTest, HasOneDescriptorForAll) {
    const size_t before = open_descriptors();
    auto first = WatchedProcess::of(other_);
    if (!first->has_descriptor()) GTEST_SKIP() << "the kernel has none";
    const auto second = WatchedProcess::of(other_);
    EXPECT_EQ(first, second);
    EXPECT_EQ(open_descriptors(), before + 1);
    first.reset();
    EXPECT_TRUE(second->is_alive());
}

TEST_F(WatchedProcessTest, LeavesNothingOpen) {
    const size_t before = open_descriptors();
    for (int times = 0; times < 3; ++times) EXPECT_TRUE(WatchedProcess::of(other_)->is_alive());
    EXPECT_EQ(open_descriptors(), before);
}

TEST_F(WatchedProcessTest, AnotherWithItsNumberIsNotTheSame) {
    const auto former = WatchedProcess::of({other_.pid, other_.start_time + 1});
    EXPECT_FALSE(former->is_alive());
    EXPECT_FALSE(former->has_descriptor());
    EXPECT_TRUE(WatchedProcess::of(other_)->is_alive());
}

TEST_F(WatchedProcessTest, TheOwnProcessNeedsNoDescriptor) {
    const auto own = WatchedProcess::of(Process::self());
    EXPECT_TRUE(own->is_alive());
    EXPECT_FALSE(own->has_descriptor());
}

// The program has something else in the descriptor's place: no peer is dead for that.
TEST_F(WatchedProcessTest, AForeignDescriptorKillsNobody) {
    const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    const auto watched = WatchedProcess::of(other_);
    if (!watched->has_descriptor()) GTEST_SKIP() << "the kernel has none";
    const int ready = open("/dev/zero", O_RDONLY | O_CLOEXEC);  // can be read from at any time
    ASSERT_EQ(dup2(ready, next), next);
    close(ready);
    EXPECT_TRUE(watched->is_alive());
    kill_child();
    EXPECT_FALSE(watched->is_alive());
}

// All descriptors are in use: also those that a sanitizer would look at this object with.
TEST_F(WatchedProcessTest, WithoutDescriptorsNobodyIsDead) {
    const pid_t child = child_;
    const Process other = other_;
    const auto with = WatchedProcess::of(other);
    rlimit usual{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
    const rlimit none{0, usual.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool is_found_alive = other.is_alive(), is_alive_with = with->is_alive();
    const auto without = WatchedProcess::of({other.pid, 0});
    const bool has_descriptor = without->has_descriptor(), is_alive_without = without->is_alive();
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const bool is_found_dead = !other.is_alive();
    const bool is_limit_back = setrlimit(RLIMIT_NOFILE, &usual) == 0;
    ASSERT_TRUE(is_limit_back);
    EXPECT_TRUE(is_found_alive);
    EXPECT_TRUE(is_alive_with);
    EXPECT_FALSE(has_descriptor);
    EXPECT_TRUE(is_alive_without);
    EXPECT_TRUE(is_found_dead);
}

}  // namespace
}  // namespace ucs

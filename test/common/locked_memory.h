// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace ucs::test {

// The right of this thread to lock more memory than RLIMIT_MEMLOCK.
class LockingRight {
  public:
    LockingRight() { EXPECT_EQ(syscall(SYS_capget, &header_, rights_), 0); }
    bool is_held() const {
        return (rights_[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0;
    }
    void give_up() {
        auto& rights = rights_[CAP_TO_INDEX(CAP_IPC_LOCK)];
        rights.effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
        rights.permitted &= ~CAP_TO_MASK(CAP_IPC_LOCK);
        EXPECT_EQ(syscall(SYS_capset, &header_, rights_), 0);
    }

  private:
    __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct rights_[_LINUX_CAPABILITY_U32S_3] = {};
};

// Runs in a child process without the right to lock more memory than RLIMIT_MEMLOCK, which does not
// come back to the process that gave it up. What it expects counts here.
// @param body  the most that the limit may be set to is its argument
inline void with_little_locked_memory(const std::function<void(rlim_t most)>& body) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        rlimit limit{};
        EXPECT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
        const rlimit none{limit.rlim_cur, RLIM_INFINITY};
        if (setrlimit(RLIMIT_MEMLOCK, &none) == 0) limit.rlim_max = RLIM_INFINITY;
        LockingRight().give_up();
        body(limit.rlim_max);
        _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

inline void lock_at_most(rlim_t bytes) {
    rlimit limit{};
    EXPECT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

}  // namespace ucs::test

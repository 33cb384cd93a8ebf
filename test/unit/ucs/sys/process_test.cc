// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ucs {
namespace {

TEST(Process, AForkedChildHasItsOwnNumber) {
    EXPECT_EQ(Process::own_number(), static_cast<uint32_t>(getpid()));
    const pid_t child = fork();
    if (child == 0) _exit(Process::own_number() == static_cast<uint32_t>(getpid()) ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(Process::own_number(), static_cast<uint32_t>(getpid()));
}

}  // namespace
}  // namespace ucs

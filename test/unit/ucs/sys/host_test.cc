// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/host.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ucs {
namespace {

TEST(Host, NameHasNoDomain) {
    EXPECT_FALSE(host_name().empty());
    EXPECT_EQ(host_name().find('.'), std::string::npos);
}

TEST(Host, AChildSharesTheHostAndHasItsOwnProcessId) {
    const uint64_t host = host_id();
    const uint32_t process = process_id();
    EXPECT_NE(host, 0u);
    const pid_t child = fork();
    if (child == 0) _exit(host_id() == host && process_id() != process ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ucs

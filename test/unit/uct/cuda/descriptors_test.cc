// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "ucs/runtime/runtime.h"

namespace uct::cuda {
namespace {

class CudaDescriptors : public ::testing::Test {
  protected:
    static ucs::Descriptor null_device() {
        return ucs::Descriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
    }
    static bool is_null_device(int descriptor) {
        struct stat known {
        }, asked{};
        return stat("/dev/null", &known) == 0 && fstat(descriptor, &asked) == 0 &&
               known.st_rdev == asked.st_rdev && known.st_ino == asked.st_ino;
    }
    int ask(uint64_t number) const { return DescriptorServer::ask(process, token, number); }

    const uint64_t process = ucs::unique_id(), token = ucs::unique_id();
    DescriptorServer server{process, token};
};

TEST_F(CudaDescriptors, WhoKnowsTheTokenGetsWhatIsOffered) {
    EXPECT_EQ(ask(1), -2) << "nobody is there before the first offer";
    ASSERT_TRUE(server.offer(1, null_device()));
    const int descriptor = ask(1);
    ASSERT_GE(descriptor, 0);
    EXPECT_TRUE(is_null_device(descriptor));
    EXPECT_NE(fcntl(descriptor, F_GETFD) & FD_CLOEXEC, 0);
    close(descriptor);
    server.withdraw(1);
    EXPECT_EQ(ask(1), -1);
}

TEST_F(CudaDescriptors, WhoDoesNotKnowTheTokenGetsNothing) {
    ASSERT_TRUE(server.offer(1, null_device()));
    EXPECT_EQ(DescriptorServer::ask(process, token + 1, 1), -2);
    EXPECT_EQ(DescriptorServer::ask(process, token + 1, 2), -2);
    EXPECT_FALSE(server.is_wanted(2));
}

TEST_F(CudaDescriptors, OtherUsersGetNothing) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    constexpr uid_t kNobody = 65534;
    ASSERT_TRUE(server.offer(1, null_device()));
    const pid_t child = fork();
    if (child == 0) _exit(setuid(kNobody) == 0 && ask(1) == -2 ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

// The oldest are given up; who asks for one gets it when its owner offers it anew.
TEST_F(CudaDescriptors, AreLimitedInNumber) {
    constexpr uint64_t kMany = 300;
    for (uint64_t number = 1; number <= kMany; ++number)
        ASSERT_TRUE(server.offer(number, null_device()));
    EXPECT_FALSE(server.is_wanted(1));
    EXPECT_EQ(ask(1), -1);
    EXPECT_TRUE(server.is_wanted(1));
    ASSERT_TRUE(server.offer(1, null_device()));
    EXPECT_FALSE(server.is_wanted(1));
    for (const uint64_t number : {uint64_t{1}, kMany}) {
        const int descriptor = ask(number);
        EXPECT_GE(descriptor, 0);
        close(descriptor);
    }
}

TEST_F(CudaDescriptors, NothingIsOfferedAfterTheEnd) {
    ASSERT_TRUE(server.offer(1, null_device()));
    server.stop();
    EXPECT_EQ(ask(1), -2);
    EXPECT_FALSE(server.offer(1, null_device()));
}

}  // namespace
}  // namespace uct::cuda

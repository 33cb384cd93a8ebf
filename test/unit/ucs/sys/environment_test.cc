// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/environment.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace ucs {
namespace {

TEST(ProcessEnvironment, SeesTheProcess) {
    setenv("UCS_TEST_VARIABLE", "a=b", 1);
    const ProcessEnvironment environment;
    EXPECT_EQ(environment.get("UCS_TEST_VARIABLE"), "a=b");
    EXPECT_EQ(environment.names("UCS_TEST_V"), std::vector<std::string>{"UCS_TEST_VARIABLE"});
    unsetenv("UCS_TEST_VARIABLE");
    EXPECT_FALSE(environment.get("UCS_TEST_VARIABLE"));
}

constexpr int kSeen = 42;

// What the next test runs as another user.
TEST(ProcessEnvironment, DISABLED_IsEmptyHere) {
    ASSERT_NE(getauxval(AT_SECURE), 0u);
    ASSERT_NE(std::getenv("UCX_MODULE_DIR"), nullptr) << "the C library takes it away by itself";
    const ProcessEnvironment environment;
    EXPECT_FALSE(environment.get("UCX_MODULE_DIR"));
    EXPECT_TRUE(environment.names("UCX_").empty());
    if (!HasFailure()) _exit(kSeen);
}

// Who calls a program that has another user's rights says nothing about which modules it loads.
TEST(ProcessEnvironment, IsEmptyInASetUidProgram) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers do not run with rights of another user";
#endif
    if (geteuid() != 0) GTEST_SKIP() << "needs the right to make a program set-uid";
    struct statvfs place {};
    const bool has_no_effect =
        prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
        (statvfs("/tmp", &place) == 0 && (place.f_flag & (ST_NOSUID | ST_NOEXEC)) != 0);
    if (has_no_effect) GTEST_SKIP() << "set-uid has no effect here";
    constexpr unsigned kNobody = 65534;
    constexpr int kNoOther = 77;
    std::array<char, 32> path{"/tmp/swiftlane-setuid-XXXXXX"};
    const int copy = mkstemp(path.data()), own = open("/proc/self/exe", O_RDONLY);
    struct stat info {};
    ASSERT_EQ(fstat(own, &info), 0);
    for (off_t at = 0; at < info.st_size;)
        ASSERT_GT(sendfile(copy, own, &at, static_cast<size_t>(info.st_size - at)), 0);
    ASSERT_EQ(fchmod(copy, 04755), 0);
    close(copy);
    close(own);
    const pid_t child = fork();
    if (child == 0) {
        const char* const filter = "--gtest_filter=ProcessEnvironment.DISABLED_IsEmptyHere";
        const bool is_other = chdir("/") == 0 && setgroups(0, nullptr) == 0 &&
                              setgid(kNobody) == 0 && setuid(kNobody) == 0 &&
                              setenv("UCX_MODULE_DIR", "/tmp", 1) == 0 &&
                              unsetenv("GTEST_TOTAL_SHARDS") == 0;
        if (!is_other) _exit(kNoOther);
        execl(path.data(), path.data(), filter, "--gtest_also_run_disabled_tests",
              static_cast<char*>(nullptr));
        _exit(127);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    unlink(path.data());
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoOther)
        GTEST_SKIP() << "this process can be no other user";
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kSeen) << status;
}

}  // namespace
}  // namespace ucs

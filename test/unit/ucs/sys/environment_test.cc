// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/environment.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ucs

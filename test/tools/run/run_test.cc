// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "test/tools/command.h"

namespace tools {
namespace {

TEST(Run, SetsTheEnvironmentAndSaysSo) {
    const Outcome outcome = run_command({"run", "-v", "--soft", "--", "sh", "-c",
                                         "echo $LD_LIBRARY_PATH $OMPI_MCA_pml $1", "sh", "-v"});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find(" ucx -v\n"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.err.find("OMPI_MCA_btl="), std::string::npos) << outcome.err;
}

TEST(Run, WhatTheUserHasSetStays) {
    setenv("OMPI_MCA_pml", "ob1", 1);
    const Outcome outcome = run_command({"run", "-v", "--", "sh", "-c", "echo $OMPI_MCA_pml"});
    unsetenv("OMPI_MCA_pml");
    EXPECT_EQ(outcome.out, "ob1\n");
    EXPECT_NE(outcome.err.find("OMPI_MCA_pml=ob1 (as given)"), std::string::npos) << outcome.err;
}

TEST(Run, EndsAsTheProgramDoes) {
    EXPECT_EQ(run_command({"run", "--", "sh", "-c", "exit 7"}).status, 7);
    EXPECT_NE(run_command({"run"}).status, 0);
}

}  // namespace
}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tools/command.h"

namespace tools {
namespace {

// The line of the table for a transport, the first if there are several.
std::string line_of(const std::string& text, const std::string& transport) {
    const size_t begin = text.find("\n# " + transport + " ");
    if (begin == text.npos) return {};
    return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
}

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

TEST(Explain, SaysWhatAWorkerUsesToReachItself) {
    const Outcome outcome = run_command({"explain", "--self"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(ends_with(line_of(outcome.out, "self"), "  chosen")) << outcome.out;
}

TEST(Explain, TellsHostsApart) {
    const Outcome other = run_command({"explain", "--soft", "--other-host"});
    EXPECT_EQ(other.status, 0) << other.err;
    EXPECT_NE(line_of(other.out, "dc_mlx5").find("chosen; hot endpoints go to rc_mlx5"),
              std::string::npos)
        << other.out;
    EXPECT_TRUE(ends_with(line_of(other.out, "self"), "reaches this worker only")) << other.out;
}

TEST(Explain, ObeysThePeersSettings) {
    const Outcome outcome = run_command({"explain", "--soft", "--other-host", "--peer-set",
                                         "UCX_TLS=rc_v", "--peer-set", "UCX_NET_DEVICES=mlx5_0"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(line_of(outcome.out, "ud_verbs").find("chosen; hot endpoints go to rc_verbs"),
              std::string::npos)
        << outcome.out;
    EXPECT_TRUE(ends_with(line_of(outcome.out, "dc_mlx5"), "the peer does not have it"))
        << outcome.out;
}

TEST(Explain, ShowsLanesByRoleAndProtocolsByLength) {
    const Outcome outcome = run_command({"explain", "--soft", "--other-host"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const char* part :
         {"# messages ", "# put, get ", "# atomics ", "no lane serves",
          "Protocols over the scalable lane, dc_mlx5/",
          "Protocols over the dedicated lane, rc_mlx5/", "# tag ", "# active message ", "# stream ",
          "rendezvous, bulk", "zero copy takes", "up to 65535 bytes"}) {
        EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
    }
}

TEST(Explain, ShowsWhatTheUserSets) {
    setenv("UCX_RNDV_THRESH", "12345", 1);
    const Outcome outcome = run_command({"explain", "--soft", "--other-host"});
    unsetenv("UCX_RNDV_THRESH");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("12345 to "), std::string::npos) << outcome.out;
}

TEST(Explain, ReadsAnAddressFromAFile) {
    const TemporaryFile file;
    EXPECT_EQ(run_command({"explain", "--save", file.path()}).status, 0);
    const Outcome outcome = run_command({"explain", "--to", file.path()});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("on the same host"), std::string::npos) << outcome.out;
    const Outcome nonsense = run_command({"explain", "--to", "/proc/version"});
    EXPECT_NE(nonsense.status, 0);
    EXPECT_NE(nonsense.err.find("address"), std::string::npos) << nonsense.err;
}

}  // namespace
}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "test/tools/command.h"

namespace tools {
namespace {

using nlohmann::json;

json read_json(const TemporaryFile& file) {
    return json::parse(read_text(file.path()));
}

// Short intervals, so that a promotion takes a fraction of a second. What is up stays, however long
// ranks wait for each other.
class Bench : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        setenv("UCX_DYNAMIC_TL_SWITCH_INTERVAL", "20ms", 1);
        setenv("UCX_DYNAMIC_TL_MIN_RESIDENCE", "60s", 1);
    }
    static void TearDownTestSuite() {
        unsetenv("UCX_DYNAMIC_TL_SWITCH_INTERVAL");
        unsetenv("UCX_DYNAMIC_TL_MIN_RESIDENCE");
    }
};

TEST_F(Bench, HotPairsArePromotedUnderVerifiedTraffic) {
    const TemporaryFile file;
    setenv("UCX_MAX_PRIORITY_EPS", "1", 1);  // with slots for all, who trickles has one too
    const Outcome outcome = run_command({"bench", "mbw_mr", "--ranks", "4", "--pairs", "1",
                                         "--unused", "2", "--size", "8:2K", "--time", "50ms",
                                         "--settle", "1s", "--verify", "--json", file.path()});
    unsetenv("UCX_MAX_PRIORITY_EPS");
    ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("Messages/s"), std::string::npos);

    const json document = read_json(file);
    ASSERT_EQ(document.at("rows").size(), 9u);
    for (const json& row : document.at("rows")) {
        EXPECT_GT(row.at("messages_per_s").get<double>(), 0);
        EXPECT_GT(row.at("mb_per_s").get<double>(), 0);
        EXPECT_EQ(row.at("lanes"), "dynamic");
    }
    const json& lanes = document.at("lanes");
    EXPECT_EQ(lanes.at("promotions"), 2) << "both ends of the hot pair: " << outcome.out;
    EXPECT_TRUE(lanes.at("demotions").is_number_unsigned());
    EXPECT_TRUE(lanes.at("denials").is_number_unsigned());
    for (const json& entry : lanes.at("map")) {
        const bool hot = entry.at("rank").get<int>() + entry.at("peer").get<int>() == 1;
        EXPECT_EQ(entry.at("lane"), hot ? "rc_mlx5" : "dc_mlx5") << entry;
        EXPECT_FALSE(entry.at("why").get<std::string>().empty());
    }
}

TEST_F(Bench, ModesStandSideBySide) {
    const TemporaryFile file;
    const Outcome outcome = run_command({"bench", "alltoall", "--ranks", "3", "--size", "64",
                                         "--iterations", "20", "--settle", "0", "--verify",
                                         "--lanes", "scalable,dedicated", "--json", file.path()});
    ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    const json document = read_json(file);
    EXPECT_EQ(document.at("modes").size(), 2u);
    EXPECT_EQ(document.at("modelled"), false);
    for (const auto& [mode, run] : document.at("modes").items()) {
        const uint64_t with_worker = run.at("memory").at("with_worker_bytes");
        EXPECT_GT(with_worker, 0u) << mode;
        EXPECT_GE(run.at("memory").at("at_end_bytes"), with_worker) << mode;
    }
    EXPECT_NE(outcome.out.find("Memory of a rank"), std::string::npos) << outcome.out;
}

TEST_F(Bench, AWorkerWithinAHostTakesLittleMemory) {
    const TemporaryFile file;
    const Outcome outcome =
        run_command({"bench", "alltoall", "--ranks", "8", "--size", "8", "--iterations", "20",
                     "--settle", "0", "--tls", "self,sm", "--json", file.path()});
    ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
    const json memory = read_json(file).at("modes").at("dynamic").at("memory");
    EXPECT_LT(memory.at("with_worker_bytes"), 3'000'000);  // of 128 ranks as well: docs/results.md
    EXPECT_LT(memory.at("at_end_bytes"), 8'000'000);
}

TEST_F(Bench, OneRankWarnsOfVariablesThatNothingReads) {
    setenv("UCX_NOWHERE_READ", "1", 1);
    const Outcome outcome = run_command(
        {"bench", "mbw_mr", "--ranks", "4", "--size", "8", "--iterations", "1", "--settle", "0"});
    unsetenv("UCX_NOWHERE_READ");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const size_t first = outcome.err.find("UCX_NOWHERE_READ");
    ASSERT_NE(first, std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("UCX_NOWHERE_READ", first + 1), std::string::npos) << outcome.err;
}

TEST_F(Bench, ADeadRankEndsTheJobWithItsName) {
    Command command({"bench", "mbw_mr", "--ranks", "4", "--settle", "0", "--time", "60s"});
    std::vector<pid_t> ranks;
    while (ranks.size() < 4 && command.is_running()) {
        ranks = command.children();
        std::this_thread::yield();
    }
    ASSERT_EQ(ranks.size(), 4u);
    ASSERT_EQ(kill(ranks[2], SIGKILL), 0);
    const Outcome outcome = command.wait();
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find("was killed by signal 9"), std::string::npos) << outcome.err;
    for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0) << rank;
}

TEST(JobPlace, ThatNoLauncherHasSetIsRefused) {
    for (const char* place : {"", "0", "0:3:4:5", "0:3:4x", "x:3:4"}) {
        setenv("SWIFTLANE_PLACE", place, 1);
        const Outcome outcome = run_command({"bench", "alltoall"});
        EXPECT_EQ(outcome.status, 1) << place;
        EXPECT_NE(outcome.err.find("is set by the launcher alone"), std::string::npos)
            << outcome.err;
    }
    unsetenv("SWIFTLANE_PLACE");
}

TEST(BadOptions, AreNamed) {
    const struct {
        std::vector<std::string> arguments;
        const char* message;
    } cases[] = {
        {{"bench", "mbw_mr", "--ranks", "3", "--pairs", "2"}, "2 pairs need 4 ranks"},
        {{"bench", "mbw_mr", "--ranks", "2", "--unused", "1"}, "--unused"},
        {{"bench", "mbw_mr", "--size", "9:8"}, "--size"},
        {{"bench", "mbw_mr", "--time", "soon"}, "'soon' is no time"},
        {{"bench", "mbw_mr", "--lanes", "fast"}, "--lanes"},
        {{"bench", "mbw_mr", "--ranks", "1"}, "--ranks"},
        {{"bench", "nothing"}, "no command 'nothing'"},
        {{"sim", "mbw_mr", "--model", "speed=1"}, "no field 'speed'"},
        {{"sim", "zipf", "--set", "UCX_TLS"}, "NAME=VALUE"},
    };
    for (const auto& [arguments, message] : cases) {
        const Outcome outcome = run_command(arguments);
        EXPECT_NE(outcome.status, 0) << message;
        EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
    }
}

}  // namespace
}  // namespace tools

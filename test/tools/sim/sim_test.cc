// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "test/tools/command.h"

namespace tools {
namespace {

using nlohmann::json;

struct SimOutcome {
    Outcome outcome;
    std::string text;  // of the JSON file
    json document;
};

SimOutcome simulate(std::vector<std::string> arguments) {
    const TemporaryFile file;
    arguments.insert(arguments.begin(), "sim");
    arguments.insert(arguments.end(), {"--json", file.path()});
    SimOutcome result{run_command(arguments), "", {}};
    EXPECT_EQ(result.outcome.status, 0) << result.outcome.err;
    result.text = read_text(file.path());
    result.document = json::parse(result.text, nullptr, false);
    return result;
}

const std::vector<std::string> kSmallZipf{"zipf",       "--ranks", "8",      "--cap", "2",
                                          "--interval", "200us",   "--time", "4ms",   "--verify"};

// Simulated once for all tests that look at it.
const SimOutcome& small_zipf() {
    static const SimOutcome run = simulate(kSmallZipf);
    return run;
}

TEST(Sim, SameSeedSameBytes) {
    const SimOutcome& first = small_zipf();
    const SimOutcome second = simulate(kSmallZipf);
    EXPECT_FALSE(first.text.empty());
    EXPECT_EQ(first.text, second.text);
    EXPECT_EQ(first.outcome.out, second.outcome.out);
    std::vector<std::string> other = kSmallZipf;
    other.insert(other.end(), {"--seed", "2"});
    EXPECT_NE(simulate(other).text, first.text);
}

TEST(Sim, SaysThatItIsModelled) {
    const SimOutcome& run = small_zipf();
    EXPECT_EQ(run.document.at("modelled"), true);
    EXPECT_NE(run.outcome.out.find("modelled"), std::string::npos);
    EXPECT_TRUE(run.document.at("model").contains("dci_switch"));
}

TEST(Sim, ZipfAdmitsWhatAGreedyMatchingAdmits) {
    const SimOutcome& run = small_zipf();
    const json& observed = run.document.at("modes").at("dynamic").at("observed");
    EXPECT_EQ(observed.at("matching").at("outside_margin"), 0) << run.outcome.out;
    EXPECT_GE(observed.at("matching").at("ratio").get<double>(), 0.95) << run.outcome.out;
    EXPECT_LE(observed.at("peak").get<int>(), 2);
    EXPECT_EQ(observed.at("late_switches"), 0) << run.outcome.out;
}

TEST(Sim, MbwMrPromotesTheHotPairsOnly) {
    const SimOutcome run =
        simulate({"mbw_mr", "--ranks", "8", "--pairs", "2", "--unused", "4", "--size", "8", "--cap",
                  "2", "--interval", "200us", "--settle", "4ms", "--time", "500us", "--verify"});
    const json& lanes = run.document.at("lanes");
    EXPECT_EQ(lanes.at("promotions"), 4) << run.outcome.out;
    const json& observed = run.document.at("modes").at("dynamic").at("observed");
    EXPECT_EQ(observed.at("late_switches"), 0) << run.outcome.out;
    for (const json& entry : lanes.at("map")) {
        const int rank = entry.at("rank");
        const int peer = entry.at("peer");
        const bool hot = std::max(rank, peer) < 4 && std::abs(rank - peer) == 2;
        EXPECT_EQ(entry.at("state") == "established", hot) << entry;
    }
}

TEST(Sim, AlltoallDoesNotChurn) {
    const SimOutcome run =
        simulate({"alltoall", "--ranks", "8", "--size", "64", "--cap", "2", "--interval", "200us",
                  "--settle", "4ms", "--time", "4ms", "--lanes", "dynamic"});
    const json& observed = run.document.at("modes").at("dynamic").at("observed");
    EXPECT_EQ(observed.at("late_switches"), 0) << run.outcome.out;
}

TEST(Sim, BulkFillsTheLinkWithSeveralQueuePairsWhereOneDoesNot) {
    const auto rate = [](const std::string& queue_pairs) {
        const SimOutcome run = simulate({"bulk", "--lanes", "dedicated", "--size", "16M:16M",
                                         "--iterations", "4", "--settle", "1ms", "--model",
                                         "qp_gbps=50", "--set", "UCX_BULK_QPS=" + queue_pairs});
        const json& observed = run.document.at("modes").at("dedicated").at("observed");
        EXPECT_GT(observed.at("doorbells").get<int>(), 0);
        return run.document.at("modes")
            .at("dedicated")
            .at("rows")
            .at(0)
            .at("mb_per_s")
            .get<double>();
    };
    EXPECT_NEAR(rate("0"), 6250, 100);
    EXPECT_GT(rate("8"), 0.95 * 50000);
}

TEST(Sim, SlicesOfLargeTransfersShareDoorbells) {
    for (const char* size : {"16M:16M", "64M:64M"}) {
        const SimOutcome run = simulate({"bulk", "--lanes", "dedicated", "--size", size, "--model",
                                         "qp_gbps=50", "--set", "UCX_BULK_QPS=8"});
        const json& observed = run.document.at("modes").at("dedicated").at("observed");
        const double slices = observed.at("adapter_bytes").get<double>() / 65536;
        EXPECT_GT(slices, 6 * 1024);
        EXPECT_LE(observed.at("doorbells").get<double>() / slices, 1.0 / 16) << run.outcome.out;
    }
}

TEST(Sim, BulkFillsUnequalRails) {
    const SimOutcome run = simulate({"bulk", "--lanes", "dedicated", "--size", "64M:64M",
                                     "--devices", "2", "--model", "other_link_gbps=100"});
    const json& rows = run.document.at("modes").at("dedicated").at("rows");
    EXPECT_GT(rows.at(0).at("mb_per_s").get<double>(), 0.95 * 62500) << run.outcome.out;
}

// Streams of 4 MiB messages beside 1,300 exchanges a second, slots enough for both.
TEST(Sim, HaloBesideBulkHasFreeSlots) {
    const SimOutcome run = simulate({"halo"});
    const json& observed = run.document.at("modes").at("dynamic").at("observed");
    const json& promotions = observed.at("promotions");
    EXPECT_EQ(promotions.at("links"), 3);
    EXPECT_EQ(promotions.at("promoted"), 3) << run.outcome.out;
    EXPECT_EQ(promotions.at("demotions"), 0) << run.outcome.out;
    EXPECT_EQ(observed.at("late_switches"), 0) << run.outcome.out;
    EXPECT_LE(observed.at("settled_ns").get<int64_t>(), 5 * 100'000'000) << run.outcome.out;
}

// The best of the links have their lanes long before anything is ranked.
TEST(Sim, AnOracleHoldsItsLanesFromTheStart) {
    const SimOutcome run =
        simulate({"halo", "--ranks", "4", "--cap", "1", "--rate", "1e9", "--time", "10us",
                  "--bulk-rate", "1e6", "--bulk-size", "65536", "--lanes", "scalable,oracle"});
    const json& modes = run.document.at("modes");
    EXPECT_EQ(modes.at("oracle").at("lanes").at("promotions"), 4) << run.outcome.out;
    EXPECT_EQ(modes.at("oracle").at("lanes").at("demotions"), 0) << run.outcome.out;
    EXPECT_LT(modes.at("oracle").at("observed").at("duration_ns").get<int64_t>(),
              modes.at("scalable").at("observed").at("duration_ns").get<int64_t>());
    EXPECT_NE(run.outcome.out.find("of the oracle's"), std::string::npos);
}

// Links have their lanes after a few messages each, which went over the others.
TEST(Sim, SaysWhatWentOverDedicatedLanes) {
    const SimOutcome run = simulate({"ring", "--shipped", "--ranks", "4", "--rate", "10000",
                                     "--time", "1s", "--lanes", "scalable,dynamic"});
    const json& modes = run.document.at("modes");
    EXPECT_EQ(modes.at("scalable").at("observed").at("dedicated"), 0) << run.outcome.out;
    EXPECT_NEAR(modes.at("dynamic").at("observed").at("dedicated").get<double>(), 0.997, 0.002)
        << run.outcome.out;
    EXPECT_NEAR(modes.at("dynamic").at("observed").at("messages").get<double>(), 4 * 10000, 200);
}

TEST(Sim, ZipfKeepsToItsRate) {
    const SimOutcome run = simulate({"zipf", "--ranks", "8", "--rate", "1e6", "--window", "10",
                                     "--time", "4ms", "--lanes", "scalable"});
    const double messages = run.document.at("modes").at("scalable").at("observed").at("messages");
    EXPECT_NEAR(messages, 8 * 4000, 8 * 2 * 10) << run.outcome.out;
}

TEST(Sim, AFewTransfersOfAGigabyteASecondAreWorthALane) {
    const SimOutcome run = simulate({"halo", "--ranks", "2", "--rate", "1", "--bulk-size",
                                     "67108864", "--bulk-rate", "3", "--time", "2s"});
    const json& promotions = run.document.at("modes").at("dynamic").at("observed").at("promotions");
    EXPECT_EQ(promotions.at("promoted"), 1) << run.outcome.out;
    EXPECT_EQ(promotions.at("demotions"), 0) << run.outcome.out;
}

// Slots are scarce, so that a link that looks colder after a phase would lose its slot.
TEST(Sim, PhasesOfComputationSwitchNothing) {
    const SimOutcome run =
        simulate({"phases", "--ranks", "8", "--phases", "20", "--distance", "2", "--cap", "2"});
    const json& promotions = run.document.at("modes").at("dynamic").at("observed").at("promotions");
    EXPECT_GE(promotions.at("promoted").get<int>(), 6) << run.outcome.out;
    EXPECT_EQ(promotions.at("after_second_phase"), 0) << run.outcome.out;
}

TEST(Sim, SeedsRunEachInAProcessOfItsOwn) {
    const std::vector<std::string> small{"zipf", "--ranks", "4", "--cap", "1", "--time", "1ms"};
    const TemporaryFile file;
    std::vector<std::string> arguments{"sim"};
    arguments.insert(arguments.end(), small.begin(), small.end());
    arguments.insert(arguments.end(), {"--seeds", "3:4", "--jobs", "2", "--json", file.path()});
    const Outcome all = run_command(arguments);
    EXPECT_EQ(all.status, 0) << all.err;
    EXPECT_NE(all.out.find("# seeds 3 to 6: all ran"), std::string::npos) << all.out;
    for (const char* seed : {"3", "4", "5", "6"}) {
        std::vector<std::string> one = small;
        one.insert(one.end(), {"--seed", seed});
        const SimOutcome alone = simulate(one);
        const std::string path = file.path() + "." + seed;
        EXPECT_EQ(read_text(path), alone.text);
        std::remove(path.c_str());
        EXPECT_NE(all.out.find(alone.outcome.out), std::string::npos);
    }
}

TEST(Sim, AFailingSeedIsNamed) {
    const Outcome run = run_command({"sim", "zipf", "--ranks", "4", "--cap", "1", "--time", "1ms",
                                     "--seeds", "1:2", "--set", "UCX_TLS=nothing"});
    EXPECT_NE(run.status, 0);
    EXPECT_NE(run.out.find("these failed: 1 2"), std::string::npos) << run.out;
}

TEST(Sim, MessagesOfManyPiecesGoOnAfterEachCompletion) {
    const Outcome outcome = run_command({"sim", "mbw_mr", "--ranks", "2", "--size", "32K:128K",
                                         "--time", "100us", "--settle", "0"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST(Sim, SeedsAreARange) {
    for (const char* text : {"", "1", "1:", ":2", "1:0", "a:1", "1:2x"}) {
        EXPECT_NE(run_command({"sim", "zipf", "--seeds", std::string("x") + text}).status, 0);
    }
}

TEST(Sim, RingAndChurnFindTheirLanes) {
    for (const char* pattern : {"ring", "incast", "churn"}) {
        const SimOutcome run = simulate({pattern, "--ranks", "4", "--lanes", "dynamic"});
        const json& observed = run.document.at("modes").at("dynamic").at("observed");
        EXPECT_GT(observed.at("switches"), 0) << run.outcome.out;
        EXPECT_LE(observed.at("peak").get<int>(), 4);
    }
}

std::string exchanges(unsigned count) {
    std::string text = "ranks 3\n";
    for (unsigned i = 0; i < count; ++i) {
        text +=
            "0 compute 1ms\n0 send 1 8\n0 recv 1 1K # longer than what comes\n0 wait\n"
            "1 recv 0 8\n1 send 0 8\n1 wait\n";
    }
    return text + "0 barrier\n1 barrier\n2 barrier\n";
}

TEST(Sim, ReplaysATrace) {
    const TemporaryFile trace;
    std::ofstream(trace.path()) << exchanges(1000);
    const SimOutcome run =
        simulate({"replay", "--trace", trace.path(), "--lanes", "scalable,dynamic"});
    for (const char* mode : {"scalable", "dynamic"}) {
        const json& observed = run.document.at("modes").at(mode).at("observed");
        EXPECT_EQ(observed.at("messages"), 2000) << run.outcome.out;
        EXPECT_GT(observed.at("duration_ns").get<int64_t>(), 1'000'000'000);
    }
    const json& dynamic = run.document.at("modes").at("dynamic");
    EXPECT_EQ(dynamic.at("observed").at("promotions").at("promoted"), 1) << run.outcome.out;
    EXPECT_EQ(run.document.at("options").at("ranks"), 3);
    EXPECT_TRUE(run.document.at("lanes").contains("lanes_reused"));
}

TEST(Sim, ATraceThatIsNoneIsRefused) {
    const std::pair<std::string, std::string> files[] = {
        {"", "no line 'ranks N'"},
        {"0 wait\n", ":1: the first line must be 'ranks N'"},
        {"ranks 1\n", ":1: 2 to 4096 ranks, not 1"},
        {"ranks 2\n2 wait\n", ":2: there is no rank 2"},
        {"ranks 2\n-1 wait\n", ":2: '-1' is no number"},
        {"ranks 2\n0 send 0 8\n", ":2: a rank sends nothing to itself"},
        {"ranks 2\n0 send 1\n", ":2: a line of 'send' has 4 words, not 3"},
        {"ranks 2\n0 fence\n", ":2: 'fence' is none of send, recv, wait, barrier, compute"},
        {"ranks 2\n0 compute x\n", ":2: "},
        {"ranks 2\n0 send 1 2G\n", ":2: a message of more than 1 GiB"},
        {"ranks 2\n0 send 1 8\n", "rank 0 sends 1 messages to rank 1, which receives 0"},
        {"ranks 2\n1 recv 0 8\n", "rank 0 sends 0 messages to rank 1, which receives 1"},
        {"ranks 2\n0 send 1 8\n1 recv 0 4\n", "has 8 bytes, its receive 4"},
        {"ranks 2\n1 barrier\n", "rank 0 enters 0 barriers, rank 1 enters 1"},
    };
    for (const auto& [text, error] : files) {
        const TemporaryFile trace;
        std::ofstream(trace.path()) << text;
        const Outcome outcome = run_command({"sim", "replay", "--trace", trace.path()});
        EXPECT_NE(outcome.status, 0) << text;
        EXPECT_NE(outcome.err.find(error), std::string::npos) << text << outcome.err;
    }
    EXPECT_NE(run_command({"sim", "replay", "--trace", "/nowhere"}).status, 0);
    EXPECT_NE(run_command({"sim", "replay"}).status, 0);
}

// A neighbour that computes keeps nobody's message, whether it had the only lane or not. While it
// does, its neighbour gives that lane to the other one.
void expect_sleepers_to_stop_nobody(const char* transports) {
    const SimOutcome run =
        simulate({"sleepers", "--ranks", "3", "--rate", "300", "--sleep", "3s", "--time", "8s",
                  "--lanes", "scalable,dynamic", "--set", transports});
    const auto longest = [&run](const char* mode) {
        const json& observed = run.document.at("modes").at(mode).at("observed");
        return observed.at("longest_completion_ns").get<int64_t>();
    };
    EXPECT_LE(longest("dynamic"), longest("scalable") + 1'000'000) << run.outcome.out;
    EXPECT_LE(longest("dynamic"), 1'000'000) << run.outcome.out;
    const json& observed = run.document.at("modes").at("dynamic").at("observed");
    EXPECT_GT(observed.at("promotions").at("demotions"), 0) << "none had to leave its lane";
    EXPECT_LE(observed.at("peak").get<int>(), 2);  // one in its slot, one parked
}

TEST(Sim, SleepersStopNobody) {
    expect_sleepers_to_stop_nobody("UCX_TLS=dc,rc,self");
}

TEST(Sim, SleepersStopNobodyOverUd) {
    expect_sleepers_to_stop_nobody("UCX_TLS=ud,rc,self");
}

// A single move takes 8 to 10 intervals, as chance has it.
TEST(Sim, ShiftFollowsTheHotSet) {
    const SimOutcome run = simulate({"shift", "--ranks", "16", "--cap", "2", "--interval", "200us",
                                     "--time", "8ms", "--phases", "5", "--lanes", "dynamic"});
    const json& observed = run.document.at("modes").at("dynamic").at("observed");
    EXPECT_EQ(observed.at("late_switches"), 0) << run.outcome.out;
    const json& recoveries = observed.at("recoveries");
    ASSERT_EQ(recoveries.size(), 4u);
    int sum = 0;
    for (const json& recovery : recoveries) {
        ASSERT_TRUE(recovery.at("intervals").is_number()) << run.outcome.out;
        EXPECT_GT(recovery.at("intervals").get<int>(), 1) << "a move that costs nothing";
        sum += recovery.at("intervals").get<int>();
    }
    EXPECT_LE(sum, 4 * 11) << run.outcome.out;
}

}  // namespace
}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

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

TEST(Sim, SameSeedSameBytes) {
    const SimOutcome first = simulate(kSmallZipf);
    const SimOutcome second = simulate(kSmallZipf);
    EXPECT_FALSE(first.text.empty());
    EXPECT_EQ(first.text, second.text);
    EXPECT_EQ(first.outcome.out, second.outcome.out);
    std::vector<std::string> other = kSmallZipf;
    other.insert(other.end(), {"--seed", "2"});
    EXPECT_NE(simulate(other).text, first.text);
}

TEST(Sim, SaysThatItIsModelled) {
    const SimOutcome run = simulate(kSmallZipf);
    EXPECT_EQ(run.document.at("modelled"), true);
    EXPECT_NE(run.outcome.out.find("modelled"), std::string::npos);
    EXPECT_TRUE(run.document.at("model").contains("dci_switch"));
}

TEST(Sim, ZipfAdmitsWhatAGreedyMatchingAdmits) {
    const SimOutcome run = simulate(kSmallZipf);
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

TEST(Sim, ShiftFollowsTheHotSet) {
    const SimOutcome run = simulate({"shift", "--ranks", "16", "--cap", "2", "--interval", "200us",
                                     "--time", "8ms", "--phases", "3", "--lanes", "dynamic"});
    const json& observed = run.document.at("modes").at("dynamic").at("observed");
    EXPECT_EQ(observed.at("late_switches"), 0) << run.outcome.out;
    const json& recoveries = observed.at("recoveries");
    ASSERT_EQ(recoveries.size(), 2u);
    for (const json& recovery : recoveries) {
        ASSERT_TRUE(recovery.at("intervals").is_number()) << run.outcome.out;
        EXPECT_GT(recovery.at("intervals").get<int>(), 1) << "a move that costs nothing";
        EXPECT_LE(recovery.at("intervals").get<int>(), 20);
    }
}

}  // namespace
}  // namespace tools

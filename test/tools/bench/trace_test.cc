// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "test/tools/command.h"

namespace tools {
namespace {

using nlohmann::json;

TEST(TraceOfAJob, CountsWhatTheJobCounts) {
    std::string folder = "/tmp/swiftlane-trace-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    const TemporaryFile report;
    const Outcome outcome = run_traced(
        folder + "/%p.json", {"bench", "mbw_mr", "--ranks", "2", "--size", "8:1M", "--time", "20ms",
                              "--settle", "1s", "--verify", "--json", report.path()});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    unsigned files = 0, established = 0, begun = 0, ended = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const json events = json::parse(read_text(entry.path()), nullptr, false);
        ASSERT_TRUE(events.is_array()) << entry.path();
        if (events.empty()) continue;
        ++files;
        for (const json& event : events) {
            EXPECT_EQ(std::to_string(event.at("pid").get<int>()), entry.path().stem());
            const bool is_async = event.at("cat") == "rendezvous" || event.at("cat") == "bulk";
            begun += is_async && event.at("ph") == "b" ? 1 : 0;
            ended += is_async && event.at("ph") == "e" ? 1 : 0;
            established += event.at("cat") == "lane" && event.at("name") == "established" &&
                                   event.at("args").at("from") != "established"
                               ? 1
                               : 0;
        }
    }
    std::filesystem::remove_all(folder);
    EXPECT_GE(files, 2u);
    EXPECT_EQ(established, json::parse(read_text(report.path())).at("lanes").at("promotions"));
    EXPECT_GT(begun, 0u) << "messages of 1 MiB are announced";
    EXPECT_EQ(begun, ended);
}

}  // namespace
}  // namespace tools

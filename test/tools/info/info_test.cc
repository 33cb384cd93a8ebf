// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "test/tools/command.h"

namespace tools {
namespace {

using nlohmann::json;

json output_of(const std::vector<std::string>& arguments) {
    const Outcome outcome = run_command(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
}

TEST(Info, NamesTheLibraryInUse) {
    const Outcome outcome = run_command({"info", "-v"});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find("libucp.so.0"), std::string::npos) << outcome.out;
}

TEST(Info, ExplainsEveryVariable) {
    const Outcome outcome = run_command({"info", "-c", "-f"});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_NE(outcome.out.find("UCX_DYNAMIC_TL_SWITCH_INTERVAL=100ms"), std::string::npos)
        << outcome.out;
    EXPECT_NE(outcome.out.find("Dedicated lanes that a worker holds at most"), std::string::npos);
}

TEST(Info, ShowsTheVariablesOfModules) {
    const Outcome outcome = run_command({"info", "-c"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const char* name : {"UCX_TLS=", "UCX_TCP_", "UCX_RC_", "UCX_DC_", "UCX_UD_", "UCX_IB_"})
        EXPECT_NE(outcome.out.find(name), std::string::npos) << name;
}

TEST(Info, DescribesDevicesAndTheirUse) {
    const Outcome outcome = run_command({"info", "--soft", "-d"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const char* part :
         {"link: InfiniBand", "address: LID", "limits: ", "dc_mlx5/mlx5_0:1: all peers",
          // What Open MPI looks for.
          "  flags -- rc_mlx5/mlx5_0:1\n"}) {
        EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
    }
}

TEST(InfoJson, DescribesAllVariables) {
    const json document = output_of({"info", "-c", "--json", "-"});
    ASSERT_GT(document.at("variables").size(), 100u);
    EXPECT_FALSE(document.contains("transports"));
    for (const json& variable : document.at("variables")) {
        for (const char* key : {"name", "help", "expected", "table"})
            EXPECT_FALSE(variable.at(key).get<std::string>().empty()) << key << " " << variable;
    }
}

TEST(InfoJson, TellsTheValuesOfVariables) {
    setenv("UCX_RNDV_THRESH", "12345", 1);
    const json document = output_of({"info", "-c", "--json", "-"});
    unsetenv("UCX_RNDV_THRESH");
    unsigned found = 0;
    for (const json& variable : document.at("variables")) {
        if (variable.at("name") != "UCX_RNDV_THRESH") continue;
        ++found;
        EXPECT_EQ(variable.at("value"), "12345");
        EXPECT_EQ(variable.at("default"), "auto");
    }
    EXPECT_EQ(found, 1u);
}

TEST(InfoJson, NamesTheTransportsOfTheEmulatedAdapter) {
    const json document = output_of({"info", "--soft", "-d", "--json", "-"});
    EXPECT_FALSE(document.contains("variables"));
    unsigned found = 0;
    for (const json& transport : document.at("transports")) {
        found += transport.at("name") == "dc_mlx5" ? 1 : 0;
        EXPECT_FALSE(transport.at("device").get<std::string>().empty());
        EXPECT_FALSE(transport.at("use").get<std::string>().empty());
        EXPECT_NE(transport.at("figures").get<std::string>().find("latency"), std::string::npos);
    }
    EXPECT_EQ(found, 1u);
}

}  // namespace
}  // namespace tools

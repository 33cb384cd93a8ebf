// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "test/tools/command.h"

namespace tools {
namespace {

using nlohmann::json;

std::vector<std::string> perf(const std::string& operation, std::vector<std::string> more) {
    std::vector<std::string> arguments{"perf", operation};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

json run_to_json(const std::string& operation, std::vector<std::string> more) {
    const TemporaryFile file;
    more.insert(more.end(), {"--json", file.path()});
    const Outcome outcome = run_command(perf(operation, more));
    EXPECT_EQ(outcome.status, 0) << operation << ": " << outcome.out << outcome.err;
    if (outcome.status != 0) return {};
    EXPECT_NE(outcome.out.find("# lanes: "), std::string::npos) << outcome.out;
    return json::parse(read_text(file.path()));
}

void expect_sound(const json& document, size_t rows) {
    ASSERT_EQ(document.at("rows").size(), rows);
    for (const json& row : document.at("rows")) {
        EXPECT_GT(row.at("latency_us").get<double>(), 0);
        EXPECT_GE(row.at("latency_p99_us"), row.at("latency_median_us"));
        EXPECT_GE(row.at("latency_median_us"), row.at("latency_min_us"));
        EXPECT_GT(row.at("messages_per_s").get<double>(), 0);
        EXPECT_NEAR(row.at("mb_per_s").get<double>(),
                    row.at("messages_per_s").get<double>() * row.at("size").get<double>() / 1e6,
                    1e-3 * row.at("mb_per_s").get<double>() + 1e-9);
        EXPECT_GE(row.at("cpu_initiator").get<double>(), 0);
        EXPECT_GE(row.at("cpu_target").get<double>(), 0);
    }
}

TEST(Perf, EveryOperationMovesEveryByteOverTheEmulatedAdapter) {
    for (const char* operation : {"put", "get", "tag", "am"}) {
        SCOPED_TRACE(operation);
        const json document =
            run_to_json(operation, {"--soft", "--size", "3:192K", "--iterations", "3", "--warmup",
                                    "1", "--window", "2", "--verify"});
        expect_sound(document, 17);
        EXPECT_EQ(document.at("emulated"), true);
    }
}

// There the last message is acknowledged by the target's progress alone.
TEST(Perf, EndsOverDatagramsToo) {
    setenv("UCX_UD_TIMEOUT", "20s", 1);
    for (const char* transports : {"ud", "ud,rc"}) {
        SCOPED_TRACE(transports);
        expect_sound(run_to_json("put", {"--soft", "--tls", transports, "--size", "64",
                                         "--iterations", "3", "--warmup", "1", "--window", "2"}),
                     1);
    }
    unsetenv("UCX_UD_TIMEOUT");
}

TEST(Perf, BatchesMoveEveryByteAndNotify) {
    expect_sound(run_to_json("batch", {"--soft", "--size", "0:2", "--pieces", "9", "--iterations",
                                       "3", "--verify", "--notify"}),
                 3);
    const std::vector<std::string> options{"--soft", "--size",       "4K:8K", "--pieces",
                                           "40",     "--iterations", "4",     "--window",
                                           "2",      "--notify"};
    expect_sound(run_to_json("batch", options), 2);
    std::vector<std::string> gets = options;
    gets.insert(gets.end(), {"--get", "--verify"});
    const json document = run_to_json("batch", gets);
    expect_sound(document, 2);
    EXPECT_EQ(document.at("options").at("pieces"), 40);
}

TEST(Perf, ThreadsEachHaveAPair) {
    const json document =
        run_to_json("put", {"--device", "real", "--tls", "self,tcp", "--size", "256K", "--time",
                            "50ms", "--threads", "3", "--verify", "--sleep"});
    expect_sound(document, 1);
    EXPECT_EQ(document.at("options").at("threads"), 3);
}

TEST(Perf, SharedMemoryCarriesIt) {
    expect_sound(run_to_json("am", {"--device", "real", "--tls", "self,sm", "--size", "8:8K",
                                    "--iterations", "10", "--verify"}),
                 11);
}

TEST(Perf, BothEndsMayBeOneProcess) {
    for (const char* operation : {"put", "tag"}) {
        expect_sound(
            run_to_json(operation, {"--one-process", "--device", "real", "--tls", "self,sm",
                                    "--size", "8:8K", "--iterations", "10", "--verify"}),
            11);
    }
}

TEST(Perf, ARunningJobPrintsItsProtocols) {
    setenv("UCX_PROTO_INFO", "y", 1);
    const Outcome outcome =
        run_command({"perf", "am", "--device", "real", "--tls", "self,sm", "--iterations", "1"});
    unsetenv("UCX_PROTO_INFO");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    for (const char* part : {"active message", "rendezvous", "the next best"}) {
        EXPECT_NE((outcome.out + outcome.err).find(part), std::string::npos) << part;
    }
}

TEST(Perf, BuffersNeedNotHoldTheWindow) {
    for (const char* operation : {"put", "tag", "am"}) {
        SCOPED_TRACE(operation);
        expect_sound(run_to_json(operation, {"--device", "real", "--tls", "self,sm", "--size", "1M",
                                             "--buffer", "1M", "--iterations", "4", "--warmup", "1",
                                             "--verify"}),
                     1);
    }
}

TEST(Perf, OneMetricAloneIsReported) {
    const json document = run_to_json("get", {"--device", "real", "--tls", "self,sm", "--size",
                                              "64", "--time", "20ms", "--measure", "bandwidth"});
    EXPECT_FALSE(document.at("rows")[0].contains("latency_us"));
    EXPECT_GT(document.at("rows")[0].at("mb_per_s").get<double>(), 0);
}

TEST(Perf, AServerServesOneClientOverASocket) {
    Command server(
        {"perf", "server", "--listen", "127.0.0.1:0", "--device", "real", "--tls", "self,tcp"});
    std::string port;
    while (port.empty() && server.is_running()) {
        const std::string out = server.output();
        const size_t at = out.find("at port ");
        if (at != out.npos && out.back() == '\n') port = out.substr(at + 8, out.size() - at - 9);
        std::this_thread::yield();
    }
    ASSERT_FALSE(port.empty()) << server.wait().err;
    expect_sound(run_to_json("put", {"--connect", "127.0.0.1:" + port, "--device", "real", "--tls",
                                     "self,tcp", "--size", "4K", "--iterations", "20", "--verify"}),
                 1);
    EXPECT_EQ(server.wait().status, 0);
}

TEST(Perf, ADeadTargetIsNamed) {
    Command command(
        perf("tag", {"--device", "real", "--tls", "self,tcp", "--size", "8", "--time", "60s"}));
    std::vector<pid_t> children;
    while (children.size() < 2 && command.is_running()) {
        children = command.children();
        std::this_thread::yield();
    }
    ASSERT_EQ(children.size(), 2u);
    ASSERT_EQ(kill(children[1], SIGKILL), 0);
    const Outcome outcome = command.wait();
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find("target was killed by signal 9"), std::string::npos) << outcome.err;
    for (const pid_t child : children) EXPECT_NE(kill(child, 0), 0) << child;
}

// Both processes live, and one has no way to the other any more.
TEST(Perf, AnEndpointThatFailsEndsIt) {
    for (const char* operation : {"tag", "am", "put"}) {
        SCOPED_TRACE(operation);
        setenv("SOFTHCA_FAULTS", "link_down=2000", 1);
        Command command(
            perf(operation, {"--soft", "--size", "64", "--time", "60s", "--measure", "latency"}));
        unsetenv("SOFTHCA_FAULTS");
        const Outcome outcome = command.wait();
        EXPECT_EQ(outcome.status, 1);
        EXPECT_NE(outcome.err.find("timeout"), std::string::npos) << outcome.err;
        EXPECT_EQ(outcome.err.find("killed by signal"), std::string::npos) << outcome.err;
    }
}

const std::vector<std::string> kByMemory{"--device", "real", "--tls", "self,sm"};

std::vector<std::string> by_memory(const std::string& operation, std::vector<std::string> more) {
    more.insert(more.begin(), kByMemory.begin(), kByMemory.end());
    return perf(operation, more);
}

TEST(Perf, WhatWasEmulatedIsMarked) {
    const Outcome soft = run_command(perf("put", {"--soft", "--size", "8", "--iterations", "2"}));
    EXPECT_EQ(soft.status, 0) << soft.err;
    EXPECT_NE(soft.out.find("EMULATED"), std::string::npos) << soft.out;
    const Outcome real = run_command(by_memory("put", {"--size", "8", "--iterations", "2"}));
    EXPECT_EQ(real.status, 0) << real.err;
    EXPECT_EQ(real.out.find("EMULATED"), std::string::npos) << real.out;
    // No lane goes over the adapter.
    const Outcome memory =
        run_command(perf("put", {"--soft", "--tls", "sm", "--size", "8", "--iterations", "2"}));
    EXPECT_EQ(memory.status, 0) << memory.err;
    EXPECT_EQ(memory.out.find("EMULATED"), std::string::npos) << memory.out;
}

TEST(Perf, ResultsGoToStandardOutput) {
    const Outcome outcome =
        run_command(by_memory("put", {"--size", "8:64", "--iterations", "5", "--json", "-"}));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json document = json::parse(outcome.out, nullptr, false);
    ASSERT_FALSE(document.is_discarded()) << outcome.out;
    expect_sound(document, 4);
    EXPECT_EQ(document.at("emulated"), false);
    EXPECT_NE(outcome.err.find("# Size"), std::string::npos) << "for people: " << outcome.err;
}

TEST(Perf, APathThatCannotBeWrittenIsFoundFirst) {
    const Outcome outcome =
        run_command(by_memory("put", {"--time", "60s", "--json", "/no/such/folder/x.json"}));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.err,
              "swiftlane: cannot write /no/such/folder/x.json: No such file or directory\n");
    EXPECT_EQ(outcome.out, "");
}

TEST(Perf, AnInterruptKeepsTheFinishedRows) {
    const TemporaryFile file;
    Command command(
        by_memory("tag", {"--size", "8:16", "--iterations", "3", "--json", file.path()}));
    EXPECT_EQ(command.wait().status, 0);
    Command long_one(by_memory("tag", {"--size", "8:1M", "--time", "300ms", "--measure", "latency",
                                       "--json", file.path()}));
    while (long_one.output().find("\n8 ") == std::string::npos && long_one.is_running())
        std::this_thread::yield();
    const std::vector<pid_t> children = long_one.children();
    ASSERT_EQ(children.size(), 2u);
    for (const pid_t pid : {long_one.pid(), children[0], children[1]})
        EXPECT_EQ(kill(pid, SIGINT), 0);  // as a terminal does
    const Outcome outcome = long_one.wait();
    EXPECT_EQ(outcome.status, 130) << outcome.err;
    const json document = json::parse(read_text(file.path()));
    EXPECT_EQ(document.at("interrupted"), true);
    EXPECT_GE(document.at("rows").size(), 1u);
    EXPECT_LT(document.at("rows").size(), 18u);
}

TEST(Perf, AClosedPortIsNamedAtOnce) {
    Command command(by_memory("put", {"--connect", "127.0.0.1:1"}));
    while (command.errors().find("nobody listens at 127.0.0.1:1") == std::string::npos) {
        ASSERT_TRUE(command.is_running()) << command.errors();
        std::this_thread::yield();
    }
}

TEST(Perf, ProcessorsAreNoMoreThanThereAreThreads) {
    const json document = run_to_json("put", {"--device", "real", "--tls", "self,sm", "--size",
                                              "8:64", "--iterations", "1", "--warmup", "0"});
    for (const json& row : document.at("rows")) {
        EXPECT_LE(row.at("cpu_initiator").get<double>(), 4);
        EXPECT_LE(row.at("cpu_target").get<double>(), 4);
    }
}

TEST(CommandLine, MisspeltWordsAreCorrected) {
    const struct {
        std::vector<std::string> arguments;
        const char* message;
    } cases[] = {
        {{"pref", "put"}, "there is no command 'pref'; did you mean 'perf'?"},
        {{"perf", "batsh"}, "there is no command 'batsh'; did you mean 'batch'?"},
        {{"frobnicate"}, "there is no command 'frobnicate'\n"},
        {{"perf", "--siez", "8"}, "there is no option '--siez'"},
        {{"perf", "put", "--siez", "8"}, "there is no option '--siez'; did you mean '--size'?"},
        {{"perf", "put", "--verify", "--size", "8", "--jsno=x"}, "did you mean '--json'?"},
        {{"info", "--jsno", "-"}, "there is no option '--jsno'; did you mean '--json'?"},
        {{"sim", "zipff"}, "there is no command 'zipff'; did you mean 'zipf'?"},
        {{"sim", "zipf", "--rank", "8"}, "there is no option '--rank'; did you mean '--ranks'?"},
    };
    for (const auto& bad : cases) {
        const Outcome outcome = run_command(bad.arguments);
        EXPECT_EQ(outcome.status, 2);
        EXPECT_NE(outcome.err.find(bad.message), std::string::npos) << outcome.err;
    }
    EXPECT_EQ(run_command({"perf", "put", "--frobnicate"}).status, 2);
    EXPECT_EQ(run_command({"--help"}).status, 0);
}

TEST(CommandLine, BashCompletesCommandsAndOptions) {
    const TemporaryFile script;
    const auto complete = [&](const std::string& words) {
        std::ofstream(script.path()) << run_command({"completion"}).out << "COMP_WORDS=(" << words
                                     << "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _swiftlane\n"
                                     << "echo ${COMPREPLY[@]}\n";
        const std::unique_ptr<FILE, int (*)(FILE*)> bash(
            popen(("bash " + script.path()).c_str(), "r"), pclose);
        char line[1000] = "";
        return std::string(fgets(line, sizeof(line), bash.get()) != nullptr ? line : "");
    };
    EXPECT_EQ(complete("swiftlane pe"), "perf\n");
    EXPECT_EQ(complete("swiftlane perf ba"), "batch\n");
    EXPECT_EQ(complete("swiftlane perf put --ite"), "--iterations\n");
    EXPECT_EQ(complete("swiftlane sim zi"), "zipf\n");
    EXPECT_EQ(complete("swiftlane sim zipf --ran"), "--ranks\n");
    EXPECT_EQ(complete("swiftlane run -- ''"), "\n");
}

TEST(Perf, BadOptionsAreNamed) {
    const struct {
        std::vector<std::string> arguments;
        const char* message;
    } cases[] = {
        {perf("put", {"--size", "2:1"}), "--size"},
        {perf("put", {"--window", "0"}), "--window"},
        {perf("put", {"--measure", "heat"}), "--measure"},
        {perf("put", {"--qps", "9"}), "--qps"},
        {perf("put", {"--time", "0"}), "--time"},
        {perf("put", {"--pieces", "9"}), "--pieces"},
        {perf("put", {"--connect", "host", "--prefix", "nice"}), "excludes"},
        {{"perf"}, "subcommand is required"},
    };
    for (const auto& bad : cases) {
        const Outcome outcome = run_command(bad.arguments);
        EXPECT_NE(outcome.status, 0) << bad.message;
        EXPECT_NE((outcome.out + outcome.err).find(bad.message), std::string::npos)
            << outcome.out << outcome.err;
    }
}

}  // namespace
}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "test/tools/command.h"

namespace tools {
namespace {

using nlohmann::json;

// Two processes that send to each other until the test has seen enough.
class RunningJob : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        setenv("UCX_DYNAMIC_TL_SWITCH_INTERVAL", "20ms", 1);
        job_ = new Command(
            {"bench", "mbw_mr", "--ranks", "2", "--size", "64", "--settle", "0", "--time", "120s"});
        unsetenv("UCX_DYNAMIC_TL_SWITCH_INTERVAL");
    }
    static void TearDownTestSuite() {
        delete job_;
        job_ = nullptr;
    }

    static std::string pids() {
        std::vector<pid_t> ranks;
        while (ranks.size() < 2 && job_->is_running()) ranks = job_->children();
        std::string list;
        for (const pid_t pid : ranks) list += (list.empty() ? "" : ",") + std::to_string(pid);
        return list;
    }
    static json top() {
        const Outcome outcome = run_command({"top", "--once", "--json", "--pid", pids()});
        EXPECT_EQ(outcome.status, 0) << outcome.err;
        return json::parse(outcome.out, nullptr, false);
    }
    // Both ranks are there, and their pair has its dedicated lane.
    static bool is_promoted(const json& document) {
        unsigned established = 0;
        for (const json& process : document.value("processes", json::array())) {
            for (const json& endpoint : process.at("workers").at(0).at("endpoint_list"))
                established += endpoint.value("state", "") == "established" ? 1 : 0;
        }
        return established >= 2;
    }
    static json promoted() {
        json document = json::object();
        while (job_->is_running() && !is_promoted(document)) document = top();
        EXPECT_TRUE(is_promoted(document)) << job_->errors();
        return document;
    }

    static Command* job_;
};
Command* RunningJob::job_ = nullptr;

TEST_F(RunningJob, IsShownWithItsLanes) {
    const json document = promoted();
    ASSERT_EQ(document.at("processes").size(), 2u);
    std::map<std::string, std::string> peer_of;
    for (const json& process : document.at("processes")) {
        const json& worker = process.at("workers").at(0);
        EXPECT_GE(worker.at("promotions"), 1);
        EXPECT_EQ(worker.at("dedicated"), 1);
        EXPECT_GT(worker.at("fills"), 1);
        EXPECT_LT(worker.at("age_s").get<double>(), 60);
        for (const json& endpoint : worker.at("endpoint_list")) {
            if (endpoint.value("state", "") != "established") continue;
            peer_of[worker.at("id")] = endpoint.at("peer");
            EXPECT_GT(endpoint.at("score"), 0);
            EXPECT_GT(endpoint.at("messages_per_s").get<double>(), 0);
            EXPECT_NE(endpoint.at("lane"), endpoint.at("other_lane"));
        }
    }
    ASSERT_EQ(peer_of.size(), 2u);
    EXPECT_EQ(peer_of.begin()->second, peer_of.rbegin()->first) << "they are each other's peer";
    EXPECT_EQ(peer_of.rbegin()->second, peer_of.begin()->first);
}

TEST_F(RunningJob, IsShownInLines) {
    promoted();
    const Outcome outcome = run_command({"top", "--once", "--pid", pids()});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("2 processes, 2 workers"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("established"), std::string::npos) << outcome.out;
    const Outcome brief = run_command({"top", "--once", "--endpoints", "0", "--pid", pids()});
    EXPECT_EQ(brief.out.find("established"), std::string::npos) << brief.out;
}

// A terminal of 100 columns with `swiftlane top` on it.
class OnTerminal {
  public:
    explicit OnTerminal(const std::string& pids) {
        winsize size{.ws_row = 12, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
        pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
        if (pid_ != 0) return;
        const char* given = std::getenv("SWIFTLANE");
        execlp(given != nullptr ? given : "src/tools/swiftlane", "swiftlane", "top", "--interval",
               "100ms", "--pid", pids.c_str(), nullptr);
        _exit(127);
    }
    ~OnTerminal() {
        close(terminal_);
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
    }
    OnTerminal(const OnTerminal&) = delete;
    OnTerminal& operator=(const OnTerminal&) = delete;

    bool is_open() const { return pid_ > 0; }
    void read_until(const std::string& text) {
        while (seen.find(text) == std::string::npos && read_more()) continue;
        EXPECT_NE(seen.find(text), std::string::npos) << seen;
    }
    void press(char key) { EXPECT_EQ(write(terminal_, &key, 1), 1); }
    int wait() {
        while (read_more()) continue;
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    void stop() {
        // kill(-1) would reach every process there is.
        ASSERT_TRUE(is_open());
        EXPECT_EQ(kill(pid_, SIGTERM), 0);
    }

    std::string seen;

  private:
    bool read_more() {
        char buffer[4096];
        const ssize_t length = read(terminal_, buffer, sizeof(buffer));
        if (length > 0) seen.append(buffer, static_cast<size_t>(length));
        return length > 0;
    }

    int terminal_ = -1;
    pid_t pid_ = -1;
};

TEST_F(RunningJob, IsWatchedOnATerminalUntilTheUserHasSeenEnough) {
    promoted();
    OnTerminal top(pids());
    if (!top.is_open()) GTEST_SKIP() << "no terminal: is /dev/pts mounted?";
    top.read_until("established");
    EXPECT_NE(top.seen.find("\033[?1049h"), std::string::npos) << "a screen of its own";
    top.seen.clear();
    top.read_until("2 workers");  // the next frame
    top.press('q');
    EXPECT_EQ(top.wait(), 0);
    EXPECT_NE(top.seen.find("\033[?1049l"), std::string::npos) << "the screen from before";
}

TEST_F(RunningJob, TheTerminalIsGivenBackWhenTopIsStopped) {
    OnTerminal top(pids());
    if (!top.is_open()) GTEST_SKIP() << "no terminal: is /dev/pts mounted?";
    top.read_until("swiftlane top");
    top.stop();
    EXPECT_EQ(top.wait(), 0);
    EXPECT_NE(top.seen.find("\033[?1049l"), std::string::npos);
}

// --- Prometheus's text format, read strictly by its rules

struct Series {
    std::string type;
    std::map<std::string, double> values;  // by labels
};

std::map<std::string, Series> parse_exposition(const std::string& text) {
    static const std::regex help("# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)");
    static const std::regex type("# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge)");
    static const std::regex sample(
        "([a-zA-Z_:][a-zA-Z0-9_:]*)"
        R"re((?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? ([-+0-9.eE]+))re");
    std::map<std::string, Series> result;
    std::set<std::string> helped;
    std::string current;
    EXPECT_TRUE(text.ends_with('\n'));
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::smatch match;
        if (std::regex_match(line, match, help)) {
            EXPECT_TRUE(helped.insert(match[1]).second) << "helped twice: " << line;
        } else if (std::regex_match(line, match, type)) {
            current = match[1];
            EXPECT_TRUE(helped.contains(current)) << line;
            EXPECT_TRUE(result.emplace(current, Series{match[2], {}}).second)
                << "typed twice: " << line;
            EXPECT_EQ(current.ends_with("_total"), match[2] == "counter") << line;
        } else if (std::regex_match(line, match, sample)) {
            EXPECT_EQ(match[1], current) << "not in one group: " << line;
            EXPECT_TRUE(result[match[1]].values.emplace(match[2], std::stod(match[3])).second)
                << "twice: " << line;
        } else {
            ADD_FAILURE() << "no line of the format: " << line;
        }
    }
    return result;
}

TEST_F(RunningJob, IsToldInPrometheusFormat) {
    promoted();
    const Outcome outcome = run_command({"metrics", "--pid", pids()});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto series = parse_exposition(outcome.out);
    ASSERT_TRUE(series.contains("swiftlane_promotions_total")) << outcome.out;
    const Series& promotions = series.at("swiftlane_promotions_total");
    EXPECT_EQ(promotions.values.size(), 2u) << "one of each worker";
    for (const auto& [labels, value] : promotions.values) {
        EXPECT_GE(value, 1) << labels;
        for (const char* label : {"pid=", "program=", "worker="})
            EXPECT_NE(labels.find(label), std::string::npos) << labels;
    }
    double lanes = 0;
    for (const auto& [labels, value] : series.at("swiftlane_transport_lanes").values) {
        EXPECT_NE(labels.find("transport="), std::string::npos) << labels;
        lanes += value;
    }
    EXPECT_GE(lanes, 2);
    EXPECT_EQ(series.at("swiftlane_cached_bytes").values.size(), 2u) << "one of each context";
}

// Prometheus's own reader of the format, of its client for Python, sees the same figures.
TEST_F(RunningJob, IsUnderstoodByPrometheus) {
    if (std::system("/usr/bin/python3 -c 'import prometheus_client' 2>/dev/null") != 0)
        GTEST_SKIP() << "no python3-prometheus-client";
    promoted();
    const Outcome outcome = run_command({"metrics", "--pid", pids()});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const TemporaryFile metrics;
    const TemporaryFile read;
    std::ofstream(metrics.path()) << outcome.out;
    const std::string reader =
        "/usr/bin/python3 -c 'import sys\n"
        "from prometheus_client.parser import text_string_to_metric_families\n"
        "for family in text_string_to_metric_families(open(sys.argv[1]).read()):\n"
        "    for sample in family.samples:\n"
        "        print(family.type, sample.name, sample.value)' " +
        metrics.path() + " >" + read.path();
    ASSERT_EQ(std::system(reader.c_str()), 0);
    std::multiset<std::string> expected;
    for (const auto& [name, series] : parse_exposition(outcome.out)) {
        for (const auto& [labels, value] : series.values)
            expected.insert(fmt::format("{} {} {:g}", series.type, name, value));
    }
    std::multiset<std::string> seen;
    std::ifstream lines(read.path());
    std::string type;
    std::string name;
    double value = 0;
    while (lines >> type >> name >> value)
        seen.insert(fmt::format("{} {} {:g}", type, name, value));
    EXPECT_EQ(seen, expected);
}

TEST(NoJob, IsNoError) {
    const std::string nobody = std::to_string(getpid());
    const Outcome lines = run_command({"top", "--once", "--pid", nobody});
    EXPECT_EQ(lines.status, 0);
    EXPECT_NE(lines.out.find("No process"), std::string::npos) << lines.out;
    const Outcome document = run_command({"top", "--json", "-", "--pid", nobody});
    EXPECT_TRUE(json::parse(document.out).at("processes").empty());
    const Outcome metrics = run_command({"metrics", "--pid", nobody});
    EXPECT_EQ(metrics.status, 0);
    parse_exposition(metrics.out);
    EXPECT_EQ(run_command({"top", "--once", "--pid", "nobody"}).status, 2);
}

}  // namespace
}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "test/tools/command.h"

namespace tools {
namespace {

using nlohmann::json;

class Folder {
  public:
    Folder() { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(*this / name) << text;
        return *this / name;
    }
    std::vector<std::string> files() const {
        std::vector<std::string> files;
        for (const auto& entry : std::filesystem::directory_iterator(path_)) {
            files.push_back(entry.path());
        }
        return files;
    }

  private:
    std::string path_ = "/tmp/swiftlane-plot-XXXXXX";
};

size_t count(const std::string& text, const std::string& part) {
    size_t found = 0;
    for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
    return found;
}

// The groups of a picture, by title: what gnuplot has drawn for a curve, or for bars of a kind.
// Several panels may have one of the same title.
std::multimap<std::string, std::string> groups_of(const std::string& svg) {
    std::multimap<std::string, std::string> groups;
    const std::string start = "<g id=\"gnuplot_plot_";
    for (size_t at = svg.find(start); at != svg.npos;) {
        const size_t next = svg.find(start, at + 1);
        const std::string group = svg.substr(at, next == svg.npos ? next : next - at);
        const size_t title = group.find("<title>") + 7;
        groups.emplace(group.substr(title, group.find("</title>") - title), group);
        at = next;
    }
    return groups;
}

// Points of a curve and bars of a kind; the legend has one more of each.
size_t points(const std::string& group) {
    return count(group, "<use xlink:href") - 1;
}
size_t bars(const std::string& group) {
    return count(group, "<polygon") - 1;
}

class Plot : public testing::Test {
  protected:
    void SetUp() override {
        if (std::system("command -v gnuplot >/dev/null") != 0) GTEST_SKIP() << "no gnuplot";
    }
    static std::string drawn(std::vector<std::string> files) {
        files.insert(files.begin(), "plot");
        files.insert(files.end(), {"--to", "-"});
        const Outcome outcome = run_command(files);
        EXPECT_EQ(outcome.status, 0) << outcome.err;
        EXPECT_EQ(count(outcome.out, "</svg>"), 1u);
        return outcome.out;
    }
    const Folder folder_;
};

constexpr const char* kResult = R"({"emulated": true, "rows": [
    {"size": 64, "mb_per_s": 10.5, "messages_per_s": 1e5, "latency_median_us": 2, "latency_p99_us": 3},
    {"size": 128, "mb_per_s": 20, "messages_per_s": 1e5, "latency_median_us": 2, "latency_p99_us": 3},
    {"size": 256, "mb_per_s": 0, "messages_per_s": 1e5, "latency_median_us": 2, "latency_p99_us": 3}
]})";

TEST_F(Plot, ResultsSideBySideWithAPointForEachRow) {
    const std::string svg =
        drawn({folder_.write("one.json", kResult), folder_.write("two.json", kResult)});
    const auto groups = groups_of(svg);
    EXPECT_EQ(groups.size(), 8u) << "bandwidth, rate, median and 99 of 100, of two";
    for (const char* name : {"one (emulated)", "two (emulated)"}) {
        const auto [first, last] = groups.equal_range(name);
        ASSERT_EQ(std::distance(first, last), 2) << name;
        EXPECT_EQ(points(first->second), 2u) << "nothing has no place on a logarithmic axis";
        EXPECT_EQ(points(std::next(first)->second), 3u);
        const auto median = groups.find(std::string(name) + ", median");
        ASSERT_NE(median, groups.end());
        EXPECT_EQ(points(median->second), 3u);
    }
}

TEST_F(Plot, LegendsLeaveTheCurvesAlone) {
    const std::string name = "a_result_whose_name_is_rather_long";
    const std::string svg = drawn({folder_.write(name + ".json", kResult)});
    // A tick at either side of the panel: "M187.00,272.40 L196.00,272.40 M846.99,...".
    std::smatch border;
    ASSERT_TRUE(std::regex_search(
        svg, border, std::regex(R"(d='M[0-9.]+,[0-9.]+ L[0-9.]+,[0-9.]+ M([0-9.]+),)")));
    const std::regex legend(
        R"(translate\(([0-9.]+),[0-9.]+\)[^\n]*text-anchor="end">\s*<text>([^<]*)<)");
    unsigned found = 0;
    for (std::sregex_iterator at(svg.begin(), svg.end(), legend), end; at != end; ++at) {
        const std::string title = (*at)[2];
        if (!title.starts_with(name)) continue;
        ++found;
        const double width = 6.3 * static_cast<double>(title.size());  // in a font of 12 pixels
        EXPECT_GT(std::stod((*at)[1]) - width, std::stod(border[1])) << title;
    }
    EXPECT_EQ(found, 4u);
}

TEST_F(Plot, OfASimulationHasACurveForEachMode) {
    const Outcome outcome =
        run_command({"sim", "mbw_mr", "--ranks", "4", "--size", "8:64", "--time", "20us",
                     "--settle", "100us", "--json", folder_ / "sim.json"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto groups = groups_of(drawn({folder_ / "sim.json"}));
    for (const char* mode : {"scalable", "dynamic", "dedicated"}) {
        const auto found = groups.find(std::string("sim (modelled) ") + mode);
        ASSERT_NE(found, groups.end()) << mode;
        EXPECT_EQ(points(found->second), 4u);
    }
}

TEST_F(Plot, OfTracesHasABarForEachPromotion) {
    const Folder traces;
    const TemporaryFile report;
    const Outcome outcome = run_traced(
        traces / "%p.json", {"bench", "mbw_mr", "--soft", "--ranks", "2", "--size", "8:1M",
                             "--time", "20ms", "--settle", "1s", "--json", report.path()});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json promotions = json::parse(read_text(report.path())).at("lanes").at("promotions");
    ASSERT_GE(promotions, 2);
    const auto groups = groups_of(drawn(traces.files()));
    const auto established = groups.find("established");
    ASSERT_NE(established, groups.end());
    EXPECT_EQ(bars(established->second), promotions);
    EXPECT_TRUE(groups.contains("rendezvous send")) << "messages of 1 MiB are announced";
}

// A simulation's trace is dated by its clock: pictures of equal runs are equal.
TEST_F(Plot, OfASimulationsTraceIsInModelledTime) {
    std::string pictures[2];
    for (std::string& picture : pictures) {
        const Outcome outcome = run_command(
            {"sim", "zipf", "--ranks", "4", "--time", "1ms", "--lanes", "dynamic", "--set",
             "UCX_TRACE=" + folder_ / "trace.json", "--json", folder_ / "result.json"});
        ASSERT_EQ(outcome.status, 0) << outcome.err;
        picture = drawn({folder_ / "trace.json"});
    }
    const json result = json::parse(read_text(folder_ / "result.json"));
    const auto groups = groups_of(pictures[0]);
    const auto established = groups.find("established");
    ASSERT_NE(established, groups.end());
    EXPECT_EQ(bars(established->second), result.at("lanes").at("promotions"));
    EXPECT_EQ(pictures[0], pictures[1]);
}

TEST_F(Plot, OfARecordingHasTheRatesOfItsLooks) {
    const std::string recording = folder_ / "run.jsonl";
    setenv("UCX_DYNAMIC_TL_SWITCH_INTERVAL", "20ms", 1);
    Command job({"bench", "mbw_mr", "--soft", "--ranks", "2", "--size", "64", "--time", "1s",
                 "--settle", "2s"});
    unsetenv("UCX_DYNAMIC_TL_SWITCH_INTERVAL");
    std::vector<pid_t> ranks;
    while (ranks.size() < 2 && job.is_running()) ranks = job.children();
    ASSERT_EQ(ranks.size(), 2u);
    const Outcome top = run_command({"top", "--record", recording, "--interval", "100ms", "--pid",
                                     std::to_string(ranks[0]) + "," + std::to_string(ranks[1])});
    EXPECT_EQ(top.status, 0) << top.err;
    EXPECT_EQ(job.wait().status, 0) << "the recording has ended with the job";
    std::map<std::string, size_t> rates;  // looks at each worker's endpoints that have a rate
    std::istringstream lines(read_text(recording));
    for (std::string line; std::getline(lines, line);) {
        const json look = json::parse(line);
        for (const json& process : look.at("processes")) {
            for (const json& worker : process.at("workers")) {
                for (const json& endpoint : worker.at("endpoint_list")) {
                    rates[worker.at("name")] += endpoint.contains("messages_per_s") ? 1 : 0;
                }
            }
        }
    }
    ASSERT_EQ(rates.size(), 2u);
    const auto groups = groups_of(drawn({recording}));
    EXPECT_TRUE(groups.contains("established"));
    const std::string name = rates.begin()->first, other = rates.rbegin()->first;
    size_t curves = 0;
    const auto [first, last] = groups.equal_range(name + " to " + other);
    for (auto group = first; group != last; ++group) {
        if (group->second.find("<use xlink:href") == std::string::npos) continue;  // steps
        EXPECT_EQ(points(group->second), rates.begin()->second);
        ++curves;
    }
    EXPECT_EQ(curves, 2u) << "messages and bytes";
    EXPECT_TRUE(groups.contains(name)) << "its dedicated lanes";
}

TEST_F(Plot, AsAPageNeedsNothingElse) {
    const std::string file = folder_.write("a<b>&.json", kResult);
    const std::string page = folder_ / "page.html";
    const Outcome outcome = run_command({"plot", file, "--to", page});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const std::string text = read_text(page);
    EXPECT_EQ(count(text, "<svg"), 1u);
    EXPECT_EQ(count(text, "<h1>a&lt;b&gt;&amp;.json</h1>"), 1u);
    EXPECT_EQ(count(text, "http"), count(text, "xmlns=\"http") + count(text, "xmlns:xlink=\"http"))
        << "nothing is loaded";
    EXPECT_EQ(count(text, "<script"), 0u);
    EXPECT_EQ(count(text, "<tr><td>"), 2 + 3 + 3 + 3u) << "a line for each point";
}

TEST_F(Plot, NamesOfFilesAreNoCommandsOfGnuplot) {
    const std::string file =
        folder_.write("'; system('touch done'); # `touch done` \\\n.json", kResult);
    const std::string svg = drawn({file});
    EXPECT_EQ(count(svg, "`touch done`"), 2u * 4) << "title and legend of each curve, as it is";
    EXPECT_FALSE(std::filesystem::exists("done"));
}

TEST(PlotWithoutGnuplot, SaysWhatToInstall) {
    const Folder folder;
    const std::string file = folder.write("one.json", kResult);
    const char* const given = std::getenv("PATH");
    ASSERT_NE(given, nullptr);
    const std::string path = given;
    setenv("PATH", "/nowhere", 1);
    const Outcome outcome = run_command({"plot", file, "--to", folder / "one.svg"});
    setenv("PATH", path.c_str(), 1);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_NE(outcome.err.find("install gnuplot-nox"), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "one.svg"));
}

TEST(PlotOfSomethingElse, SaysWhatIsWrong) {
    const Folder folder;
    const auto says = [&](const std::string& file) {
        const Outcome outcome = run_command({"plot", file, "--to", folder / "picture.svg"});
        EXPECT_EQ(outcome.status, 1) << file;
        return outcome.err;
    };
    for (const char* text :
         {"", "text", "[1]", "[{\"ph\":\"X\"}]", "{}", "{\"rows\": 1}", "[[[", "{\n",
          "{\"processes\":[{}],\"time_s\":1}\n", "[{\"ph\":1}]", "\"\""}) {
        const std::string error = says(folder.write("file", text));
        EXPECT_NE(error.find("is no trace"), std::string::npos) << text << ": " << error;
    }
    EXPECT_NE(says(folder / "missing").find("No such file"), std::string::npos);
    EXPECT_NE(says(folder.write("file", "{\"rows\": []}")).find("nothing to draw"),
              std::string::npos);
    EXPECT_NE(says(folder.write("file", "{\n\"processes\": []}")).find("--record"),
              std::string::npos);
    EXPECT_EQ(run_command({"plot", folder / "file", "--to", "picture.png"}).status, 2);
    EXPECT_EQ(run_command({"plot", "--to", "picture.svg"}).status, 2);
}

}  // namespace
}  // namespace tools

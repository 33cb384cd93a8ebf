// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tools {
namespace {

const RunResult* find_mode(std::span<const RunResult> runs, std::string_view mode) {
    const auto found = std::ranges::find(runs, mode, &RunResult::mode);
    return found == runs.end() ? nullptr : &*found;
}

// A half of 2^60 or more belongs to a link that somebody asked for, not to a measured one (ucpx.h).
std::string score_text(double score) {
    return score < 0x1p60 ? fmt::format("{:.0f}", score) : "pinned";
}

}  // namespace

std::string row_header(bool with_latency) {
    std::string text = fmt::format("{:<12}", "# Size");
    if (with_latency) text += fmt::format("{:>18}", "Avg Latency(us)");
    return text + fmt::format("{:>16}{:>20}\n", "MB/s", "Messages/s");
}

std::string row_line(const Row& row, bool with_latency) {
    std::string text = fmt::format("{:<12}", row.size);
    if (with_latency) text += fmt::format("{:>18.2f}", row.latency);
    return text +
           fmt::format("{:>16.2f}{:>20.2f}\n", row.megabytes_per_second, row.messages_per_second);
}

std::string comparison(std::span<const RunResult> runs) {
    if (runs.size() < 2) return {};
    std::string text = fmt::format("\n# Messages/s by lanes\n{:<12}", "# Size");
    auto out = std::back_inserter(text);
    for (const RunResult& run : runs) fmt::format_to(out, "{:>18}", run.mode);

    const RunResult* dynamic = find_mode(runs, "dynamic");
    std::vector<const RunResult*> bases;
    for (const char* mode : {"scalable", "dedicated"}) {
        const RunResult* base = find_mode(runs, mode);
        if (dynamic == nullptr || base == nullptr) continue;
        bases.push_back(base);
        fmt::format_to(out, "{:>20}", fmt::format("dynamic/{}", mode));
    }
    text += '\n';
    for (size_t i = 0; i < runs.front().rows.size(); ++i) {
        fmt::format_to(out, "{:<12}", runs.front().rows[i].size);
        for (const RunResult& run : runs) {
            fmt::format_to(out, "{:>18.2f}", run.rows[i].messages_per_second);
        }
        for (const RunResult* base : bases) {
            const double rate = base->rows[i].messages_per_second;
            const double ratio = rate > 0 ? dynamic->rows[i].messages_per_second / rate : 0;
            fmt::format_to(out, "{:>20.2f}", ratio);
        }
        text += '\n';
    }
    return text;
}

std::string memory_line(const RunResult& run) {
    if (run.memory.at_end == 0) return {};
    const auto megabytes = [](uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
    return fmt::format(
        "\n# Memory of a rank since the library was initialised, at most, {}: {:.1f} MB with its "
        "worker, {:.1f} MB at the end\n",
        run.mode, megabytes(run.memory.with_worker), megabytes(run.memory.at_end));
}

std::string lane_map(const RunResult& run) {
    std::string text = fmt::format("\n# Lanes at the end, {}:", run.mode);
    const char* separator = " ";
    for (size_t index = 0; index < run.counters.values.size(); ++index) {
        text += fmt::format("{}{} {}", separator, run.counters.values[index],
                            kLaneCounters[index].name);
        separator = ", ";
    }
    text += '\n';
    auto out = std::back_inserter(text);
    fmt::format_to(out, "{:<8}{:>6}  {:<12}{:<14}{:>12}  {}\n", "# Rank", "Peer", "Lane", "State",
                   "Score", "Why");
    for (const LaneEntry& entry : run.map) {
        fmt::format_to(out, "{:<8}{:>6}  {:<12}{:<14}{:>12}  {}\n", entry.rank, entry.peer,
                       entry.lane, entry.state, score_text(entry.score), entry.why);
    }
    return text;
}

}  // namespace tools

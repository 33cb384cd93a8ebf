// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/json.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace tools {
namespace {

Json row_json(const RunResult& run, const Row& row) {
    Json json{{"lanes", run.mode},
              {"size", row.size},
              {"mb_per_s", row.megabytes_per_second},
              {"messages_per_s", row.messages_per_second}};
    if (row.latency > 0) json["latency_us"] = row.latency;
    return json;
}

Json lanes_json(const RunResult& run) {
    Json json = to_json(run.counters);
    json["map"] = Json::array();
    for (const LaneEntry& entry : run.map) json["map"].push_back(to_json(entry));
    return json;
}

}  // namespace

Json to_json(const BenchOptions& options) {
    return {{"ranks", options.ranks},       {"pairs", options.hot_pairs()},
            {"unused", options.unused},     {"trickle", options.trickle},
            {"window", options.window},     {"size_min", options.size_min},
            {"size_max", options.size_max}, {"iterations", options.iterations},
            {"warmup", options.warmup},     {"time_ns", options.time},
            {"settle_ns", options.settle},  {"seed", options.seed},
            {"verify", options.verify}};
}

Json to_json(const LaneEntry& entry) {
    return {{"rank", entry.rank},   {"peer", entry.peer},   {"lane", entry.lane},
            {"state", entry.state}, {"score", entry.score}, {"why", entry.why}};
}

Json to_json(const LaneCounters& counters) {
    Json json;
    for (size_t index = 0; index < counters.values.size(); ++index)
        json[kLaneCounters[index].name] = counters.values[index];
    return json;
}

Json to_json(const RankMemory& memory) {
    return {{"with_worker_bytes", memory.with_worker}, {"at_end_bytes", memory.at_end}};
}

void add_runs(Json& document, std::span<const RunResult> runs) {
    document["rows"] = Json::array();
    for (const RunResult& run : runs) {
        for (const Row& row : run.rows) document["rows"].push_back(row_json(run, row));
    }
    const auto dynamic = std::ranges::find(runs, "dynamic", &RunResult::mode);
    document["lanes"] = lanes_json(dynamic == runs.end() ? runs.back() : *dynamic);
    document["modes"] = Json::object();
    for (const RunResult& run : runs) {
        Json& mode = document["modes"][run.mode];
        mode["rows"] = Json::array();
        for (const Row& row : run.rows) mode["rows"].push_back(row_json(run, row));
        mode["lanes"] = lanes_json(run);
        if (run.memory.at_end != 0) mode["memory"] = to_json(run.memory);
    }
}

JsonFile::JsonFile(const std::string& path) : path_(path) {
    if (path.empty()) return;
    if (path == "-") {
        // What people read goes to standard error from now on.
        std::fflush(stdout);
        descriptor_ = dup(STDOUT_FILENO);
        if (descriptor_ >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
    } else {
        descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    }
    if (descriptor_ < 0) fail();
}

JsonFile::~JsonFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

void JsonFile::write(const Json& document) {
    if (descriptor_ < 0) return;
    const std::string text = document.dump(2) + '\n';
    if (path_ != "-" && ftruncate(descriptor_, 0) != 0 && errno != EINVAL) fail();  // a pipe
    for (size_t done = 0; done < text.size();) {
        const ssize_t n = ::write(descriptor_, text.data() + done, text.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail();
        done += static_cast<size_t>(n);
    }
    close(std::exchange(descriptor_, -1));
}

void JsonFile::fail() const {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
}

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tools/common/units.h"

namespace tools {
namespace {

using Step = ProgramTrace::Step;
using Kind = Step::Kind;

constexpr unsigned kMostRanks = 4096;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

unsigned parse_number(const std::string& text) {
    unsigned number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) {
        throw std::runtime_error(fmt::format("'{}' is no number", text));
    }
    return number;
}

unsigned parse_rank(const std::string& text, size_t ranks) {
    const unsigned rank = parse_number(text);
    if (rank >= ranks) throw std::runtime_error(fmt::format("there is no rank {}", rank));
    return rank;
}

void read_line(ProgramTrace& trace, const std::string& line) {
    std::istringstream stream(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty()) return;
    if (trace.ranks.empty()) {
        if (words.size() != 2 || words[0] != "ranks") {
            throw std::runtime_error("the first line must be 'ranks N'");
        }
        const unsigned ranks = parse_number(words[1]);
        if (ranks < 2 || ranks > kMostRanks) {
            throw std::runtime_error(fmt::format("2 to {} ranks, not {}", kMostRanks, ranks));
        }
        trace.ranks.resize(ranks);
        return;
    }
    const unsigned rank = parse_rank(words[0], trace.ranks.size());
    const std::string what = words.size() > 1 ? words[1] : "";
    Step step{};
    size_t count = 2;
    if (what == "send" || what == "recv") {
        count = 4;
        step.kind = what == "send" ? Kind::kSend : Kind::kReceive;
        if (words.size() == count) {
            step.peer = parse_rank(words[2], trace.ranks.size());
            step.size = parse_size(words[3]);
            if (step.peer == rank) throw std::runtime_error("a rank sends nothing to itself");
        }
        if (step.size > kMostBytes) throw std::runtime_error("a message of more than 1 GiB");
        trace.largest = std::max(trace.largest, step.size);
    } else if (what == "compute") {
        count = 3;
        step.kind = Kind::kCompute;
        if (words.size() == count) step.time = parse_time(words[2]);
    } else if (what == "wait" || what == "barrier") {
        step.kind = what == "wait" ? Kind::kWait : Kind::kBarrier;
    } else {
        throw std::runtime_error(
            fmt::format("'{}' is none of send, recv, wait, barrier, compute", what));
    }
    if (words.size() != count) {
        throw std::runtime_error(
            fmt::format("a line of '{}' has {} words, not {}", what, count, words.size()));
    }
    trace.ranks[rank].push_back(step);
}

// Whether each message has its receive, in order, and each barrier all ranks.
void check(const ProgramTrace& trace) {
    std::map<std::pair<unsigned, unsigned>, std::vector<uint64_t>> sent, received;
    std::vector<uint64_t> barriers(trace.ranks.size());
    for (unsigned rank = 0; rank < trace.ranks.size(); ++rank) {
        for (const Step& step : trace.ranks[rank]) {
            if (step.kind == Kind::kSend) sent[{rank, step.peer}].push_back(step.size);
            if (step.kind == Kind::kReceive) received[{step.peer, rank}].push_back(step.size);
            barriers[rank] += step.kind == Kind::kBarrier;
        }
        if (barriers[rank] != barriers[0]) {
            throw std::runtime_error(fmt::format("rank 0 enters {} barriers, rank {} enters {}",
                                                 barriers[0], rank, barriers[rank]));
        }
    }
    for (const auto& [pair, sizes] : received) sent.try_emplace(pair);
    for (const auto& [pair, sizes] : sent) {
        const auto& [from, to] = pair;
        const std::vector<uint64_t>& room = received[pair];
        if (sizes.size() != room.size()) {
            throw std::runtime_error(
                fmt::format("rank {} sends {} messages to rank {}, which receives {}", from,
                            sizes.size(), to, room.size()));
        }
        for (size_t i = 0; i < sizes.size(); ++i) {
            if (sizes[i] <= room[i]) continue;
            throw std::runtime_error(
                fmt::format("message {} of rank {} to rank {} has {} bytes, its receive {}", i + 1,
                            from, to, sizes[i], room[i]));
        }
    }
}

}  // namespace

Task replay(Rank& rank, const ReplayOptions& options) {
    const std::vector<Step>& steps = options.trace.ranks[rank.index()];
    for (const Step& step : steps) {
        if (step.kind == Kind::kSend) rank.connect(step.peer);
    }
    // What the messages hold is of no interest.
    std::vector<char> out(options.trace.largest), in(options.trace.largest);
    co_await rank.barrier();
    const int64_t start = rank.host().now();
    uint64_t messages = 0;
    Batch batch(rank);
    for (const Step& step : steps) {
        switch (step.kind) {
            case Kind::kSend:
                batch.send(step.peer, make_tag(MessageKind::kHot, rank.index()), out.data(),
                           step.size);
                ++messages;
                break;
            case Kind::kReceive:
                batch.receive(make_tag(MessageKind::kHot, step.peer), kExactTag, in.data(),
                              step.size);
                break;
            case Kind::kWait:
                co_await batch.done();
                break;
            case Kind::kBarrier:
                co_await rank.barrier();
                break;
            case Kind::kCompute:
                co_await rank.compute(step.time);
                break;
        }
    }
    co_await batch.done();
    rank.host().report({.size = options.trace.largest,
                        .messages = messages,
                        .elapsed = messages == 0 ? 0 : rank.host().now() - start});
    co_await rank.barrier();
}

ProgramTrace load_trace(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(fmt::format("{}: cannot be read", path));
    ProgramTrace trace;
    unsigned number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        try {
            read_line(trace, line);
        } catch (const std::exception& error) {
            throw std::runtime_error(fmt::format("{}:{}: {}", path, number, error.what()));
        }
    }
    try {
        if (trace.ranks.empty()) throw std::runtime_error("no line 'ranks N'");
        check(trace);
    } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
    }
    return trace;
}

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/bench_options.h"

#include <fmt/format.h>

#include <stdexcept>

#include "tools/common/units.h"

namespace tools {

CLI::Option* add_parsed(CLI::App& command, const std::string& name, const std::string& help,
                        const std::function<void(const std::string&)>& read) {
    const auto checked = [name, read](const std::string& text) {
        try {
            read(text);
        } catch (const std::invalid_argument& error) {
            throw CLI::ValidationError(name, error.what());
        }
    };
    return command.add_option_function<std::string>(name, checked, help);
}

CLI::Option* add_time(CLI::App& command, const std::string& name, int64_t& nanoseconds,
                      const std::string& help) {
    const auto read = [&nanoseconds](const std::string& text) { nanoseconds = parse_time(text); };
    return add_parsed(command, name, help, read)
        ->type_name("TIME")
        ->default_str(format_time(static_cast<double>(nanoseconds)));
}

void add_sizes(CLI::App& command, uint64_t& min, uint64_t& max, const std::string& help) {
    const auto read = [&min, &max](const std::string& text) {
        const SizeRange range = parse_size_range(text);
        min = range.min;
        max = range.max;
    };
    add_parsed(command, "--size", help, read)
        ->type_name("MIN:MAX")
        ->default_str(fmt::format("{}:{}", min, max));
}

void add_common_options(CLI::App& command, BenchOptions& options) {
    command.add_option("--ranks", options.ranks, "Ranks")->check(CLI::Range(2, 4096));
    add_sizes(command, options.size_min, options.size_max,
              "Message sizes, powers of two; units K, M, G");
    command.add_option("--iterations", options.iterations,
                       "Windows (mbw_mr) or exchanges (alltoall) a size; 0: as many as fit --time");
    command.add_option("--warmup", options.warmup, "Windows or exchanges before each size");
    add_time(command, "--time", options.time, "Time a size");
    add_time(command, "--settle", options.settle, "Traffic before the first size");
    command.add_option("--seed", options.seed, "Of payloads and, simulated, of everything");
    command.add_flag("--verify", options.verify, "Check every payload at its receiver");
}

void add_pair_options(CLI::App& command, BenchOptions& options) {
    command.add_option("--pairs", options.pairs, "Hot pairs; 0: half the ranks");
    command.add_option("--unused", options.unused,
                       "Endpoints of each rank beside its pair's, which carry at most the trickle");
    command.add_option("--trickle", options.trickle,
                       "One message to each unused endpoint per so many hot ones; 0: none");
    command.add_option("--window", options.window, "Messages in flight before an acknowledgement")
        ->check(CLI::Range(1, 65536));
}

void check_options(const BenchOptions& options, bool in_pairs) {
    if (options.iterations == 0 && options.time == 0) {
        throw CLI::ValidationError("--time", "must be more than 0, or give --iterations");
    }
    if (!in_pairs) return;
    if (2 * options.hot_pairs() > options.ranks) {
        throw CLI::ValidationError(
            "--pairs", fmt::format("{} pairs need {} ranks, there are {}", options.hot_pairs(),
                                   2 * options.hot_pairs(), options.ranks));
    }
    if (options.unused > options.ranks - 2) {
        throw CLI::ValidationError(
            "--unused", fmt::format("a rank of {} has {} peers beside its pair's, not {}",
                                    options.ranks, options.ranks - 2, options.unused));
    }
}

}  // namespace tools

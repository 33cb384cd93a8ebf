// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/options.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "tools/common/device_memory.h"

namespace tools::perf {
namespace {

constexpr std::array kNames{"put", "get", "tag", "am", "batch", "copy"};

// Orders and answers are received where data is.
constexpr uint64_t kLeastBuffer = 4096;

// Names of the values as processes and results have them, and what another process may ask for.
template <typename Options, typename Each>
void for_each_value(Options& options, Each each) {
    constexpr uint64_t kMostBytes = uint64_t{1} << 46;
    each("size_min", options.size_min, uint64_t{0}, kMostBytes);
    each("size_max", options.size_max, uint64_t{options.size_min}, kMostBytes);
    each("window", options.window, 1u, 1u << 20);
    each("iterations", options.iterations, uint64_t{0}, UINT64_MAX);
    each("time_ns", options.time, int64_t{0}, INT64_MAX);
    each("warmup", options.warmup, 0u, UINT32_MAX);
    each("threads", options.threads, 1u, 256u);
    each("pieces", options.pieces, 1u, 1u << 24);
    each("buffer", options.buffer, uint64_t{0}, kMostBytes);
    each("seed", options.seed, uint64_t{0}, UINT64_MAX);
    each("latency", options.latency, false, true);
    each("bandwidth", options.bandwidth, false, true);
    each("batch_gets", options.batch_gets, false, true);
    each("notify", options.notify, false, true);
    each("verify", options.verify, false, true);
    each("sleep", options.sleep, false, true);
}

}  // namespace

std::vector<Metric> Options::metrics() const {
    std::vector<Metric> metrics;
    if (latency) metrics.push_back(Metric::kLatency);
    if (bandwidth) metrics.push_back(Metric::kBandwidth);
    return metrics;
}

uint64_t Options::buffer_length() const {
    uint64_t length = kLeastBuffer;
    for (const uint64_t size : sizes()) length = std::max(length, slots(size) * size);
    return length;
}

const char* to_string(Operation operation) {
    return kNames[static_cast<size_t>(operation)];
}

Json to_json(const Options& options) {
    Json json{{"operation", to_string(options.operation)},
              {"memory", options.memory},
              {"target_memory", options.target_memory}};
    for_each_value(options, [&](const char* name, auto value, auto, auto) { json[name] = value; });
    return json;
}

Options from_json(const Json& json) {
    Options options;
    const auto name = json.at("operation").get<std::string>();
    const auto found = std::ranges::find(kNames, name);
    if (found == kNames.end() || name == "copy") {
        throw std::runtime_error(fmt::format("the other process asks for operation '{}'", name));
    }
    options.operation = static_cast<Operation>(found - kNames.begin());
    options.memory = json.at("memory").get<std::string>();
    options.target_memory = json.at("target_memory").get<std::string>();
    (void)MemoryPlace::parse(options.memory);
    (void)MemoryPlace::parse(options.target_memory);
    for_each_value(options, [&](const char* value_name, auto& value, auto least, auto most) {
        json.at(value_name).get_to(value);
        if (value < least || value > most) {
            throw std::runtime_error(
                fmt::format("the other process asks for {} = {}", value_name, value));
        }
    });
    return options;
}

}  // namespace tools::perf

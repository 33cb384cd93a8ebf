// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/options.h"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "tools/perf/device_memory.h"

namespace tools::perf {
namespace {

constexpr std::array kNames{"put", "get", "tag", "am", "batch", "copy"};

// Orders and answers are received where data is.
constexpr uint64_t kLeastBuffer = 4096;

template <typename T>
T read(const Json& json, const char* name, T min, T max) {
    const T value = json.at(name).get<T>();
    if (value < min || value > max) {
        throw std::runtime_error(fmt::format("the other process asks for {} = {}", name, value));
    }
    return value;
}

}  // namespace

std::vector<uint64_t> Options::sizes() const {
    std::vector<uint64_t> sizes;
    for (uint64_t size = size_min; size < size_max; size = std::max<uint64_t>(1, 2 * size)) {
        sizes.push_back(size);
    }
    sizes.push_back(size_max);
    return sizes;
}

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
    return {{"operation", to_string(options.operation)},
            {"size_min", options.size_min},
            {"size_max", options.size_max},
            {"window", options.window},
            {"iterations", options.iterations},
            {"time_ns", options.time},
            {"warmup", options.warmup},
            {"threads", options.threads},
            {"pieces", options.pieces},
            {"buffer", options.buffer},
            {"seed", options.seed},
            {"memory", options.memory},
            {"target_memory", options.target_memory},
            {"latency", options.latency},
            {"bandwidth", options.bandwidth},
            {"batch_gets", options.batch_gets},
            {"notify", options.notify},
            {"verify", options.verify},
            {"sleep", options.sleep}};
}

Options from_json(const Json& json) {
    constexpr uint64_t kMostBytes = uint64_t{1} << 46;
    Options options;
    const auto name = json.at("operation").get<std::string>();
    const auto found = std::ranges::find(kNames, name);
    if (found == kNames.end() || name == "copy") {
        throw std::runtime_error(fmt::format("the other process asks for operation '{}'", name));
    }
    options.operation = static_cast<Operation>(found - kNames.begin());
    options.size_max = read<uint64_t>(json, "size_max", 0, kMostBytes);
    options.size_min = read<uint64_t>(json, "size_min", 0, options.size_max);
    options.window = read<unsigned>(json, "window", 1, 1 << 20);
    options.iterations = read<uint64_t>(json, "iterations", 0, UINT64_MAX);
    options.time = read<int64_t>(json, "time_ns", 0, INT64_MAX);
    options.warmup = read<unsigned>(json, "warmup", 0, UINT32_MAX);
    options.threads = read<unsigned>(json, "threads", 1, 256);
    options.pieces = read<unsigned>(json, "pieces", 1, 1 << 24);
    options.buffer = read<uint64_t>(json, "buffer", 0, kMostBytes);
    options.seed = json.at("seed").get<uint64_t>();
    options.memory = json.at("memory").get<std::string>();
    options.target_memory = json.at("target_memory").get<std::string>();
    (void)MemoryPlace::parse(options.memory);
    (void)MemoryPlace::parse(options.target_memory);
    options.latency = json.at("latency").get<bool>();
    options.bandwidth = json.at("bandwidth").get<bool>();
    options.batch_gets = json.at("batch_gets").get<bool>();
    options.notify = json.at("notify").get<bool>();
    options.verify = json.at("verify").get<bool>();
    options.sleep = json.at("sleep").get<bool>();
    return options;
}

}  // namespace tools::perf

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/program/options.h"
#include "tools/report/json.h"

namespace tools::perf {

enum class Operation : uint8_t { kPut, kGet, kTag, kAm, kBatch, kCopy };
enum class Metric : uint8_t { kLatency, kBandwidth };

// What both processes must agree on. Sizes are bytes, times nanoseconds.
struct Options {
    Operation operation = Operation::kPut;
    uint64_t size_min = 1;
    uint64_t size_max = 4 << 20;
    unsigned window = 64;     // operations under way at a time
    uint64_t iterations = 0;  // operations for each size; 0: `time` decides
    int64_t time = 1'000'000'000;
    unsigned warmup = 10;
    unsigned threads = 1;
    unsigned pieces = 1000;  // of a batch
    uint64_t buffer = 256 << 20;
    uint64_t seed = 1;
    std::string memory = "host";         // of the initiator's messages (device_memory.h)
    std::string target_memory = "host";  // of the target's
    bool latency = true;
    bool bandwidth = true;
    bool batch_gets = false;
    bool notify = false;
    bool verify = false;
    bool sleep = false;

    std::vector<uint64_t> sizes() const { return sizes_between(size_min, size_max); }
    std::vector<Metric> metrics() const;
    // Messages of that size that a buffer has room for, as far as they are of use. A batch takes a
    // place for each piece, whatever `buffer` says.
    unsigned slots(uint64_t size) const {
        if (operation == Operation::kBatch) return pieces;
        const uint64_t room = buffer / std::max<uint64_t>(size, 1);
        return static_cast<unsigned>(std::clamp<uint64_t>(room, 1, window));
    }
    // Bytes of a thread's buffer.
    uint64_t buffer_length() const;
};

const char* to_string(Operation operation);

Json to_json(const Options& options);
// What the other process sent. Throws if a value is missing, of a wrong type or out of its range.
Options from_json(const Json& json);

}  // namespace tools::perf

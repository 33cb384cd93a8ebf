// SPDX-License-Identifier: BSD-3-Clause

// soak [--fabric mock|virtual|ud] [--seeds N] [--first SEED]
//
// The soak of soak.h for so many seeds. Without arguments, as in the test suite: all fabrics, and
// the totals that the project promises.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "system/soak.h"

namespace {

using ucp::test::Soak;

constexpr uint64_t kPromisedSeeds = 1000;
constexpr uint64_t kDatagramSeeds = 50;  // without arguments
constexpr uint64_t kPromisedSwitches = 10000;

struct Total {
    uint64_t seeds = 0;
    uint64_t failed = 0;
    Soak::Result result;
    uint64_t switches() const { return result.promotions + result.demotions; }
};

void print(const char* what, const Total& total) {
    fmt::print(
        "{}: {} seeds, {} failed; {} switches by each end ({} promotions, {} demotions); {} "
        "messages, {} operations, {} bytes; {} operations replayed, {} early messages held, {} "
        "lanes taken back\n",
        what, total.seeds, total.failed, total.switches(), total.result.promotions,
        total.result.demotions, total.result.traffic.messages, total.result.traffic.operations,
        total.result.traffic.bytes, total.result.replays, total.result.held, total.result.reused);
    std::fflush(stdout);
}

Total run(const char* what, Soak::Fabric fabric, uint64_t first, uint64_t seeds) {
    Total total;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
        Soak soak(Soak::options_for(fabric, seed));
        Soak::Result result = soak.run();
        for (const std::string& error : result.errors) fmt::print(stderr, "{}\n", error);
        ++total.seeds;
        if (!result.errors.empty()) ++total.failed;
        result.errors.clear();
        total.result += result;
    }
    print(what, total);
    return total;
}

}  // namespace

int main(int argc, char** argv) {
    const bool as_promised = argc == 1;
    std::string_view only;
    uint64_t seeds = kPromisedSeeds / 2, first = 1;
    for (int index = 1; index < argc; index += 2) {
        const std::string_view name = argv[index];
        const char* value = index + 1 < argc ? argv[index + 1] : "";
        if (name == "--fabric") {
            only = value;
        } else if (name == "--seeds") {
            seeds = std::strtoull(value, nullptr, 10);
        } else if (name == "--first") {
            first = std::strtoull(value, nullptr, 10);
        } else {
            fmt::print(stderr, "soak [--fabric mock|virtual|ud] [--seeds N] [--first SEED]\n");
            return 2;
        }
    }
    Total all;
    constexpr std::pair<const char*, Soak::Fabric> kFabrics[] = {
        {"mock", Soak::Fabric::kMock},
        {"virtual", Soak::Fabric::kVirtual},
        {"ud", Soak::Fabric::kDatagram},
    };
    for (const auto& [name, fabric] : kFabrics) {
        if (!only.empty() && only != name) continue;
        const bool is_short = as_promised && fabric == Soak::Fabric::kDatagram;
        const Total total = run(name, fabric, first, is_short ? kDatagramSeeds : seeds);
        all.seeds += total.seeds;
        all.failed += total.failed;
        all.result += total.result;
    }
    // A switch has two ends, and each counts it.
    if (as_promised && (all.seeds < kPromisedSeeds || all.switches() / 2 < kPromisedSwitches)) {
        fmt::print(stderr, "fewer than {} seeds or {} switches\n", kPromisedSeeds,
                   kPromisedSwitches);
        return 1;
    }
    return all.failed == 0 && !testing::Test::HasFailure() ? 0 : 1;
}

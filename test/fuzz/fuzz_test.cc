// SPDX-License-Identifier: BSD-3-Clause

// What the fuzzers do, for a moment and without them: seeds under random changes.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fuzz/inputs.h"
#include "ucs/log/log.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::fuzz {
namespace {

class FuzzTest : public testing::TestWithParam<Target> {};

Input changed(Input bytes, std::mt19937_64& random) {
    for (uint64_t changes = 1 + random() % 4; changes > 0 && !bytes.empty(); --changes) {
        const size_t at = random() % bytes.size();
        switch (random() % 4) {
            case 0:
                bytes[at] = static_cast<uint8_t>(random());
                break;
            case 1:
                bytes.resize(at);
                break;
            case 2:
                std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at),
                            std::min<size_t>(8, bytes.size() - at), uint8_t{0xff});
                break;
            default:
                bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), uint8_t{'r'});
        }
    }
    return bytes;
}

TEST_P(FuzzTest, SeedsAndTheirChanges) {
    ucs::LogCapture log(ucs::LogLevel::kFatal);
    const std::vector<Input> seeds = GetParam().seeds();
    ASSERT_FALSE(seeds.empty());
    std::mt19937_64 random(42);
    for (const Input& seed : seeds) GetParam().read(seed);
    for (int round = 0; round < 100; ++round) {
        GetParam().read(changed(seeds[random() % seeds.size()], random));
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzTest, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace ucp::fuzz

// SPDX-License-Identifier: BSD-3-Clause

// switch_soak_test [seeds [first]]: the soak of soak.h for so many seeds.

#include <cstdio>
#include <cstdlib>

#include "unit/ucp/soak.h"

int main(int argc, char** argv) {
    const uint64_t seeds = argc > 1 ? strtoull(argv[1], nullptr, 10) : 200;
    const uint64_t first = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1;
    uint64_t promotions = 0, demotions = 0, replays = 0, held = 0, failed = 0;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
        ucp::test::Soak soak(ucp::test::Soak::options_for(seed));
        const auto result = soak.run();
        for (const auto& error : result.errors) fprintf(stderr, "%s\n", error.c_str());
        if (!result.errors.empty()) ++failed;
        promotions += result.promotions;
        demotions += result.demotions;
        replays += result.replays;
        held += result.held;
    }
    printf(
        "%llu seeds: %llu promotions, %llu demotions, %llu operations replayed, %llu early "
        "messages held, %llu seeds failed\n",
        static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(promotions),
        static_cast<unsigned long long>(demotions), static_cast<unsigned long long>(replays),
        static_cast<unsigned long long>(held), static_cast<unsigned long long>(failed));
    return failed == 0 && ::testing::Test::HasFailure() == false ? 0 : 1;
}

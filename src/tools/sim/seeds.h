// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tools {

// FIRST:COUNT
struct SeedRange {
    uint64_t first = 1;
    uint64_t count = 1;
};

// Throws std::invalid_argument.
SeedRange parse_seeds(const std::string& text);

// Call run(seed) for each seed, each in a process of its own, at most `jobs` at a time. What they
// print comes out seed by seed. A seed fails if run() throws or its process dies.
// @return how many seeds failed; they are named at the end
unsigned run_seeds(const SeedRange& seeds, unsigned jobs,
                   const std::function<void(uint64_t seed)>& run);

}  // namespace tools

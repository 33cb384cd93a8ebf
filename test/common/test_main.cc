// SPDX-License-Identifier: BSD-3-Clause

// main() of the library's tests. Where SWIFTLANE_FIRST_NUMBER is set, numbers that come around
// begin there: a few below 2^32, and they do in most tests (docs/testing.md).

#include <cstdlib>

#include "common/leaks_fail.h"
#include "ucs/runtime/runtime.h"

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    // Page faults of the 512 that are posted by default are most of the time of tests that make
    // many workers.
    setenv("UCX_IB_RX_QUEUE_INITIAL", "32", 0);
    if (const char* first = std::getenv("SWIFTLANE_FIRST_NUMBER"); first != nullptr)
        ucs::runtime().first_number = static_cast<uint32_t>(std::strtoul(first, nullptr, 0));
    const ucs::test::LeaksFail log;
    return RUN_ALL_TESTS();
}

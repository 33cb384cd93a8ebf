// SPDX-License-Identifier: BSD-3-Clause

// main() of the library's tests.

#include "common/leaks_fail.h"

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    const ucs::test::LeaksFail log;
    return RUN_ALL_TESTS();
}

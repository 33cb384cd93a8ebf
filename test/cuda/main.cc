// SPDX-License-Identifier: BSD-3-Clause

// main() of the tests of device memory.

#include "common/leaks_fail.h"
#include "cuda/device.h"

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    const ucs::test::LeaksFail log;
    cuda_test::choose_driver();
    return RUN_ALL_TESTS();
}

// SPDX-License-Identifier: BSD-3-Clause
extern "C" __global__ void test_spin(volatile unsigned* words) {
    words[0] = 1;
    __threadfence_system();
    while (words[1] == 0) {
    }
}

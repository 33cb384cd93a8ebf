// SPDX-License-Identifier: BSD-3-Clause
#include "device_job.h"

extern "C" __global__ void test_spin(volatile unsigned* words) {
    words[0] = 1;
    __threadfence_system();
    while (words[1] == 0) {
    }
}

using cuda_test::DeviceJob;

extern "C" __global__ void test_job_thread(const DeviceJob job) {
    cuda_test::run_job<UCS_DEVICE_LEVEL_THREAD>(job);
}
extern "C" __global__ void test_job_warp(const DeviceJob job) {
    cuda_test::run_job<UCS_DEVICE_LEVEL_WARP>(job);
}
extern "C" __global__ void test_job_block(const DeviceJob job) {
    cuda_test::run_job<UCS_DEVICE_LEVEL_BLOCK>(job);
}
extern "C" __global__ void test_job_grid(const DeviceJob job) {
    cuda_test::run_job<UCS_DEVICE_LEVEL_GRID>(job);
}

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A kernel of the tests: sets word 0 of its argument, in mapped host memory, and runs until word 1
// is set.
inline constexpr const char* kSpinKernel = "test_spin";

// Does a DeviceJob (device_job.h), its argument; one kernel for each level, in their order.
inline constexpr const char* kJobKernels[] = {"test_job_thread", "test_job_warp", "test_job_block",
                                              "test_job_grid"};

// The machine code of the tests' kernels.
extern const unsigned char test_kernel_image[] asm("test_kernel_image");

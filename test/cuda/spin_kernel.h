// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/** A kernel of the tests: sets word 0 of its argument, in mapped host memory, and runs until word 1
 * is set. */
inline constexpr const char* kSpinKernel = "test_spin";

/** The machine code of the tests' kernels. */
extern const unsigned char test_kernel_image[] asm("test_kernel_image");

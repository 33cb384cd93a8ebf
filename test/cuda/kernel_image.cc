// SPDX-License-Identifier: BSD-3-Clause
// Compiled by a rule of its own: it waits for the image that it takes in.
#include "cuda/kernels.h"

#if defined(TEST_KERNEL_IMAGE)
asm(".section .rodata\n.balign 64\n.globl test_kernel_image\ntest_kernel_image:\n"
    ".incbin \"" TEST_KERNEL_IMAGE "\"\n.previous\n");
#else
asm(".section .rodata\n.globl test_kernel_image\ntest_kernel_image:\n"
    ".asciz \"none\"\n.previous\n");
#endif

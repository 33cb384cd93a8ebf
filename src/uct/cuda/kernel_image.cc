// SPDX-License-Identifier: BSD-3-Clause
// Compiled by a rule of its own: it waits for the image that it takes in.
#include "uct/cuda/kernels.h"

// Without a toolkit there is no code for real devices: their driver refuses this image, and copies
// go one by one. The stand-in of the tests takes it: it looks at names alone.
#if defined(SWIFTLANE_KERNEL_IMAGE)
asm(".section .rodata\n"
    ".balign 64\n"
    ".globl swiftlane_kernel_image\n"
    ".hidden swiftlane_kernel_image\n"
    "swiftlane_kernel_image:\n"
    ".incbin \"" SWIFTLANE_KERNEL_IMAGE
    "\"\n"
    ".previous\n");
#else
asm(".section .rodata\n"
    ".globl swiftlane_kernel_image\n"
    ".hidden swiftlane_kernel_image\n"
    "swiftlane_kernel_image:\n"
    ".asciz \"none\"\n"
    ".previous\n");
#endif

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>

// Functions that a program may bind to and that the emulation has not are further names of these,
// which refuse. Arguments do not matter to that, so there are none.
extern "C" {
[[gnu::used]] static void* absent_pointer() noexcept asm("softhca_absent_pointer");
static void* absent_pointer() noexcept {
    errno = EOPNOTSUPP;
    return nullptr;
}
[[gnu::used]] static int absent_int() noexcept asm("softhca_absent_int");
static int absent_int() noexcept {
    return EOPNOTSUPP;
}
[[gnu::used]] static void absent_void() noexcept asm("softhca_absent_void");
static void absent_void() noexcept {}
}

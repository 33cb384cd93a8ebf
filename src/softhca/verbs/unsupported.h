// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>

// Functions that a program may bind to and that the emulation has not are further names of these,
// which refuse. Arguments do not matter to that, so there are none.
extern "C" {
[[gnu::used]] static void* unsupported_pointer() noexcept asm("softhca_unsupported_pointer");
static void* unsupported_pointer() noexcept {
    errno = EOPNOTSUPP;
    return nullptr;
}
[[gnu::used]] static int unsupported_int() noexcept asm("softhca_unsupported_int");
static int unsupported_int() noexcept {
    return EOPNOTSUPP;
}
[[gnu::used]] static void unsupported_void() noexcept asm("softhca_unsupported_void");
static void unsupported_void() noexcept {}
}

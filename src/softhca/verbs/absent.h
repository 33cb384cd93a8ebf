// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>

// Functions that a program may bind to and that the emulation has not: they refuse. Arguments do
// not matter to that, so there are none.
// clang-format off
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ABSENT_POINTER(name) \
    extern "C" __attribute__((visibility("default"))) void* name() { \
        errno = EOPNOTSUPP; \
        return nullptr; \
    }
#define ABSENT_INT(name) \
    extern "C" __attribute__((visibility("default"))) int name() { return EOPNOTSUPP; }
#define ABSENT_VOID(name) \
    extern "C" __attribute__((visibility("default"))) void name() {}
// NOLINTEND(bugprone-macro-parentheses)
// clang-format on

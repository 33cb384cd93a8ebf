// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace softhca {

/// Sleeps while the word has this value, at most so many nanoseconds; may wake early.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t value, uint64_t ns) {
    const timespec timeout{time_t(ns / 1000000000), long(ns % 1000000000)};
    syscall(SYS_futex, &word, FUTEX_WAIT, value, &timeout, nullptr, 0);
}

inline void futex_wake(std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace softhca

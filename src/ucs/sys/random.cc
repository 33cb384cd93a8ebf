// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/random.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace ucs {

uint64_t SystemEntropy::draw() {
    uint64_t bits;
    if (getrandom(&bits, sizeof(bits), 0) == sizeof(bits)) return bits;
    // A sandbox may forbid the call; the process id and the time still tell processes apart.
    static_assert(sizeof(time_t) >= sizeof(uint64_t));
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return mix64(mix64(static_cast<uint64_t>(now.tv_sec) * 1000000000u + now.tv_nsec) ^ getpid());
}

void SystemEntropy::fill(std::span<uint64_t> words) {
    // So much comes whole or not at all.
    constexpr size_t kMostWords = 256 / sizeof(uint64_t);
    while (!words.empty()) {
        const std::span<uint64_t> some = words.first(std::min(words.size(), kMostWords));
        if (getrandom(some.data(), some.size_bytes(), 0) != static_cast<ssize_t>(some.size_bytes()))
            Entropy::fill(some);
        words = words.subspan(some.size());
    }
}

}  // namespace ucs

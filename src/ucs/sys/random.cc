// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/random.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

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

}  // namespace ucs

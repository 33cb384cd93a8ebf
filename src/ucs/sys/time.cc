// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/time.h"

#include <time.h>

namespace ucs {

namespace {

Time read_clock(clockid_t id) {
    timespec value;
    clock_gettime(id, &value);
    return Time(std::chrono::seconds(value.tv_sec) + std::chrono::nanoseconds(value.tv_nsec));
}

}  // namespace

Time WallClock::now() const {
    return read_clock(CLOCK_MONOTONIC);
}

Time WallClock::calendar() const {
    return read_clock(CLOCK_REALTIME);
}

}  // namespace ucs

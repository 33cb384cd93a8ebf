// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/thresholds.h"

#include <algorithm>
#include <cstdint>

namespace ucp::bulk {
namespace {

constexpr size_t kMost = 512 * 1024;
constexpr double kMessagesMore = 3;  //!< at either end: announcement, request for the data, end
/** A device that says little may carry more: then the processors are the limit, and pay. */
constexpr double kWorthwhile = 2;

/** Seconds a byte that several devices save. */
double saved(const Ways& ways) {
    return ways.are_shared() ? 1 / ways.bandwidth - 1 / ways.together : 0;
}

}  // namespace

size_t threshold_alone(const Ways& ways) {
    const double announcing = 2 * ways.latency + 2 * ways.overhead + 2 * ways.registration;
    const double bytes = announcing * kCopyBandwidth / 2;
    const size_t unshared = std::clamp(static_cast<size_t>(bytes), kLeastAnnounced, kMost);
    if (!ways.are_shared()) return unshared;
    const double shared = announcing / (2 / kCopyBandwidth + saved(ways));
    return std::min(unshared, std::max(static_cast<size_t>(shared), 2 * ways.slice));
}

size_t threshold_among_others(const Ways& ways) {
    if (!ways.are_shared()) return SIZE_MAX;
    const double announcing = kMessagesMore * ways.overhead + ways.registration;
    const double bytes = kWorthwhile * announcing / saved(ways);
    return std::max(static_cast<size_t>(bytes), kLeastAnnounced);
}

}  // namespace ucp::bulk

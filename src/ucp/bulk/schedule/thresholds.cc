// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/thresholds.h"

#include <algorithm>
#include <cstdint>

namespace ucp::bulk {
namespace {

constexpr size_t kMaxThreshold = 512 * 1024;
constexpr double kMoreMessages = 3;  //!< at either end: announcement, request for the data, end
/** A device that says little may carry more: then the processors are the limit, and pay. */
constexpr double kWorthwhile = 2;

/** Seconds a byte that several devices save. */
double saved(const TransportCosts& costs) {
    return costs.are_shared() ? 1 / costs.bandwidth - 1 / costs.together : 0;
}

}  // namespace

size_t rendezvous_threshold(const TransportCosts& costs) {
    const double cost = 2 * costs.latency + 2 * costs.overhead + 2 * costs.registration;
    const double bytes = cost * kCopyBandwidth / 2;
    const size_t unshared = std::clamp(static_cast<size_t>(bytes), kMinRendezvous, kMaxThreshold);
    if (!costs.are_shared()) return unshared;
    const double shared = cost / (2 / kCopyBandwidth + saved(costs));
    return std::min(unshared, std::max(static_cast<size_t>(shared), 2 * costs.slice));
}

size_t rendezvous_threshold_in_window(const TransportCosts& costs) {
    if (!costs.are_shared()) return SIZE_MAX;
    const double cost = kMoreMessages * costs.overhead + costs.registration;
    const double bytes = kWorthwhile * cost / saved(costs);
    return std::max(static_cast<size_t>(bytes), kMinRendezvous);
}

}  // namespace ucp::bulk

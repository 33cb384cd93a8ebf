// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/select/announcement.h"

namespace ucp {
namespace {

constexpr size_t kHostThreshold = 24 * 1024;                //!< rendezvous within a host
constexpr size_t kDialogueThreshold = 4 * 1024 * 1024 + 1;  //!< the same, in a dialogue

}  // namespace

size_t rndv_threshold(const bulk::Engine& bulk, Endpoint& endpoint,
                      const std::optional<size_t>& configured) {
    if (configured) return *configured;
    if (endpoint.one_sided_lane().attributes.device_type == uct::DeviceType::kSharedMemory)
        return kHostThreshold;
    return bulk::rendezvous_threshold(bulk.costs(endpoint));
}

// Within a host the two sides copy at the same time, piece by piece, which is faster than one copy
// by the system; but where all ranks are busy, one copy is less work (docs/mpi.md): so only
// messages that a program is likely to wait for go in pieces.
Announced is_announced(const bulk::Engine& bulk, Endpoint& endpoint, size_t length,
                       const std::optional<size_t>& configured) {
    if (configured) return length >= *configured ? Announced::kYes : Announced::kNo;
    if (length < bulk::kMinRendezvous) return Announced::kNo;  // less than any threshold
    const uct::DeviceType type = endpoint.one_sided_lane().attributes.device_type;
    if (type == uct::DeviceType::kSharedMemory) {
        if (length < kHostThreshold) return Announced::kNo;
        return length >= kDialogueThreshold ? Announced::kYes : Announced::kUnlessWaitedFor;
    }
    const bulk::TransportCosts costs = bulk.costs(endpoint);
    if (length >= bulk::rendezvous_threshold(costs)) return Announced::kYes;
    return type == uct::DeviceType::kNetwork &&
                   length >= bulk::rendezvous_threshold_in_window(costs)
               ? Announced::kUnlessWaitedFor
               : Announced::kNo;
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What the machine's processors need to move bytes: the figures that transports do not know, in
// one place. With what transports say of themselves they give the times that protocols are chosen
// by (protocol_table.h).
namespace ucp::select {

// Where a figure comes from.
enum class Origin : uint8_t {
    kAssumed,   // a constant of this file
    kMeasured,  // on this machine, by this process
    kKept,      // by an earlier one
    kLearned,   // from messages of this process
    kUser,      // a variable says so
};
std::string_view name(Origin origin);

// Time as a linear function of bytes, in seconds.
struct CostEntry {
    double base = 0;
    double per_byte = 0;
    Origin origin = Origin::kAssumed;

    double at(size_t bytes) const { return base + per_byte * static_cast<double>(bytes); }
};

struct CostModel {
    // One copy by a processor, as into a bounce buffer and out of one.
    CostEntry copy{0, 1 / 8e9};
    // A message that is taken through a queue in shared memory in pieces, each copied in by the
    // sender while the receiver copies the one before it out.
    CostEntry pieces{0.3e-6, 1 / 20e9};
    // The same message read by the receiver at once, by a call of the system (process_vm_readv).
    CostEntry system_copy{1.0e-6, 1 / 28e9};
    // A copy between host memory and memory of a device, through pinned host memory.
    CostEntry staging{7.5e-6, 1 / 16e9};
    // A copy by a device from or to memory of another one of its host, from its start to its known
    // end.
    CostEntry device_read{8e-6, 1 / 380e9};
    // The same between memory of a device and pinned memory of its host.
    CostEntry device_host{8e-6, 1 / 50e9};
    // Until the processor of a peer that does something else looks at a put or get for it.
    CostEntry peer_turn{2e-6, 0};
    // The most that zero copy of memory that is registered already costs, and of memory that has
    // to be registered, as registrations are kept: of a message, whose sender waits for the lane,
    // and of a put or get. Half a byte less, so that a copy of that length takes longer.
    CostEntry message_registered{(16 * 1024 - 0.5) / 8e9, 0};
    CostEntry message_registering{(64 * 1024 - 0.5) / 8e9, 0};
    CostEntry one_sided_registered{(4 * 1024 - 0.5) / 8e9, 0};
    CostEntry one_sided_registering{(16 * 1024 - 0.5) / 8e9, 0};

    // The constants above: for simulation, tests, and where nothing can be measured.
    static CostModel fixed() { return {}; }
    // Those, and what this machine needs for copies and calls of the system: measured when it is
    // first asked for, in about a millisecond, and the same for the life of the process.
    static const CostModel& measured();
};

}  // namespace ucp::select

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ucs/type/status.h"
#include "uct/api/types.h"

namespace ucp {

// Names a transport or component on the wire.
uint32_t kind_of(std::string_view name);

// One transport of a worker, as its address tells it.
//
// The costs travel with 8 bits of precision (wire_cost()): both ends choose lanes by the numbers as
// they travelled, so that both choose the same.
struct AddressEntry {
    uint32_t kind = 0;   // kind_of() the transport's name
    uint8_t domain = 0;  // index in the owner's context, as in its remote keys
    uct::DeviceType device_type = uct::DeviceType::kNetwork;
    uct::Reach reach = uct::Reach::kInterface;
    bool auxiliary = false;  // scalable, and admitted only to bring up dedicated lanes
    float bandwidth = 0;     // bytes per second
    float latency = 0;       // seconds, one way
    float overhead = 0;      // CPU seconds per message
    float distance = 0;      // seconds from the process's CPUs to the device
    std::span<const std::byte> device;
    std::span<const std::byte> interface;  // empty for dedicated transports
};

// What a worker's address says. The spans point into the bytes that it was read from.
struct WorkerAddress {
    uint64_t uuid = 0;
    uint64_t host = 0;  // the same for workers of one host
    std::string_view name;
    bool has_checksums = false;  // its messages bear them, and so must those to it (UCX_CHECKSUM)
    std::vector<AddressEntry> entries;
};

// What outlives the bytes that an address was read from.
inline std::vector<std::byte> copy_bytes(std::span<const std::byte> bytes) {
    return {bytes.begin(), bytes.end()};
}

// A cost as the other end sees it: rounded to what travels.
float wire_cost(double cost);

// Entries with one domain, type and device address that follow each other share these on the wire.
std::vector<std::byte> pack_address(const WorkerAddress& address);

// Read a packed address. Its length is in its second field, so that the caller needs none; `room`
// bounds what may be read.
// @return UCS_ERR_INVALID_ADDR for anything that pack_address() does not write
ucs_status_t unpack_address(std::span<const std::byte> room, WorkerAddress* address);

// Bytes of a packed address; 0 if it is none. Reads the 8 bytes that every address has.
size_t packed_address_length(const void* packed);

}  // namespace ucp

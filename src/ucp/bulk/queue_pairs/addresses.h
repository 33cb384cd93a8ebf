// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ucp/bulk/schedule/limits.h"

// The addresses of queue pairs as OPEN and GRANT carry them.
namespace ucp::bulk {

/** One end's queue pairs on one rail. The peer's answer has its own in the same place. */
struct RailAddresses {
    uint32_t kind = 0;           //!< hash of the transport's name
    uint8_t domain = 0;          //!< of the sender
    uint8_t partner_domain = 0;  //!< of the receiver, as the sender knows it
    std::vector<std::byte> device;
    std::vector<std::vector<std::byte>> addresses;  //!< all of one length
};

std::vector<std::byte> encode(std::span<const RailAddresses> rails);
/** Bytes from outside: nothing unless they are exactly what encode() makes. */
std::optional<std::vector<RailAddresses>> decode_rail_addresses(std::span<const std::byte> bytes);

}  // namespace ucp::bulk

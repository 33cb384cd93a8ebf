// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <span>

namespace uct::ib {

/**
 * The GID of an Ethernet port to go by when the user names none: RoCE v2 before v1, as routers know
 * only the former; of equal versions an IPv4 address, which both ends of a network most likely
 * have, before a global IPv6 address, and that before a link-local one, which reaches no further
 * than the switch; of equals the first.
 * @return null: there is none
 */
const ibv_gid_entry* preferred_gid(std::span<const ibv_gid_entry> table);

/**
 * Index of a partition key in a port's table; the highest bit, of membership, is left out.
 * @param table   in the order of the table, in the processor's byte order
 * @param wanted  none: the first that is valid, else the first
 * @return none: the port is not in the partition
 */
std::optional<uint16_t> find_partition(std::span<const uint16_t> table,
                                       std::optional<unsigned> wanted);

}  // namespace uct::ib

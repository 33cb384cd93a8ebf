// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ucs {

// Up to the first dot; read once.
const std::string& host_name();

// The same for all processes of one running system, containers included, and different on any
// other: a hash of the kernel's boot id; where that is hidden, of the host name. Read once.
uint64_t host_id();

// Bytes of memory that this machine has; SIZE_MAX if nobody knows.
size_t physical_memory();

// Of this process now: a forked child has its own.
uint32_t process_id();

}  // namespace ucs

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace uct {

// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of bytes in several pieces: begin with 0, and hand
// the result on to the next piece.
uint32_t crc32c(uint32_t so_far, const void* data, size_t length);

}  // namespace uct

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// What a fuzzer feeds the parsers of bytes that come from outside. Each must survive any input.
namespace ucp::fuzz {

/** A worker address. */
void read_address(const uint8_t* data, size_t size);
/** A packed remote key. */
void read_remote_key(const uint8_t* data, size_t size);
/** A message to a worker that has requests of every kind waiting; the first byte is its id. */
void read_message(const uint8_t* data, size_t size);

}  // namespace ucp::fuzz

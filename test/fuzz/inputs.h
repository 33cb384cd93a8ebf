// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// What a fuzzer feeds the readers of bytes that come from outside. Each must survive any input.
namespace ucp::fuzz {

// A worker address: as it is, and with length and checksum put right, to connect to.
void read_address(std::span<const uint8_t> input);
// A packed remote key: as it is, and with size and checksum put right.
void read_remote_key(std::span<const uint8_t> input);
// Messages to a worker with requests of every kind waiting. Byte 0: bits 0 and 1 are
// Victim::Links, bit 7 asks for Victim::speak_to(). Then, for each message: its id, the number of
// bytes (fewer if the input ends), the bytes.
void read_messages(std::span<const uint8_t> input);
// A message of the lane negotiation: what decodes is what encode() would have written.
void read_lane_message(std::span<const uint8_t> input);
// What a peer of the job sends on a TCP connection, after its greeting.
void read_tcp_stream(std::span<const uint8_t> input);
// What a peer of the job does over time, with sessions (tcp_session_input.cc lists the steps).
void read_tcp_session(std::span<const uint8_t> input);
// What comes on an encrypted connection (tls_input.cc lists the steps).
void read_tls(std::span<const uint8_t> input);
// What clients say to a listener, and a listener to clients (wireup_input.cc lists the steps).
void read_callers(std::span<const uint8_t> input);
void read_answers(std::span<const uint8_t> input);
// A packet of ud_verbs, or an address of an adapter: the first byte says which.
void read_datagram(std::span<const uint8_t> input);
// A key of shared memory, and what others write into a queue (transport_input.cc lists the steps).
void read_shared_memory(std::span<const uint8_t> input);

// A fuzzer does not find a checksum. @return false: too short for an address
bool repair_address(std::vector<std::byte>& bytes);

using Input = std::vector<uint8_t>;
using Reader = void (*)(std::span<const uint8_t> input);

// A reader with valid inputs to start from.
struct Target {
    const char* name;
    Reader read;
    std::vector<Input> (*seeds)();
};

// Valid inputs of readers whose steps are known in their sources alone.
std::vector<Input> tcp_streams();
std::vector<Input> tcp_sessions();
std::vector<Input> tls_lines();
std::vector<Input> callers();
std::vector<Input> answers();
std::vector<Input> datagrams();
std::vector<Input> shared_memories();

// Every reader above.
std::span<const Target> targets();

}  // namespace ucp::fuzz

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tools {

// Names one message of a job: its content is a function of these alone, so that a receiver can tell
// a lost, doubled, reordered or corrupted message from the one it expects.
struct PayloadKey {
    uint64_t seed;
    uint32_t sender;
    uint32_t receiver;
    uint32_t stream;  // independent sequences between the same two ranks
    uint64_t sequence;
};

void fill_payload(std::span<std::byte> buffer, const PayloadKey& key);

// The first byte that differs, or buffer.size() if all is right.
size_t check_payload(std::span<const std::byte> buffer, const PayloadKey& key);

}  // namespace tools

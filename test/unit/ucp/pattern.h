// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ucs/sys/random.h"

namespace ucp::test {

// Bytes that are others with each seed.
inline std::vector<uint8_t> pattern(size_t length, uint64_t seed) {
    std::vector<uint8_t> bytes(length);
    uint64_t state = ucs::mix64(seed);
    for (size_t offset = 0; offset < length; offset += sizeof(state)) {
        state = ucs::mix64(state);
        std::memcpy(bytes.data() + offset, &state, std::min(sizeof(state), length - offset));
    }
    return bytes;
}

}  // namespace ucp::test

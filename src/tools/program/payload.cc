// SPDX-License-Identifier: BSD-3-Clause
#include "tools/program/payload.h"

#include <algorithm>
#include <cstring>

#include "ucs/sys/random.h"

namespace tools {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

uint64_t first_word(const PayloadKey& key) {
    uint64_t word = ucs::mix64(key.seed);
    word = ucs::mix64(word ^ (uint64_t{key.sender} << 32 | key.receiver));
    word = ucs::mix64(word ^ key.stream);
    return ucs::mix64(word ^ key.sequence);
}

}  // namespace

void fill_payload(std::span<std::byte> buffer, const PayloadKey& key) {
    uint64_t word = first_word(key);
    for (size_t offset = 0; offset < buffer.size(); offset += sizeof(word), word += kStep) {
        std::memcpy(buffer.data() + offset, &word, std::min(sizeof(word), buffer.size() - offset));
    }
}

size_t check_payload(std::span<const std::byte> buffer, const PayloadKey& key) {
    uint64_t word = first_word(key);
    for (size_t offset = 0; offset < buffer.size(); offset += sizeof(word), word += kStep) {
        const size_t length = std::min(sizeof(word), buffer.size() - offset);
        if (std::memcmp(buffer.data() + offset, &word, length) == 0) continue;
        std::byte expected[sizeof(word)];
        std::memcpy(expected, &word, length);
        for (size_t i = 0; i < length; ++i) {
            if (buffer[offset + i] != expected[i]) return offset + i;
        }
    }
    return buffer.size();
}

}  // namespace tools

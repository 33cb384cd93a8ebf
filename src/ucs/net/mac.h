// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ucs::net {

// 256 bits that are used once.
using Nonce = std::array<std::byte, 32>;
// HMAC-SHA256 (RFC 2104, FIPS 180-4).
using Mac = std::array<std::byte, 32>;

Nonce new_nonce();

// Computes a Mac over what is added, piece by piece. One thread.
class MacWriter {
  public:
    explicit MacWriter(std::span<const std::byte> key) : key_(key.begin(), key.end()) {}
    explicit MacWriter(std::string_view key) : MacWriter(std::as_bytes(std::span(key))) {}

    MacWriter& add(std::span<const std::byte> bytes);
    MacWriter& add(std::string_view text) { return add(std::as_bytes(std::span(text))); }
    // All bytes of an object, which has no padding.
    template <typename T>
    MacWriter& add_object(const T& object) {
        static_assert(std::has_unique_object_representations_v<T>);
        return add(std::as_bytes(std::span(&object, 1)));
    }
    // @return something that nobody can guess if the cryptographic library refuses the work
    Mac end() { return end_if_possible().value_or(new_nonce()); }
    // @return nothing if it refuses: for lack of memory, where keys can be made at all
    std::optional<Mac> end_if_possible();

  private:
    std::vector<std::byte> key_;
    std::vector<std::byte> message_;
};

// The time that it takes says nothing of how much is equal.
bool are_equal(const Mac& left, const Mac& right);

}  // namespace ucs::net

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ucs {

// Alignments are powers of two.
template <std::unsigned_integral T>
constexpr T align_down(T value, std::type_identity_t<T> alignment) {
    return value & ~(alignment - 1);
}

template <std::unsigned_integral T>
constexpr T align_up(T value, std::type_identity_t<T> alignment) {
    return align_down<T>(value + alignment - 1, alignment);
}

inline bool is_aligned(const void* pointer, size_t alignment) {
    return (reinterpret_cast<uintptr_t>(pointer) & (alignment - 1)) == 0;
}

}  // namespace ucs

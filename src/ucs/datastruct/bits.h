// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ucs {

inline constexpr size_t kCacheLine = 64;

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

template <std::unsigned_integral T>
constexpr T divide_up(T value, std::type_identity_t<T> divisor) {
    return value / divisor + (value % divisor != 0);
}

// function(index) for each bit that is set, from the lowest.
template <std::unsigned_integral T, typename Function>
constexpr void for_each_bit(T bits, Function&& function) {
    for (; bits != 0; bits &= bits - 1) function(static_cast<unsigned>(std::countr_zero(bits)));
}

}  // namespace ucs

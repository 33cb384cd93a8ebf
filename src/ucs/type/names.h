// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace ucs {

// The name of an enumerator. `names` has one for each of them, in their order, from 0 to kLast.
// @return "unknown" for a value that is none of them
template <auto kLast>
constexpr const char* name_in(const char* const (&names)[static_cast<size_t>(kLast) + 1],
                              decltype(kLast) value) {
    const auto index = static_cast<size_t>(value);
    return value <= kLast ? names[index] : "unknown";
}

}  // namespace ucs

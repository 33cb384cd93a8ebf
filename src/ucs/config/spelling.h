// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>

namespace ucs::config {

// Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other
// (optimal string alignment).
size_t edit_distance(std::string_view left, std::string_view right);

// How far a misspelt name may be from the right one for the right one to be worth naming.
size_t edit_limit(std::string_view name);

}  // namespace ucs::config

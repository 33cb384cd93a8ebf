// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace tools {

// The commands and options of `sim` are known to the simulator alone, a program of its own, which
// prints what it is asked for.
inline constexpr char kSayManual[] = "--say-manual";          // its manual page
inline constexpr char kSayCompletion[] = "--say-completion";  // completion_cases()

// What the simulator prints for one of these; nothing where there is no simulator.
std::string simulator_says(const char* what);

}  // namespace tools

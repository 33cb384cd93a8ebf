// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "tools/common/process.h"

namespace tools::perf {

// Set for the two processes of a run by their launcher: "RANK:SOCKET".
inline constexpr const char* kPlaceVariable = "SWIFTLANE_PERF_PLACE";

struct Place {
    unsigned rank;  // 0: the initiator
    int socket;     // to the other one

    // From the environment. @return whether this process was started by a launcher. Throws
    // std::invalid_argument for what no launcher has set.
    static bool find(Place* place);
};

// Run this executable as two processes to their end. If one fails or dies the other is ended and
// std::runtime_error says which it was.
void launch(const ExecSettings& settings);

}  // namespace tools::perf

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>

namespace tools {

// What every command of swiftlane returns; docs/tools.md has the table.
enum ExitCode : int {
    kDone = 0,
    kFailed = 1,         // something went wrong: said on standard error
    kMisused = 2,        // the command line makes no sense
    kInterrupted = 130,  // Ctrl-C: what was finished has been printed and written
};

// Ctrl-C came, and all that can be said has been said.
class Interrupted : public std::exception {
  public:
    const char* what() const noexcept override { return "interrupted"; }
};

}  // namespace tools

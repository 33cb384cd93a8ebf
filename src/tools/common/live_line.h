// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace tools {

// Rewrites one line of the terminal while a size is running.
class LiveLine {
  public:
    LiveLine() : shown_(isatty(STDERR_FILENO) != 0) {}

    bool enabled() const { return shown_; }
    void show(const std::string& text) const {
        fmt::print(stderr, "\r\033[K{}", text);
        std::fflush(stderr);
    }
    void clear() const {
        if (shown_) fmt::print(stderr, "\r\033[K");
    }

  private:
    const bool shown_;
};

}  // namespace tools

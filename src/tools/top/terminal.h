// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <termios.h>

#include <csignal>
#include <span>
#include <string>

namespace tools {

// The whole screen of the terminal, as long as the object lives; what was on it comes back at the
// end, also when the process is told to end by SIGINT, SIGTERM or SIGHUP: wait() says so. One at a
// time.
class Terminal {
  public:
    Terminal();
    ~Terminal();
    Terminal(Terminal&&) = delete;

    // As many of the lines as fit, each up to the screen's width.
    void show(std::span<const std::string> lines) const;
    // Waits for so long or for a key. False: the user wants no more ("q", or a signal).
    bool wait(int milliseconds);

    // Standard output and input are a terminal.
    static bool is_there();

  private:
    static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

    static inline volatile sig_atomic_t is_ended_ = 0;
    termios before_{};
    struct sigaction actions_before_[std::size(kSignals)]{};
    bool has_input_ = true;
};

}  // namespace tools

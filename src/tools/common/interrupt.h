// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csignal>
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

// Ctrl-C as a question that a measurement asks itself between rows, so that it can keep what it
// has. A second one ends the process at once. One object at a time.
class Interrupt {
  public:
    Interrupt() {
        requested_ = 0;
        struct sigaction action {};
        action.sa_handler = [](int) { requested_ = 1; };
        action.sa_flags = static_cast<int>(SA_RESETHAND);  // system calls return with EINTR
        sigaction(SIGINT, &action, &before_);
    }
    ~Interrupt() { sigaction(SIGINT, &before_, nullptr); }
    Interrupt(Interrupt&&) = delete;

    static bool is_requested() { return requested_ != 0; }

    // In processes that others tell when to end.
    static void leave_to_others() { std::signal(SIGINT, SIG_IGN); }

  private:
    static inline volatile sig_atomic_t requested_ = 0;
    struct sigaction before_ {};
};

}  // namespace tools

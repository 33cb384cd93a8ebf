// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace ucs {

// Signals are for the program's threads: one that is started while this lives gets none.
class NoSignals {
  public:
    NoSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(NoSignals&&) = delete;

  private:
    sigset_t before_;
};

// While it lives, a write to a pipe or a socket that nobody reads fails, and raises no signal in
// this thread.
class NoPipeSignal {
  public:
    NoPipeSignal() {
        sigemptyset(&pipe_);
        sigaddset(&pipe_, SIGPIPE);
        sigset_t pending;
        // One that the program holds back stays its own.
        is_active_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 0 &&
                     pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
    }
    ~NoPipeSignal() {
        if (!is_active_) return;
        const int error = errno;
        const timespec at_once{};
        while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }
    NoPipeSignal(NoPipeSignal&&) = delete;

  private:
    sigset_t pipe_, before_;
    bool is_active_;
};

}  // namespace ucs

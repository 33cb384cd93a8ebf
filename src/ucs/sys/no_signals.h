// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <pthread.h>

#include <csignal>

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

}  // namespace ucs

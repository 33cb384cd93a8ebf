// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "ucs/runtime/registration.h"
#include "ucs/sys/environment.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"

namespace ucs {

class LogSink;

// The state that the main library shares with its on-demand modules. Each module links a hidden
// copy of ucs of its own; at load the main library hands it this object, so that there is one log,
// one environment, one clock, one source of randomness and one list of variables in the process.
//
// It is constant-initialised and never destroyed: static constructors and exit handlers may use
// it. What it points to is not owned, must outlive its use, and may live inside a module; modules
// are therefore never unloaded (RTLD_NODELETE).
//
// Clock, entropy and environment are replaced before the library is used, or by the one thread
// that uses it; reading them takes no lock.
struct Runtime {
    // Above every level until the first line is about to be logged: UCX_LOG_LEVEL is read then.
    static constexpr int kLogLevelUnresolved = 1000;

    std::atomic<int> log_level{kLogLevelUnresolved};
    // Null: standard error, or the file that UCX_LOG_FILE names.
    std::atomic<LogSink*> log_sink{nullptr};

    const Environment* environment;
    const Clock* clock;
    Entropy* entropy;

    RegistrationList tables{};            // of config::TableBase
    RegistrationList memory_detectors{};  // of MemoryDetector
};

namespace internal {
extern constinit Runtime* current_runtime;
}  // namespace internal

inline Runtime& runtime() {
    return *internal::current_runtime;
}

// Called once by a module's entry point, before anything else of the module runs. Moves what the
// module's static constructors registered over to the shared lists.
void adopt_runtime(Runtime& shared);

inline Time now() {
    return runtime().clock->now();
}

// A random number that no other process, on any host, is likely to draw.
inline uint64_t unique_id() {
    return runtime().entropy->draw();
}

}  // namespace ucs

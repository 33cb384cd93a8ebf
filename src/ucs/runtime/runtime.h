// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "ucs/sys/environment.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"

namespace ucs {

// Base class of what components register for the life of the process. Not owned by its list.
struct RegistryEntry {
    // Registrations of one key are copies of one, linked into the main library and a module; an
    // empty key is unlike all others.
    std::string_view key;
    RegistryEntry* following = nullptr;  // the list's alone
};

// A list that only grows. Any thread may walk and extend it.
class RegistryList {
  public:
    constexpr RegistryList() = default;

    // The one registered last; null if there is none.
    const RegistryEntry* first() const { return first_.load(std::memory_order_acquire); }

    void add(RegistryEntry& registration) {
        registration.following = first_.load();
        while (!first_.compare_exchange_weak(registration.following, &registration)) {
        }
    }

    // Hands everything over to `other`, save what that has a copy of.
    void move_to(RegistryList& other) {
        const auto has_copy = [&other](std::string_view key) {
            const RegistryEntry* entry = key.empty() ? nullptr : other.first();
            while (entry != nullptr && entry->key != key) entry = entry->following;
            return entry != nullptr;
        };
        for (RegistryEntry* entry = first_.exchange(nullptr); entry != nullptr;) {
            RegistryEntry* const next = entry->following;
            if (!has_copy(entry->key)) other.add(*entry);
            entry = next;
        }
    }

    // For tests, whose registrations end before the process: drops those before `first`.
    void reset(const RegistryEntry* first = nullptr) { first_ = const_cast<RegistryEntry*>(first); }

  private:
    std::atomic<RegistryEntry*> first_{nullptr};
};

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

    RegistryList tables{};            // of config::TableBase
    RegistryList memory_detectors{};  // of MemoryDetector

    // Where numbers of 32 bits begin that come around: nought, but in tests of that they do.
    uint32_t first_number = 0;
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

inline uint32_t first_number() {
    return runtime().first_number;
}

// Is one number before the other, of numbers that come around and are never half of all apart?
constexpr bool is_before(uint32_t one, uint32_t other) {
    return static_cast<int32_t>(one - other) < 0;
}

// A random number that no other process, on any host, is likely to draw.
inline uint64_t unique_id() {
    return runtime().entropy->draw();
}

}  // namespace ucs

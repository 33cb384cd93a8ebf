// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>

#include "ucs/runtime/runtime.h"
#include "ucs/sys/time.h"

namespace ucp {

// What a process does, as a file that Perfetto and Chrome draw on a line of time (UCX_TRACE):
// lanes, transfers, registrations, stalls. docs/observability.md lists the events.
//
// One for a process, never destroyed. Events wait in a buffer of kBuffer bytes, which goes to the
// file when it is full, when a worker ends and when the process does; after each time the file is
// whole. What rests in the buffer of a process that is killed is lost.
//
// Costs, where nothing is traced, a load and a test at each event, and short messages are none. Any
// thread.
class Trace {
  public:
    static constexpr size_t kBuffer = 64 << 10;
    static constexpr uint64_t kLongestFile = uint64_t{256} << 20;  // bytes; the rest is dropped

    struct Argument {
        const char* key;
        std::variant<uint64_t, std::string_view> value;
    };
    using Arguments = std::initializer_list<Argument>;

    Trace(const Trace&) = delete;

    // Null: nothing is traced.
    static Trace* active() { return active_.load(std::memory_order_acquire); }
    // Trace from now on, if nothing is traced yet.
    // @param pattern  name of the file, where %p stands for the process's number; empty: no effect
    static void open(std::string_view pattern);
    // The buffer goes to the file.
    void flush();
    // The same, and nothing is traced from now on. For one thread.
    static void close();

    // A worker: the track of its events is its id. Its name is shown beside it.
    void name_track(uint64_t track, std::string_view name);
    // Something that takes no time.
    void instant(const char* category, std::string_view name, uint64_t track, Arguments arguments) {
        add('i', category, name, track, now(), ",\"s\":\"t\"", arguments);
    }
    // Something that others may overlap, named by category and address while it lasts.
    void begin(const char* category, std::string_view name, uint64_t track, const void* id,
               Arguments arguments);
    void end(const char* category, std::string_view name, uint64_t track, const void* id,
             Arguments arguments = {});
    // Something that began at `start`, by now(), and is over.
    void complete(const char* category, std::string_view name, uint64_t track, ucs::Time start,
                  Arguments arguments);
    static ucs::Time now() { return ucs::runtime().clock->now(); }

  private:
    Trace(int descriptor, std::string path);
    ~Trace() = default;

    void add(char phase, const char* category, std::string_view name, uint64_t track,
             ucs::Time time, std::string_view more, Arguments arguments);
    void write();

    static inline std::atomic<Trace*> active_ = nullptr;

    const int descriptor_;
    const std::string path_;
    const uint32_t process_;
    std::mutex mutex_;
    std::string buffer_;
    uint64_t end_ = 0;  // of the events in the file: what closes the list comes after
    bool is_full_ = false;
};

}  // namespace ucp

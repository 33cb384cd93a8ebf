// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "ucm/api/ucm.h"

namespace ucm {

struct HandlerTable;

// Who is called on which events, and which events somebody outside reports. One for the process.
//
// Events come from the middle of anything: from a free() that holds the allocator's lock, from a
// signal handler, from the dynamic linker. So reporting takes no lock and allocates nothing: it
// reads a table that is replaced as a whole, and says in one of two counters that it does so. Who
// takes a handler away waits until no thread can be inside it any more: a handler must not set or
// unset handlers. Callbacks run on several threads at a time, and nest.
class Events {
  public:
    static Events& instance();

    ucs_status_t set_handler(int events, int priority, ucm_event_callback_t callback, void* arg);
    // When it returns, the callback runs on no thread.
    void unset_handler(int events, ucm_event_callback_t callback, void* arg);

    void set_external(int events) { external_ |= events & ~kFlags; }
    void unset_external(int events) { external_ &= ~events; }
    int external() const { return external_; }

    // Calls the handlers of `type`, in order of priority.
    void report(ucm_event_type_t type, ucm_event_t& event);
    void report_mapped(void* address, size_t size);
    void report_unmapped(void* address, size_t size);

    // A call of the system between the handlers of negative priority and the others, unless one of
    // the former did it. `part` of the event has the arguments, and begins with the result as it is
    // on failure.
    template <class Part, class Call>
    void around(ucm_event_type_t type, ucm_event_t& event, Part& part, Call&& call) {
        const auto failed = part.result;
        report_part(type, event, true, false);
        if (part.result == failed) part.result = call(part);
        report_part(type, event, false, true);
    }

    static constexpr int kFlags = UCM_EVENT_FLAG_NO_INSTALL | UCM_EVENT_FLAG_EXISTING_ALLOC;

    // Has the unmapping of this address been reported since watch()? One watcher at a time.
    void watch(void* address);
    bool watched();

  private:
    Events();
    void report_part(ucm_event_type_t type, ucm_event_t& event, bool before, bool after);
    ucs_status_t replace(HandlerTable* table);
    void wait_for_readers();
    static void before_fork();
    static void after_fork_in_parent();
    static void after_fork_in_child();

    std::mutex mutex_;  // of whoever changes the table
    std::atomic<const HandlerTable*> table_{nullptr};
    std::atomic<unsigned> phase_{0};
    std::atomic<unsigned> readers_[2]{};
    std::atomic<int> external_{0};
    std::atomic<uintptr_t> watched_{0};
    std::atomic<bool> seen_{false};
};

}  // namespace ucm

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "ucm/api/ucm.h"

namespace ucm {

// Who is called on which events, and which events somebody outside reports. One for the process.
// Any thread; a callback may cause further events, which nest.
class Events {
  public:
    static Events& instance();

    ucs_status_t set_handler(int events, int priority, ucm_event_callback_t callback, void* arg);
    void unset_handler(int events, ucm_event_callback_t callback, void* arg);

    void set_external(int events);
    void unset_external(int events);
    bool all_external(int events);

    // Calls the handlers of `type`, in order of priority.
    void report(ucm_event_type_t type, ucm_event_t& event);
    void report_mapped(void* address, size_t size);
    void report_unmapped(void* address, size_t size);

    // A call of the system between the handlers of negative priority and the others, unless one of
    // the former did it: `done` and `call` work on the event's result.
    template <class Done, class Call>
    void around(ucm_event_type_t type, ucm_event_t& event, Done&& done, Call&& call) {
        std::lock_guard lock(mutex_);
        report_range(type, event, true);
        if (!done(event)) call(event);
        report_range(type, event, false);
    }

  private:
    struct Handler {
        int events;
        int priority;
        ucm_event_callback_t callback;
        void* arg;
    };

    Events() = default;
    void report_range(ucm_event_type_t type, ucm_event_t& event, bool before);

    std::recursive_mutex mutex_;
    std::vector<Handler> handlers_;  // in falling urgency: rising priority, then order of setting
    int external_ = 0;
};

}  // namespace ucm

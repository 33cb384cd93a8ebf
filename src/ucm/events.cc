// SPDX-License-Identifier: BSD-3-Clause
#include "ucm/events.h"

#include <algorithm>
#include <new>

namespace ucm {

namespace {
constexpr int kFlags = UCM_EVENT_FLAG_NO_INSTALL | UCM_EVENT_FLAG_EXISTING_ALLOC;
}  // namespace

Events& Events::instance() {
    // Never destroyed: memory is unmapped until the very end of a process.
    static Events* const events = new Events;
    return *events;
}

ucs_status_t Events::set_handler(int events, int priority, ucm_event_callback_t callback,
                                 void* arg) {
    std::lock_guard lock(mutex_);
    if ((events & UCM_EVENT_FLAG_NO_INSTALL) == 0 && !all_external(events & ~kFlags))
        return UCS_ERR_UNSUPPORTED;
    const auto later = std::find_if(handlers_.begin(), handlers_.end(),
                                    [=](const Handler& h) { return h.priority > priority; });
    try {
        handlers_.insert(later, {events & ~kFlags, priority, callback, arg});
    } catch (const std::bad_alloc&) {
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

void Events::unset_handler(int events, ucm_event_callback_t callback, void* arg) {
    std::lock_guard lock(mutex_);
    for (Handler& handler : handlers_) {
        if (handler.callback == callback && handler.arg == arg) handler.events &= ~events;
    }
    std::erase_if(handlers_, [](const Handler& handler) { return handler.events == 0; });
}

void Events::set_external(int events) {
    std::lock_guard lock(mutex_);
    external_ |= events & ~kFlags;
}

void Events::unset_external(int events) {
    std::lock_guard lock(mutex_);
    external_ &= ~events;
}

bool Events::all_external(int events) {
    std::lock_guard lock(mutex_);
    return (events & ~external_) == 0;
}

void Events::report_range(ucm_event_type_t type, ucm_event_t& event, bool before) {
    if (ucm_global_opts.enable_events == 0) return;
    for (const Handler& handler : handlers_) {
        if ((handler.events & type) != 0 && (handler.priority < 0) == before)
            handler.callback(type, &event, handler.arg);
    }
}

void Events::report(ucm_event_type_t type, ucm_event_t& event) {
    std::lock_guard lock(mutex_);
    report_range(type, event, true);
    report_range(type, event, false);
}

void Events::report_mapped(void* address, size_t size) {
    ucm_event_t event{};
    event.vm_mapped = {address, size};
    report(UCM_EVENT_VM_MAPPED, event);
}

void Events::report_unmapped(void* address, size_t size) {
    ucm_event_t event{};
    event.vm_unmapped = {address, size};
    report(UCM_EVENT_VM_UNMAPPED, event);
}

}  // namespace ucm

// SPDX-License-Identifier: BSD-3-Clause
#include "ucm/events.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <vector>

namespace ucm {

namespace {

struct Handler {
    int events;
    int priority;
    ucm_event_callback_t callback;
    void* arg;
};

}  // namespace

struct HandlerTable {
    std::vector<Handler> handlers;  // in falling urgency: rising priority, then order of setting
};

Events& Events::instance() {
    // Never destroyed: memory is unmapped until the very end of a process.
    alignas(Events) static std::byte storage[sizeof(Events)];
    static Events* const events = new (storage) Events;
    return *events;
}

// Before the first event, which may come from within the allocator.
[[gnu::constructor]] static void construct() {
    (void)Events::instance();
}

Events::Events() {
    // A thread that changes the table, or reads it, is not in the child.
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void Events::before_fork() {
    instance().mutex_.lock();
}

void Events::after_fork_in_parent() {
    instance().mutex_.unlock();
}

void Events::after_fork_in_child() {
    for (std::atomic<unsigned>& readers : instance().readers_) readers = 0;
    instance().mutex_.unlock();
}

ucs_status_t Events::set_handler(int events, int priority, ucm_event_callback_t callback,
                                 void* arg) {
    std::lock_guard lock(mutex_);
    try {
        const HandlerTable* const old = table_;
        auto table = old != nullptr ? std::make_unique<HandlerTable>(*old)
                                    : std::make_unique<HandlerTable>();
        auto& handlers = table->handlers;
        const auto later = std::find_if(handlers.begin(), handlers.end(),
                                        [=](const Handler& h) { return h.priority > priority; });
        handlers.insert(later, {events & ~kFlags, priority, callback, arg});
        return replace(table.release());
    } catch (const std::bad_alloc&) {
        return UCS_ERR_NO_MEMORY;
    }
}

void Events::unset_handler(int events, ucm_event_callback_t callback, void* arg) {
    std::lock_guard lock(mutex_);
    const HandlerTable* const old = table_;
    if (old == nullptr) return;
    auto table = std::make_unique<HandlerTable>(*old);
    for (Handler& handler : table->handlers) {
        if (handler.callback == callback && handler.arg == arg) handler.events &= ~events;
    }
    std::erase_if(table->handlers, [](const Handler& handler) { return handler.events == 0; });
    (void)replace(table->handlers.empty() ? nullptr : table.release());
}

ucs_status_t Events::replace(HandlerTable* table) {
    const HandlerTable* const old = table_.exchange(table);
    wait_for_readers();
    delete old;
    return UCS_OK;
}

// A reader that took its number just before a phase ended may enter its counter just after we
// looked: it is among those that the second round waits for.
void Events::wait_for_readers() {
    for (int round = 0; round < 2; ++round) {
        const unsigned phase = phase_.fetch_xor(1);
        while (readers_[phase] != 0) sched_yield();
    }
}

void Events::report_part(ucm_event_type_t type, ucm_event_t& event, bool before, bool after) {
    const int error = errno;  // of the call that is reported
    std::atomic<unsigned>& readers = readers_[phase_];
    ++readers;
    if (const HandlerTable* const table = table_) {
        for (const Handler& handler : table->handlers) {
            if ((handler.events & type) != 0 && (handler.priority < 0 ? before : after))
                handler.callback(type, &event, handler.arg);
        }
    }
    --readers;
    errno = error;
}

void Events::report(ucm_event_type_t type, ucm_event_t& event) {
    report_part(type, event, true, true);
}

void Events::report_mapped(void* address, size_t size) {
    ucm_event_t event{};
    event.vm_mapped = {address, size};
    report(UCM_EVENT_VM_MAPPED, event);
}

void Events::report_unmapped(void* address, size_t size) {
    const uintptr_t watched = watched_;
    if (watched != 0 && watched - reinterpret_cast<uintptr_t>(address) < size) seen_ = true;
    ucm_event_t event{};
    event.vm_unmapped = {address, size};
    report(UCM_EVENT_VM_UNMAPPED, event);
}

void Events::watch(void* address) {
    seen_ = false;
    watched_ = reinterpret_cast<uintptr_t>(address);
}

bool Events::watched() {
    watched_ = 0;
    return seen_;
}

}  // namespace ucm

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/memory_events.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "ucm/api/ucm.h"
#include "ucs/config/table.h"
#include "ucs/config/values.h"

// The library as installed has libucm beside it; what links its parts may do without.
#pragma weak ucm_set_event_handler
#pragma weak ucm_unset_event_handler

namespace ucs::config {

template <>
struct EnumNames<ucm_mmap_hook_mode_t> {
    static constexpr EnumName<ucm_mmap_hook_mode_t> kNames[] = {
        {"none", UCM_MMAP_HOOK_NONE},
        {"reloc", UCM_MMAP_HOOK_RELOC},
        {"bistro", UCM_MMAP_HOOK_BISTRO},
    };
};

}  // namespace ucs::config

namespace ucp {

namespace {

// What libucm reads from the environment by itself: here to be listed.
struct HookConfig {
    ucm_mmap_hook_mode_t mode;
};

constexpr ucs::config::Field<HookConfig> kFields[] = {
    ucs::config::field<&HookConfig::mode>(
        "MEM_MMAP_HOOK_MODE", "bistro",
        "How unmapped memory is noticed. none: only if the program reports it; any other value: by "
        "hooks at the C library's kernel calls."),
};

const ucs::config::Table<HookConfig> kTable("memory events", {""}, kFields);

constexpr int kPriority = 1000;  // after those who have to act before memory goes

void unmapped(ucm_event_type_t, ucm_event_t* event, void* arg) {
    const auto begin = reinterpret_cast<uintptr_t>(event->vm_unmapped.address);
    const size_t size = std::min<size_t>(event->vm_unmapped.size, Invalidations::kEnd - begin);
    if (size > 0) static_cast<Invalidations*>(arg)->push(begin, begin + size);
}

// What a fork does to pinned pages depends on the kernel: on old ones the parent's first write
// moves it to other pages. So all is registered anew, whether it was there before the fork or came
// on another thread meanwhile.
class Forks {
  public:
    static Forks& instance() {
        static Forks* const forks = new Forks;  // fork handlers stay to the end
        return *forks;
    }
    void add(Invalidations& invalidations) {
        std::lock_guard lock(mutex_);
        told_.push_back(&invalidations);
    }
    void remove(Invalidations& invalidations) {
        std::lock_guard lock(mutex_);
        std::erase(told_, &invalidations);
    }

  private:
    Forks() {
        (void)pthread_atfork(
            [] {
                instance().mutex_.lock();
                instance().tell();
            },
            end, end);
    }
    static void end() {
        instance().tell();
        instance().mutex_.unlock();
    }
    void tell() {
        for (Invalidations* invalidations : told_) invalidations->push_all();
    }

    std::mutex mutex_;
    std::vector<Invalidations*> told_;
};

}  // namespace

bool MemoryEvents::report_to(Invalidations& invalidations) {
    if (ucm_set_event_handler == nullptr || ucm_unset_event_handler == nullptr ||
        ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED, kPriority, unmapped, &invalidations) != UCS_OK)
        return false;
    invalidations_ = &invalidations;
    Forks::instance().add(invalidations);
    return true;
}

MemoryEvents::~MemoryEvents() {
    if (invalidations_ == nullptr) return;
    Forks::instance().remove(*invalidations_);
    ucm_unset_event_handler(UCM_EVENT_VM_UNMAPPED, unmapped, invalidations_);
}

}  // namespace ucp

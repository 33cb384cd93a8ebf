// SPDX-License-Identifier: BSD-3-Clause
#include "ucm/functions.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include <cinttypes>
#include <cstdio>

#include "ucm/events.h"
#include "ucm/intercept.h"
#include "ucm/system.h"

namespace {

using ucm::Events;

void* const kFailed = MAP_FAILED;  // also what shmat and sbrk return

// Lines of a file, without memory of the allocator: its lock may be taken by who is here.
class LineReader {
  public:
    explicit LineReader(const char* path)
        : file_(static_cast<int>(ucm::raw_syscall(
              SYS_openat, AT_FDCWD, reinterpret_cast<long>(path), O_RDONLY | O_CLOEXEC))) {}
    ~LineReader() {
        if (file_ >= 0) ucm::raw_syscall(SYS_close, file_);
    }
    LineReader(LineReader&&) = delete;

    // The next line's beginning, as far as it fits.
    bool next(char* line, size_t size) {
        size_t length = 0;
        for (;;) {
            if (position_ == filled_) {
                const long got =
                    file_ < 0 ? -1
                              : ucm::raw_syscall(SYS_read, file_, reinterpret_cast<long>(buffer_),
                                                 sizeof(buffer_));
                if (got <= 0) return false;
                position_ = 0;
                filled_ = static_cast<size_t>(got);
            }
            const char c = buffer_[position_++];
            if (c == '\n') break;
            if (length + 1 < size) line[length++] = c;
        }
        line[length] = 0;
        return true;
    }

  private:
    int file_;
    char buffer_[1024];
    size_t position_ = 0;
    size_t filled_ = 0;
};

// Everything from there upwards.
size_t size_of_all(const void* address) {
    return UINTPTR_MAX - reinterpret_cast<uintptr_t>(address);
}

// Size of what was attached at `address`, which may be several mappings by now; of all behind it
// if that is not to be found: the first of them may be gone, or /proc is not there.
size_t size_attached(const void* address) {
    LineReader maps("/proc/self/maps");
    uintptr_t end_before = 0;
    unsigned long inode_before = 0;
    char line[128];
    while (maps.next(line, sizeof(line))) {
        uintptr_t begin = 0;
        uintptr_t end = 0;
        unsigned long inode = 0;
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %lu", &begin, &end, &inode) !=
            3)
            continue;
        if (begin == reinterpret_cast<uintptr_t>(address) ||
            (end_before != 0 && begin == end_before && inode == inode_before)) {
            end_before = end;
            inode_before = inode;
        } else if (end_before != 0) {
            break;
        }
    }
    return end_before == 0 ? size_of_all(address)
                           : end_before - reinterpret_cast<uintptr_t>(address);
}

bool drops_pages(int advice) {
    // Not in the headers of older systems.
    constexpr int kDontneedLocked = 24;
    constexpr int kGuardInstall = 102;
    return advice == MADV_DONTNEED || advice == MADV_REMOVE || advice == MADV_FREE ||
           advice == kDontneedLocked || advice == kGuardInstall;
}

}  // namespace

void* ucm::mremap_with_events(void* old_address, size_t old_size, size_t new_size, int flags,
                              void* new_address) {
    Events& events = Events::instance();
    events.report_unmapped(old_address, old_size);
    if ((flags & MREMAP_FIXED) != 0) events.report_unmapped(new_address, new_size);
    ucm_event_t event{};
    event.mremap = {kFailed, old_address, old_size, new_size, flags};
    events.around(UCM_EVENT_MREMAP, event, event.mremap, [new_address](auto& it) {
        return system_mremap(it.address, it.old_size, it.new_size, it.flags, new_address);
    });
    if (event.mremap.result != kFailed) events.report_mapped(event.mremap.result, new_size);
    return event.mremap.result;
}

long ucm::brk_with_events(void* address) {
    Events& events = Events::instance();
    auto* const old_top = reinterpret_cast<char*>(raw_syscall(SYS_brk));
    auto* const new_top = static_cast<char*>(address);
    if (address == nullptr) return reinterpret_cast<long>(old_top);
    if (new_top < old_top) events.report_unmapped(new_top, static_cast<size_t>(old_top - new_top));
    long result = -1;
    ucm_event_t event{};
    event.brk = {-1, address};
    events.around(UCM_EVENT_BRK, event, event.brk, [&result](auto& it) {
        result = raw_syscall(SYS_brk, reinterpret_cast<long>(it.addr));
        return reinterpret_cast<void*>(result) == it.addr ? 0 : -1;
    });
    if (result == -1) result = raw_syscall(SYS_brk);
    if (new_top > old_top && event.brk.result == 0)
        events.report_mapped(old_top, static_cast<size_t>(new_top - old_top));
    return result;
}

extern "C" {

namespace {
ucm_global_config_t default_options = {
    .log_level = UCS_LOG_LEVEL_WARN,
    .enable_events = 1,
    .mmap_hook_mode = UCM_MMAP_HOOK_BISTRO,
    .enable_malloc_hooks = 0,
    .enable_malloc_reloc = 0,
    .cuda_hook_modes = 0,
    .enable_dynamic_mmap_thresh = 0,
    .alloc_alignment = 16,
    .dlopen_process_rpath = 0,
    .module_unload_prevent_mode = UCM_UNLOAD_PREVENT_MODE_NONE,
};
}  // namespace

ucm_global_config_t* swiftlane_ucm_options = &default_options;

void swiftlane_ucm_set_global_opts(const ucm_global_config_t* ucm_opts) {
    *swiftlane_ucm_options = *ucm_opts;
}

ucs_status_t swiftlane_ucm_set_event_handler(int events, int priority, ucm_event_callback_t cb,
                                             void* arg) {
    if (swiftlane_ucm_options->enable_events == 0) return UCS_ERR_UNSUPPORTED;
    if ((events & UCM_EVENT_FLAG_NO_INSTALL) == 0 && swiftlane_ucm_test_events(events) != UCS_OK)
        return UCS_ERR_UNSUPPORTED;
    return Events::instance().set_handler(events, priority, cb, arg);
}

void swiftlane_ucm_unset_event_handler(int events, ucm_event_callback_t cb, void* arg) {
    Events::instance().unset_handler(events, cb, arg);
}

void swiftlane_ucm_set_external_event(int events) {
    Events::instance().set_external(events);
}

void swiftlane_ucm_unset_external_event(int events) {
    Events::instance().unset_external(events);
}

ucs_status_t swiftlane_ucm_test_events(int events) {
    const int needed = events & ~(Events::kFlags | Events::instance().external());
    if (needed == 0) return UCS_OK;
    return ucm::is_reported(needed) ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

ucs_status_t swiftlane_ucm_test_external_events(int events) {
    return (events & ~Events::instance().external()) == 0 ? UCS_OK : UCS_ERR_UNSUPPORTED;
}

void* swiftlane_ucm_mmap(void* addr, size_t length, int prot, int flags, int fd, off_t offset) {
    Events& events = Events::instance();
    if ((flags & MAP_FIXED) != 0) events.report_unmapped(addr, length);
    ucm_event_t event{};
    event.mmap = {kFailed, addr, length, prot, flags, fd, offset};
    events.around(UCM_EVENT_MMAP, event, event.mmap, [](auto& it) {
        return swiftlane_ucm_orig_mmap(it.address, it.size, it.prot, it.flags, it.fd, it.offset);
    });
    if (event.mmap.result != kFailed) events.report_mapped(event.mmap.result, length);
    return event.mmap.result;
}

int swiftlane_ucm_munmap(void* addr, size_t length) {
    Events& events = Events::instance();
    events.report_unmapped(addr, length);
    ucm_event_t event{};
    event.munmap = {-1, addr, length};
    events.around(UCM_EVENT_MUNMAP, event, event.munmap,
                  [](auto& it) { return swiftlane_ucm_orig_munmap(it.address, it.size); });
    return event.munmap.result;
}

void* swiftlane_ucm_mremap(void* old_address, size_t old_size, size_t new_size, int flags) {
    return ucm::mremap_with_events(old_address, old_size, new_size, flags, nullptr);
}

void* swiftlane_ucm_shmat(int shmid, const void* shmaddr, int shmflg) {
    Events& events = Events::instance();
    struct shmid_ds segment {};
    const size_t size = shmctl(shmid, IPC_STAT, &segment) == 0 ? segment.shm_segsz : 0;
    if ((shmflg & SHM_REMAP) != 0)
        events.report_unmapped(const_cast<void*>(shmaddr), size != 0 ? size : size_of_all(shmaddr));
    ucm_event_t event{};
    event.shmat = {kFailed, shmid, shmaddr, shmflg};
    events.around(UCM_EVENT_SHMAT, event, event.shmat, [](auto& it) {
        return swiftlane_ucm_orig_shmat(it.shmid, it.shmaddr, it.shmflg);
    });
    if (event.shmat.result != kFailed) events.report_mapped(event.shmat.result, size);
    return event.shmat.result;
}

int swiftlane_ucm_shmdt(const void* shmaddr) {
    Events& events = Events::instance();
    events.report_unmapped(const_cast<void*>(shmaddr), size_attached(shmaddr));
    ucm_event_t event{};
    event.shmdt = {-1, shmaddr};
    events.around(UCM_EVENT_SHMDT, event, event.shmdt,
                  [](auto& it) { return swiftlane_ucm_orig_shmdt(it.shmaddr); });
    return event.shmdt.result;
}

void* swiftlane_ucm_sbrk(intptr_t increment) {
    Events& events = Events::instance();
    if (increment < 0) {
        char* const top = static_cast<char*>(swiftlane_ucm_orig_sbrk(0));
        events.report_unmapped(top + increment, static_cast<size_t>(-increment));
    }
    ucm_event_t event{};
    event.sbrk = {kFailed, increment};
    events.around(UCM_EVENT_SBRK, event, event.sbrk,
                  [](auto& it) { return swiftlane_ucm_orig_sbrk(it.increment); });
    if (increment > 0 && event.sbrk.result != kFailed)
        events.report_mapped(event.sbrk.result, static_cast<size_t>(increment));
    return event.sbrk.result;
}

int swiftlane_ucm_brk(void* addr) {
    Events& events = Events::instance();
    char* const old_top = static_cast<char*>(swiftlane_ucm_orig_sbrk(0));
    char* const new_top = static_cast<char*>(addr);
    if (new_top < old_top) events.report_unmapped(new_top, static_cast<size_t>(old_top - new_top));
    ucm_event_t event{};
    event.brk = {-1, addr};
    events.around(UCM_EVENT_BRK, event, event.brk,
                  [](auto& it) { return swiftlane_ucm_orig_brk(it.addr); });
    if (new_top > old_top && event.brk.result == 0)
        events.report_mapped(old_top, static_cast<size_t>(new_top - old_top));
    return event.brk.result;
}

int swiftlane_ucm_madvise(void* addr, size_t length, int advice) {
    Events& events = Events::instance();
    // The pages go, the addresses stay: what was pinned there is no longer what is there.
    if (drops_pages(advice)) events.report_unmapped(addr, length);
    ucm_event_t event{};
    event.madvise = {-1, addr, length, advice};
    events.around(UCM_EVENT_MADVISE, event, event.madvise, [](auto& it) {
        return swiftlane_ucm_orig_madvise(it.addr, it.length, it.advice);
    });
    return event.madvise.result;
}

void swiftlane_ucm_vm_mmap(void* addr, size_t length) {
    Events::instance().report_mapped(addr, length);
}

void swiftlane_ucm_vm_munmap(void* addr, size_t length) {
    Events::instance().report_unmapped(addr, length);
}

}  // extern "C"

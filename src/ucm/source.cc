// SPDX-License-Identifier: BSD-3-Clause

#include <dlfcn.h>
#include <pthread.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "ucm/events.h"
#include "ucm/functions.h"
#include "ucm/intercept.h"
#include "ucm/system.h"

namespace ucm {

namespace {

constexpr int kOfHooks = UCM_EVENT_MMAP | UCM_EVENT_MUNMAP | UCM_EVENT_MREMAP | UCM_EVENT_SHMAT |
                         UCM_EVENT_SHMDT | UCM_EVENT_MADVISE | UCM_EVENT_BRK | UCM_EVENT_VM_MAPPED |
                         UCM_EVENT_VM_UNMAPPED;

bool says(const char* variable, std::initializer_list<const char*> values) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) return false;
    for (const char* value : values) {
        if (strcasecmp(text, value) == 0) return true;
    }
    return false;
}

bool is_wanted() {
    return swiftlane_ucm_options->enable_events != 0 &&
           swiftlane_ucm_options->mmap_hook_mode != UCM_MMAP_HOOK_NONE &&
           !says("UCX_MEM_EVENTS", {"n", "no", "off", "0", "false"}) &&
           !says("UCX_MEM_MMAP_HOOK_MODE", {"none"});
}

// Their allocators unmap with kernel calls of their own.
bool has_sanitizer() {
    for (const char* name : {"__asan_init", "__hwasan_init", "__msan_init", "__tsan_init"}) {
        if (dlsym(RTLD_DEFAULT, name) != nullptr) return true;
    }
    return false;
}

// Pages to try calls on; mapped unseen.
class Pages {
  public:
    explicit Pages(size_t count)
        : size_(count * page()),
          start_(swiftlane_ucm_orig_mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
    ~Pages() {
        for (size_t index = 0; is_there() && index < size_ / page(); ++index) {
            if ((lost_ >> index & 1) == 0) swiftlane_ucm_orig_munmap(at(index), page());
        }
    }
    Pages(Pages&&) = delete;

    static size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
    bool is_there() const { return start_ != MAP_FAILED; }
    char* at(size_t index) const { return static_cast<char*>(start_) + index * page(); }

    // A call takes the page away: from then on another thread's memory may lie there.
    char* lose(size_t index) {
        lost_ |= 1u << index;
        return at(index);
    }

  private:
    size_t size_;
    void* start_;
    uint32_t lost_ = 0;
};

// Is the unmapping of `address` reported when `call` is made? A call that fails proves nothing.
template <typename Call>
bool sees(void* address, Call&& call) {
    Events& events = Events::instance();
    events.watch(address);
    const bool was_made = call();
    return events.watched() || !was_made;
}

// To move the break and move it back would tear it from under a thread that allocates, and a shared
// segment outlives a process that is killed just then. So brk is only looked at, and the others are
// called with what does not exist. Where somebody else has replaced the functions, as Open MPI
// does, he asks the kernel by syscall(): brk, too, if the others come to us that way.
bool sees_break_and_segments(void* no_segment) {
    const int before = errno;
    // What goes is reported before each is tried: that they fail changes nothing.
    const bool arrive =
        sees(no_segment, [=] { return shmat(-1, no_segment, SHM_REMAP) == MAP_FAILED; }) &&
        sees(no_segment, [=] { return shmdt(no_segment) == -1; });
    errno = before;
    return arrive && (is_patched(reinterpret_cast<const void*>(&brk)) ||
                      !is_patched(reinterpret_cast<const void*>(&shmdt)));
}

// An allocator that unmaps past the C library would leave everything stale.
bool sees_allocator() {
    constexpr size_t kLarge = size_t{64} << 20;  // more than any threshold of the C library's
    // Out of the optimizer's sight, which knows what malloc and free amount to.
    void* (*volatile allocate)(size_t) = std::malloc;
    void (*volatile give_back)(void*) = std::free;
    void* const block = allocate(kLarge);
    if (block == nullptr) return true;
    const size_t page = Pages::page();
    auto* const inside =
        reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(block) + kLarge / 2) & ~(page - 1));
    return sees(inside, [&] {
        give_back(block);
        unsigned char resident;
        return mincore(inside, page, &resident) != 0;
    });
}

// Each kind of call, made as any program makes it.
bool sees_all() {
    Pages pages(10);
    if (!pages.is_there()) return false;
    const size_t size = Pages::page();
    return sees(pages.at(1),
                [&] {
                    return mmap(pages.at(1), size, PROT_READ,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
                }) &&
           sees(pages.at(2), [&] { return madvise(pages.at(2), size, MADV_DONTNEED) == 0; }) &&
           sees(pages.at(3),
                [&] {
                    return mremap(pages.lose(3), size, size, MREMAP_MAYMOVE | MREMAP_FIXED,
                                  pages.at(4)) != MAP_FAILED;
                }) &&
           sees(pages.at(5),
                [&] {
                    return mremap(pages.lose(6), size, size, MREMAP_MAYMOVE | MREMAP_FIXED,
                                  pages.at(5)) != MAP_FAILED;
                }) &&
           sees(pages.at(7), [&] { return munmap(pages.lose(7), size) == 0; }) &&
           sees(pages.at(8),
                [&] { return syscall(SYS_madvise, pages.at(8), size, MADV_DONTNEED) == 0; }) &&
           sees(pages.at(9), [&] { return syscall(SYS_munmap, pages.lose(9), size) == 0; }) &&
           sees_break_and_segments(pages.at(1)) && sees_allocator();
}

std::mutex installing;  // of whoever installs hooks or tries them out

// A child in which the code was half replaced, or the mutex taken, would wait for ever. Handlers
// that are registered later run earlier: this mutex is taken before that of the events.
[[gnu::constructor]] void keep_forks_away() {
    (void)Events::instance();
    (void)pthread_atfork([] { installing.lock(); }, [] { installing.unlock(); },
                         [] { installing.unlock(); });
}

}  // namespace

bool is_reported(int events) {
    if ((events & ~kOfHooks) != 0) return false;
    // Before the lock: they take the dynamic linker's, whose owner may be waiting for ours.
    if (!is_wanted() || has_sanitizer()) return false;
    std::lock_guard lock(installing);
    static const bool is_installed = patch_system_calls();
    return is_installed && sees_all();
}

}  // namespace ucm

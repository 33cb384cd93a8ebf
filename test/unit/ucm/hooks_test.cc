// SPDX-License-Identifier: BSD-3-Clause
// Whoever gives memory back, by whatever way: it is reported before it goes.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "ucm/api/ucm.h"

namespace {

constexpr size_t kPage = 4096;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kHasSanitizer = true;
#else
constexpr bool kHasSanitizer = false;
#endif

// Was the page at an address reported as going? Handlers must not allocate: it keeps no list.
class Watch {
  public:
    Watch() { EXPECT_EQ(ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED, 0, callback, this), UCS_OK); }
    ~Watch() { ucm_unset_event_handler(UCM_EVENT_VM_UNMAPPED, callback, this); }

    void on(const void* address) {
        count_ = 0;
        address_ = reinterpret_cast<uintptr_t>(address);
    }
    bool seen() const { return count_ > 0; }
    int count() const { return count_; }

  private:
    static void callback(ucm_event_type_t, ucm_event_t* event, void* arg) {
        auto& self = *static_cast<Watch*>(arg);
        const auto start = reinterpret_cast<uintptr_t>(event->vm_unmapped.address);
        const uintptr_t address = self.address_;
        if (address - start < event->vm_unmapped.size) ++self.count_;
    }

    std::atomic<uintptr_t> address_{0};
    std::atomic<int> count_{0};
};

class MemoryHooks : public testing::Test {
  protected:
    void SetUp() override {
        if (kHasSanitizer) {
            EXPECT_EQ(ucm_test_events(UCM_EVENT_VM_UNMAPPED), UCS_ERR_UNSUPPORTED);
            GTEST_SKIP() << "sanitizers unmap memory unseen, and the library says so";
        }
        ASSERT_EQ(ucm_test_events(UCM_EVENT_VM_MAPPED | UCM_EVENT_VM_UNMAPPED), UCS_OK);
        pages_ = map(8 * kPage);
    }
    void TearDown() override {
        if (pages_ != nullptr) munmap(pages_, 8 * kPage);
    }
    static char* map(size_t size) {
        void* const mapped =
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(mapped, MAP_FAILED);
        return static_cast<char*>(mapped);
    }
    char* page(size_t index) const { return pages_ + index * kPage; }

    char* pages_ = nullptr;
};

TEST_F(MemoryHooks, Munmap) {
    Watch watch;
    watch.on(page(1));
    EXPECT_EQ(munmap(page(2), kPage), 0);
    EXPECT_FALSE(watch.seen());
    EXPECT_EQ(munmap(page(1), kPage), 0);
    EXPECT_EQ(watch.count(), 1);
    EXPECT_EQ(munmap(page(1) + 1, kPage), -1);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(MemoryHooks, MmapOverIt) {
    Watch watch;
    watch.on(page(1));
    EXPECT_EQ(mmap(page(0), 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              page(0));
    EXPECT_TRUE(watch.seen());
    EXPECT_EQ(mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, -1, 0), MAP_FAILED);
    EXPECT_EQ(errno, EBADF);
}

TEST_F(MemoryHooks, MremapFromItAndOntoIt) {
    Watch watch;
    *page(1) = 7;
    watch.on(page(1));
    EXPECT_EQ(mremap(page(1), kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, page(4)), page(4));
    EXPECT_TRUE(watch.seen());
    EXPECT_EQ(*page(4), 7);
    watch.on(page(4));
    EXPECT_EQ(mremap(page(5), kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, page(4)), page(4));
    EXPECT_TRUE(watch.seen());
}

TEST_F(MemoryHooks, MadviseThatDropsPages) {
    Watch watch;
    for (const int advice : {MADV_DONTNEED, MADV_FREE, MADV_REMOVE}) {
        watch.on(page(1));
        (void)madvise(page(1), kPage, advice);
        EXPECT_TRUE(watch.seen()) << advice;
    }
    watch.on(page(1));
    EXPECT_EQ(madvise(page(1), kPage, MADV_WILLNEED), 0);
    EXPECT_FALSE(watch.seen());
}

TEST_F(MemoryHooks, TheBreak) {
    Watch watch;
    void* const old_top = sbrk(2 * kPage);
    ASSERT_NE(old_top, reinterpret_cast<void*>(-1));
    watch.on(static_cast<char*>(old_top) + kPage);
    EXPECT_NE(sbrk(-2 * static_cast<intptr_t>(kPage)), reinterpret_cast<void*>(-1));
    EXPECT_TRUE(watch.seen());
    EXPECT_EQ(sbrk(0), old_top);
    ASSERT_EQ(brk(static_cast<char*>(old_top) + kPage), 0);
    watch.on(old_top);
    EXPECT_EQ(brk(old_top), 0);
    EXPECT_TRUE(watch.seen());
}

TEST_F(MemoryHooks, SharedSegments) {
    const int id = shmget(IPC_PRIVATE, 3 * kPage, IPC_CREAT | 0600);
    ASSERT_NE(id, -1);
    auto* const segment = static_cast<char*>(shmat(id, nullptr, 0));
    shmctl(id, IPC_RMID, nullptr);
    ASSERT_NE(segment, reinterpret_cast<char*>(-1));
    // Several mappings of one attachment.
    EXPECT_EQ(mprotect(segment + kPage, kPage, PROT_READ), 0);
    Watch watch;
    watch.on(segment + 2 * kPage);
    EXPECT_EQ(shmdt(segment), 0);
    EXPECT_TRUE(watch.seen());
}

TEST_F(MemoryHooks, FreeOfALargeBlock) {
    Watch watch;
    void* (*volatile allocate)(size_t) = std::malloc;
    void (*volatile give_back)(void*) = std::free;
    void* const block = allocate(64 << 20);
    ASSERT_NE(block, nullptr);
    watch.on(block);
    give_back(block);
    EXPECT_TRUE(watch.seen());
}

TEST_F(MemoryHooks, KernelCallsByNumber) {
    Watch watch;
    watch.on(page(1));
    EXPECT_EQ(syscall(SYS_munmap, page(1), kPage), 0);
    EXPECT_TRUE(watch.seen());
    EXPECT_EQ(syscall(SYS_mmap, page(1), kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                      -1, 0),
              reinterpret_cast<long>(page(1)));
    EXPECT_EQ(syscall(SYS_getpid), getpid());
    const long child = syscall(SYS_fork);
    if (child == 0) _exit(3);
    int status = 0;
    EXPECT_EQ(waitpid(static_cast<pid_t>(child), &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 3);
}

// The dynamic linker unmaps with its own copy of munmap.
TEST_F(MemoryHooks, AnUnloadedLibrary) {
    void* const library = dlopen("libanl.so.1", RTLD_NOW);
    if (library == nullptr) GTEST_SKIP() << dlerror();
    struct link_map_head {
        void* address;
    };
    auto* const base = static_cast<link_map_head*>(library)->address;
    Watch watch;
    watch.on(base);
    ASSERT_EQ(dlclose(library), 0);
    unsigned char resident;
    if (mincore(base, kPage, &resident) == 0) GTEST_SKIP() << "it stays loaded";
    EXPECT_TRUE(watch.seen());
}

TEST_F(MemoryHooks, AForkedChildGoesOn) {
    // Threads that report just then must not hold up the child.
    std::atomic<bool> stop{false};
    std::thread other([&stop] {
        while (!stop) {
            ucm_munmap(ucm_mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                       kPage);
        }
    });
    for (int i = 0; i < 20; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            Watch watch;
            watch.on(page(1));
            munmap(page(1), kPage);
            _exit(watch.seen() ? 0 : 1);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    stop = true;
    other.join();
    EXPECT_EQ(WEXITSTATUS(system("exit 5")), 5);
}

// The mutex of whoever tries the hooks out is free in the child.
TEST_F(MemoryHooks, AForkedChildCanTryThemOut) {
    std::atomic<bool> stop{false};
    std::thread other([&stop] {
        while (!stop) EXPECT_EQ(ucm_test_events(UCM_EVENT_VM_UNMAPPED), UCS_OK);
    });
    for (int i = 0; i < 20; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(ucm_test_events(UCM_EVENT_VM_UNMAPPED) == UCS_OK ? 0 : 1);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    stop = true;
    other.join();
}

#if defined(__x86_64__)
// A kernel call leaves vector registers alone: so must what stands in its place.
TEST_F(MemoryHooks, VectorRegistersStay) {
    const auto clobber = [](ucm_event_type_t, ucm_event_t*, void*) {
        asm volatile("pxor %%xmm7, %%xmm7" : : : "xmm7");
    };
    ASSERT_EQ(ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED, 0, clobber, nullptr), UCS_OK);
    alignas(16) const std::array<uint64_t, 2> before{0x0123456789abcdef, 0xfedcba9876543210};
    alignas(16) std::array<uint64_t, 2> after{};
    long result = reinterpret_cast<long>(&madvise);
    // The stack below the red zone is the function's.
    asm volatile(
        "movdqa %[before], %%xmm7\n\t"
        "movq %%rsp, %%rbx\n\t"
        "subq $256, %%rsp\n\t"
        "andq $-16, %%rsp\n\t"
        "call *%%rax\n\t"
        "movq %%rbx, %%rsp\n\t"
        "movdqu %%xmm7, (%[after])"
        : "+a"(result)
        : [before] "m"(before), [after] "r"(after.data()), "D"(page(1)), "S"(kPage),
          "d"(MADV_DONTNEED)
        : "rbx", "rcx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
          "xmm6", "xmm7", "memory", "cc");
    ucm_unset_event_handler(UCM_EVENT_VM_UNMAPPED, clobber, nullptr);
    EXPECT_EQ(result, 0);
    EXPECT_EQ(after, before);
}
#endif

TEST_F(MemoryHooks, TheVariableTurnsThemOff) {
    for (const auto& [variable, value] :
         {std::pair{"UCX_MEM_EVENTS", "n"}, std::pair{"UCX_MEM_MMAP_HOOK_MODE", "none"}}) {
        setenv(variable, value, 1);
        EXPECT_EQ(ucm_test_events(UCM_EVENT_VM_UNMAPPED), UCS_ERR_UNSUPPORTED);
        unsetenv(variable);
    }
    EXPECT_EQ(ucm_test_events(UCM_EVENT_VM_UNMAPPED), UCS_OK);
    EXPECT_EQ(ucm_test_events(UCM_EVENT_MEM_TYPE_FREE), UCS_ERR_UNSUPPORTED);
}

}  // namespace

// SPDX-License-Identifier: BSD-3-Clause
// The system's calls, past whatever hooks there are in the C library.
#include "ucm/system.h"

#include <dlfcn.h>

#include "ucm/functions.h"

// The C library's idea of the break. It must follow when the break is moved past the library.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
extern "C" void* __curbrk __attribute__((weak));

namespace {

using ucm::raw_syscall;
using ucm::with_errno;

template <typename T>
long word(T* pointer) {
    return reinterpret_cast<long>(pointer);
}

void* pointer(long result) {
    return reinterpret_cast<void*>(with_errno(result));
}

}  // namespace

void* ucm::system_mremap(void* old_address, size_t old_size, size_t new_size, int flags,
                         void* new_address) {
    return pointer(raw_syscall(SYS_mremap, word(old_address), static_cast<long>(old_size),
                               static_cast<long>(new_size), flags, word(new_address)));
}

extern "C" {

void* swiftlane_ucm_orig_mmap(void* addr, size_t length, int prot, int flags, int fd,
                              off_t offset) {
    return pointer(
        raw_syscall(SYS_mmap, word(addr), static_cast<long>(length), prot, flags, fd, offset));
}

int swiftlane_ucm_orig_munmap(void* addr, size_t length) {
    return static_cast<int>(
        with_errno(raw_syscall(SYS_munmap, word(addr), static_cast<long>(length))));
}

void* swiftlane_ucm_orig_mremap(void* old_address, size_t old_size, size_t new_size, int flags) {
    return ucm::system_mremap(old_address, old_size, new_size, flags, nullptr);
}

void* swiftlane_ucm_orig_shmat(int shmid, const void* shmaddr, int shmflg) {
    return pointer(raw_syscall(SYS_shmat, shmid, word(shmaddr), shmflg));
}

int swiftlane_ucm_orig_shmdt(const void* shmaddr) {
    return static_cast<int>(with_errno(raw_syscall(SYS_shmdt, word(shmaddr))));
}

int swiftlane_ucm_orig_brk(void* addr) {
    if (&__curbrk == nullptr) return brk(addr);
    __curbrk = reinterpret_cast<void*>(raw_syscall(SYS_brk, word(addr)));
    if (__curbrk >= addr) return 0;
    errno = ENOMEM;
    return -1;
}

void* swiftlane_ucm_orig_sbrk(intptr_t increment) {
    if (&__curbrk == nullptr || increment == 0) return sbrk(increment);
    if (__curbrk == nullptr && swiftlane_ucm_orig_brk(nullptr) != 0)
        return reinterpret_cast<void*>(-1);
    char* const old_top = static_cast<char*>(__curbrk);
    return swiftlane_ucm_orig_brk(old_top + increment) == 0 ? old_top : reinterpret_cast<void*>(-1);
}

int swiftlane_ucm_orig_madvise(void* addr, size_t length, int advice) {
    return static_cast<int>(
        with_errno(raw_syscall(SYS_madvise, word(addr), static_cast<long>(length), advice)));
}

void* swiftlane_ucm_dlopen(const char* filename, int flag) {
    return dlopen(filename, flag);
}

}  // extern "C"

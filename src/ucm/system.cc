// SPDX-License-Identifier: BSD-3-Clause
// The system's calls, past whatever hooks others put into the C library.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ucm/api/ucm.h"

namespace {

void* pointer(long result) {
    return reinterpret_cast<void*>(result);
}

}  // namespace

extern "C" {

void* ucm_orig_mmap(void* addr, size_t length, int prot, int flags, int fd, off_t offset) {
    return pointer(syscall(SYS_mmap, addr, length, prot, flags, fd, offset));
}

int ucm_orig_munmap(void* addr, size_t length) {
    return static_cast<int>(syscall(SYS_munmap, addr, length));
}

void* ucm_orig_mremap(void* old_address, size_t old_size, size_t new_size, int flags) {
    return pointer(syscall(SYS_mremap, old_address, old_size, new_size, flags, nullptr));
}

void* ucm_orig_shmat(int shmid, const void* shmaddr, int shmflg) {
    return pointer(syscall(SYS_shmat, shmid, shmaddr, shmflg));
}

int ucm_orig_shmdt(const void* shmaddr) {
    return static_cast<int>(syscall(SYS_shmdt, shmaddr));
}

// The C library keeps the break in a variable of its own: these two go through it.
void* ucm_orig_sbrk(intptr_t increment) {
    return sbrk(increment);
}

int ucm_orig_brk(void* addr) {
    return brk(addr);
}

int ucm_orig_madvise(void* addr, size_t length, int advice) {
    return static_cast<int>(syscall(SYS_madvise, addr, length, advice));
}

void* ucm_dlopen(const char* filename, int flag) {
    return dlopen(filename, flag);
}

}  // extern "C"

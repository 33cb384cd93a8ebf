// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace ucm {

// A call of the kernel that no hook sees: the instruction itself where we know it.
// Returns -errno on failure and leaves errno alone.
#if defined(__x86_64__)
inline long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                        long f = 0) {
    register long r10 asm("r10") = d;
    register long r8 asm("r8") = e;
    register long r9 asm("r9") = f;
    long result;
    asm volatile("syscall"
                 : "=a"(result)
                 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                 : "rcx", "r11", "memory");
    return result;
}
#else
inline long raw_syscall(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0,
                        long f = 0) {
    const int before = errno;
    const long result = syscall(number, a, b, c, d, e, f);
    if (result != -1) return result;
    const int error = errno;
    errno = before;
    return -error;
}
#endif

inline bool is_error(long result) {
    return static_cast<unsigned long>(result) > -4096ul;
}

// As the C library returns it: -1 and errno.
inline long with_errno(long result) {
    if (!is_error(result)) return result;
    errno = static_cast<int>(-result);
    return -1;
}

// As above; the new address is mremap's fifth argument.
void* system_mremap(void* old_address, size_t old_size, size_t new_size, int flags,
                    void* new_address);
void* mremap_with_events(void* old_address, size_t old_size, size_t new_size, int flags,
                         void* new_address);

// The kernel's call, with events: the break as it is then. The C library notes it for itself.
long brk_with_events(void* address);

}  // namespace ucm

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__x86_64__)

// Sites: where the C library asks the kernel for calls that change what is mapped, as instructions
// that can be replaced. A site is `mov $number, %eax` or, in syscall(), `mov 8(%rsp), %r9`, with
// `syscall` behind it.
namespace ucm {

constexpr size_t kJump = 5;     // bytes of a jump, and of the first instruction of a site
constexpr size_t kSyscall = 2;  // bytes of `syscall`

// Calls that are looked for, and that a site of syscall() hands on.
constexpr std::array<uint32_t, 8> kCalls{SYS_mmap,    SYS_munmap, SYS_brk,   SYS_mremap,
                                         SYS_madvise, SYS_shmat,  SYS_shmdt, SYS_remap_file_pages};
static_assert(SYS_remap_file_pages < 256);

// Code in memory.
struct Text {
    uint8_t* begin;
    size_t size;
};

// Of the C library and the dynamic linker of this process.
std::vector<Text> texts_of_c_library();

std::vector<uint8_t*> find_sites(const Text& text);

// Is it certain that an instruction begins at the site, and can its first two bytes be stored in
// one piece, as readers see them only within a block? Three bytes before it are looked at.
bool is_replaceable(const uint8_t* site);

}  // namespace ucm

#endif

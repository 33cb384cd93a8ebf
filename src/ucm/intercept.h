// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ucm {

// The registers of a kernel call, as the stubs' entry leaves them on the stack.
struct KernelCall {
    long number;  // and then the result, or -errno
    long arguments[6];
};

// Replaces the kernel calls of the C library that change mappings by calls of ours, where they are
// made: `mov $number, %eax; syscall`, wherever it stands in the text of the C library and the
// dynamic linker, becomes a jump to a stub that goes on behind it. So whoever calls the library's
// functions is seen, the library itself included (free() of a large block, an exiting thread's
// stack, dlclose()), and so is who replaced them by functions of its own that call syscall().
//
// One instruction is replaced by one of its length, so that no thread can be within it; a kernel
// call in any other form is left alone. Whether that was enough is for a trial to find out. All
// that are found are replaced, or none: not if one may be part of another instruction or cannot be
// stored in one piece, nor if there is no way to make other threads see the new code.
//
// x86-64 only. Once in a process; it stays. @return whether all were replaced
bool patch_system_calls();

// Does the function begin with a jump into a stub of ours?
bool is_patched(const void* function);

// Does the library see each of these events by itself, whoever causes them?
//
// Hooks are installed at the first question, unless UCX_MEM_EVENTS=n, UCX_MEM_MMAP_HOOK_MODE=none
// or the like in ucm_global_opts say not to. Then, at each question, it is tried out: each call is
// made as a program makes it, and must have been seen. So the answer holds also where others
// replaced the C library's functions, before or after.
bool is_reported(int events);

}  // namespace ucm

// Makes a kernel call of the C library, with events around it.
extern "C" [[gnu::visibility("hidden")]] void ucm_dispatch(ucm::KernelCall* call);

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ucm {

/**
 * Replaces the kernel calls of the C library that change mappings by calls of ours, where they are
 * made: `mov $number, %eax; syscall`, wherever it stands in the text of the C library and the
 * dynamic linker, becomes a jump to a stub that goes on behind it. So whoever calls the library's
 * functions is seen, the library itself included (free() of a large block, an exiting thread's
 * stack, dlclose()), and so is who replaced them by functions of its own that call syscall().
 *
 * One instruction is replaced by one of its length, so that no thread can be within it; a kernel
 * call in any other form is left alone. Whether that was enough is for a trial to find out. All
 * that are found are replaced, or none: not if one may be part of another instruction or cannot be
 * stored in one piece, nor if there is no way to make other threads see the new code.
 *
 * x86-64 only. Once in a process; it stays. @return whether all were replaced
 */
bool patch_system_calls();

// Does the function begin with a jump into a stub of ours?
bool is_patched(const void* function);

}  // namespace ucm

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace ucm {

/** The registers of a kernel call, as the stubs' entry leaves them on the stack. */
struct KernelCall {
    long number;  //!< and then the result, or -errno
    long arguments[6];
};

}  // namespace ucm

// Makes a kernel call of the C library, with events around it.
extern "C" [[gnu::visibility("hidden")]] void ucm_dispatch(ucm::KernelCall* call);

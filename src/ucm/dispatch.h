// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace ucm {

/** The registers of a kernel call, as the stubs' entry leaves them on the stack. */
struct KernelCall {
    long number;  //!< and then the result, or -errno
    long arguments[6];
};

/** Which of kCalls have come by a stub since they were forgotten, as bits: 32 tell them apart. */
class CallsSeen {
  public:
    static void add(long number) {
        if (!has(number)) seen_.fetch_or(bit(number));
    }
    static void forget(long number) { seen_.fetch_and(~bit(number)); }
    static bool has(long number) {
        return (seen_.load(std::memory_order_relaxed) & bit(number)) != 0;
    }

  private:
    static uint32_t bit(long number) { return uint32_t{1} << (number % 32); }
    static inline std::atomic<uint32_t> seen_{0};
};

}  // namespace ucm

// Makes a kernel call of the C library, with events around it.
extern "C" [[gnu::visibility("hidden")]] void ucm_dispatch(ucm::KernelCall* call);

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "uct/api/types.h"

namespace uct {

// The CPU's own atomic on a naturally aligned operand of 4 or 8 bytes. @return the old value
template <typename T>
[[gnu::always_inline]] inline T apply_atomic(AtomicOp op, T* target, T operand, T compare) {
    std::atomic_ref<T> reference(*target);
    switch (op) {
        case AtomicOp::kAdd:
            return reference.fetch_add(operand);
        case AtomicOp::kAnd:
            return reference.fetch_and(operand);
        case AtomicOp::kOr:
            return reference.fetch_or(operand);
        case AtomicOp::kXor:
            return reference.fetch_xor(operand);
        case AtomicOp::kSwap:
            return reference.exchange(operand);
        case AtomicOp::kCompareSwap:
            reference.compare_exchange_strong(compare, operand);
            break;
    }
    return compare;
}

inline uint64_t apply_atomic(AtomicOp op, unsigned size, void* target, uint64_t operand,
                             uint64_t compare) {
    if (size == sizeof(uint64_t)) {
        return apply_atomic(op, static_cast<uint64_t*>(target), operand, compare);
    }
    return apply_atomic(op, static_cast<uint32_t*>(target), static_cast<uint32_t>(operand),
                        static_cast<uint32_t>(compare));
}

}  // namespace uct

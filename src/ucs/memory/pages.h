// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "ucs/type/bits.h"

namespace ucs {

inline size_t page_size() {
    static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

struct FreeDeleter {
    void operator()(void* memory) const { std::free(memory); }
};

using HeapMemory = std::unique_ptr<void, FreeDeleter>;

// Uninitialised memory; `alignment` is a power of two and at least sizeof(void*). Null if there is
// none to be had.
inline HeapMemory allocate_aligned(size_t bytes, size_t alignment) {
    const size_t rounded = align_up(bytes, alignment);
    return HeapMemory(rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded));
}

}  // namespace ucs

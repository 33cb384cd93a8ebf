// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

namespace ucs {

size_t page_size();

struct FreeDeleter {
    void operator()(void* memory) const;
};

using HeapMemory = std::unique_ptr<void, FreeDeleter>;

// Uninitialised memory; `alignment` is a power of two and at least sizeof(void*). Null if there is
// none to be had.
HeapMemory allocate_aligned(size_t bytes, size_t alignment);

}  // namespace ucs

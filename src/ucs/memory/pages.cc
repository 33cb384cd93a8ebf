// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/pages.h"

#include <unistd.h>

#include <cstdlib>

#include "ucs/type/bits.h"

namespace ucs {

size_t page_size() {
    static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return size;
}

void FreeDeleter::operator()(void* memory) const {
    std::free(memory);
}

HeapMemory allocate_aligned(size_t bytes, size_t alignment) {
    const size_t rounded = align_up(bytes, alignment);
    if (rounded < bytes) return nullptr;
    return HeapMemory(std::aligned_alloc(alignment, rounded));
}

}  // namespace ucs

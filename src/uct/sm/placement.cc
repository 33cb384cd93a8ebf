// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/placement.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

#include "ucs/log/log.h"
#include "ucs/memory/pages.h"

namespace uct::sm {
namespace {

constexpr size_t kHugePage = 2 * 1024 * 1024;

// "0-1,4"
unsigned count_nodes(std::istream& list) {
    unsigned count = 0, first = 0;
    while (list >> first) {
        unsigned last = first;
        if (list.peek() == '-' && list.ignore()) list >> last;
        count += last - first + 1;
        if (list.peek() == ',') list.ignore();
    }
    return std::max(count, 1u);
}

}  // namespace

unsigned memory_nodes() {
    static const unsigned nodes = [] {
        std::ifstream list("/sys/devices/system/node/has_memory");
        return count_nodes(list);
    }();
    return nodes;
}

bool place_near_caller(std::byte* base, size_t size) {
    unsigned processor = 0, node = 0;
    constexpr unsigned kBits = sizeof(long) * CHAR_BIT;
    std::array<unsigned long, 1024 / kBits> mask{};  // NOLINT(google-runtime-int): as the call's
    if (getcpu(&processor, &node) != 0 || node >= mask.size() * kBits) return false;
    mask[node / kBits] |= 1ul << (node % kBits);
    // The policy is the file's: it holds in every process that has it mapped.
    if (syscall(SYS_mbind, base, size, MPOL_PREFERRED, mask.data(), mask.size() * kBits, 0) == 0)
        return true;
    ucs::log_debug("shared memory cannot be put on node {}: {}", node, std::strerror(errno));
    return false;
}

void touch_pages(std::byte* base, size_t size) {
    const size_t page = ucs::page_size();
    std::byte* const first = base - reinterpret_cast<uintptr_t>(base) % page;
    if (madvise(first, static_cast<size_t>(base + size - first), MADV_POPULATE_WRITE) == 0) return;
    for (size_t at = 0; at < size; at += page - (reinterpret_cast<uintptr_t>(base) + at) % page)
        *const_cast<volatile std::byte*>(base + at) = std::byte{0};
}

void ask_for_huge_pages(std::byte* base, size_t size) {
    if (size < kHugePage) return;
    if (madvise(base, size, MADV_HUGEPAGE) != 0)
        ucs::log_debug("no huge pages for {} bytes: {}", size, std::strerror(errno));
}

}  // namespace uct::sm

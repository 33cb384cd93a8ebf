// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/pin.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace softhca {
namespace {

// Pages of this process.
std::atomic<size_t> pinned{0};

// Of the calling thread, as the kernel asks it.
bool is_limited() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3] = {};
    if (syscall(SYS_capget, &header, rights) != 0) return true;
    return (rights[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) == 0;
}

}  // namespace

std::optional<Pin> Pin::take(const void* addr, size_t length) {
    const auto page = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t first = uintptr_t(addr) / page;
    const size_t pages = length == 0 ? 0 : (uintptr_t(addr) + length - 1) / page - first + 1;
    // Counted before it is compared: of two threads at the limit one is refused, or both.
    Pin pin(pages);
    const size_t all = pinned.fetch_add(pages) + pages;
    rlimit limit{};
    const bool is_too_much = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
                             limit.rlim_cur != RLIM_INFINITY && all > limit.rlim_cur / page;
    if (is_too_much && is_limited()) return {};
    return pin;
}

Pin::~Pin() {
    pinned -= pages_;
}

}  // namespace softhca

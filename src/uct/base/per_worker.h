// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "uct/api/interface.h"

namespace uct {

// The one T that all interfaces of a worker share: made for the first of them, gone with the last.
// Any thread. @param worker  the table that the worker gave its interfaces
template <typename T>
std::shared_ptr<T> shared_by_worker(const AmTable& worker) {
    static std::mutex mutex;
    static auto* all = new std::unordered_map<const AmTable*, std::weak_ptr<T>>;
    const std::lock_guard lock(mutex);
    std::erase_if(*all, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<T>& known = (*all)[&worker];
    std::shared_ptr<T> shared = known.lock();
    if (shared == nullptr) known = shared = std::make_shared<T>();
    return shared;
}

}  // namespace uct

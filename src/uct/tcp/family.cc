// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/family.h"

#include <mutex>
#include <unordered_map>

namespace uct::tcp {

std::shared_ptr<Family> Family::of(const AmTable& worker) {
    static std::mutex mutex;
    static auto* families = new std::unordered_map<const AmTable*, std::weak_ptr<Family>>;
    std::lock_guard lock(mutex);
    std::erase_if(*families, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<Family>& known = (*families)[&worker];
    std::shared_ptr<Family> family = known.lock();
    if (family == nullptr) known = family = std::make_shared<Family>();
    return family;
}

}  // namespace uct::tcp

// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/sys/environment.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>

namespace ucs {

std::optional<std::string> ProcessEnvironment::get(std::string_view name) const {
    const char* value = secure_getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> ProcessEnvironment::names(std::string_view prefix) const {
    std::vector<std::string> found;
    if (getauxval(AT_SECURE) != 0) return found;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view assignment = *entry;
        const size_t end = assignment.find('=');
        if (end != assignment.npos && assignment.starts_with(prefix)) {
            found.emplace_back(assignment.substr(0, end));
        }
    }
    return found;
}

std::optional<std::string> MapEnvironment::get(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional<std::string>(found->second);
}

std::vector<std::string> MapEnvironment::names(std::string_view prefix) const {
    std::vector<std::string> found;
    for (auto entry = values_.lower_bound(prefix);
         entry != values_.end() && entry->first.starts_with(prefix); ++entry) {
        found.push_back(entry->first);
    }
    return found;
}

}  // namespace ucs

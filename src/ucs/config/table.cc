// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/table.h"

#include <fmt/format.h>

namespace ucs::config {

TableBase::TableBase(std::string_view title, std::initializer_list<std::string_view> prefixes)
    : RegistryEntry{title}, prefixes_(prefixes) {
    runtime().tables.add(*this);
}

const Source::Setting* TableBase::lookup(size_t index, const Source& source) const {
    for (const std::string_view prefix : prefixes_) {
        if (const auto* setting = source.find(fmt::format("{}{}", prefix, name(index))))
            return setting;
    }
    return nullptr;
}

std::string TableBase::with_bounds(std::string expected, const Bounds& bounds) {
    if (!bounds.least.empty()) expected += fmt::format(", at least {}", bounds.least);
    if (!bounds.most.empty()) expected += fmt::format(", at most {}", bounds.most);
    return expected;
}

ucs_status_t TableBase::report(const Variable& variable, const Source::Setting* setting,
                               std::string& error) const {
    error = setting != nullptr
                ? fmt::format("{}={}: expected {}", setting->written_as, setting->value,
                              variable.expected)
                : fmt::format("UCX_{}{}: its default '{}' is not {}", prefixes_.front(),
                              variable.name, variable.default_text, variable.expected);
    return UCS_ERR_INVALID_PARAM;
}

}  // namespace ucs::config

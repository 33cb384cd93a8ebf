// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>

#include "ucs/config/spelling.h"
#include "ucs/runtime/runtime.h"
#include "ucs/type/function_ref.h"

namespace ucs::config {

namespace {

struct WarnConfig {
    bool warn_unused;
};

constexpr Field<WarnConfig> kFields[] = {
    field<&WarnConfig::warn_unused>("WARN_UNUSED_ENV_VARS", "y",
                                    "Warn of UCX_ variables in the environment that nothing reads, "
                                    "and name the nearest one that exists."),
};

const Table<WarnConfig> kTable("configuration", {""}, kFields);

// Calls function(table, index, prefix) for every name that some table reads, till it returns true;
// returns whether it did. The name is the prefix and then the table's.
bool find_name(FunctionRef<bool(const TableBase&, size_t, std::string_view)> function) {
    for (const TableBase* table = TableBase::first(); table != nullptr; table = table->next()) {
        for (size_t index = 0; index < table->size(); ++index) {
            for (const std::string_view prefix : table->prefixes()) {
                if (function(*table, index, prefix)) return true;
            }
        }
    }
    return false;
}

// The same for that name alone: function(table, index). Nothing is allocated for the many others.
bool find_name(std::string_view name, FunctionRef<bool(const TableBase&, size_t)> function) {
    return find_name([&](const TableBase& table, size_t index, std::string_view prefix) {
        return name.starts_with(prefix) && name.substr(prefix.size()) == table.name(index) &&
               function(table, index);
    });
}

std::string comment(std::string_view text) {
    std::string commented;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        commented += fmt::format("# {}\n", text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return commented;
}

// What is wrong with a setting that some table reads; empty if nothing is.
std::string bounds_warning(std::string_view name, const Source::Setting& setting) {
    std::string warning;
    find_name(name, [&](const TableBase& table, size_t index) {
        std::string canonical;
        if (table.check(index, setting.value, canonical) != TableBase::Verdict::kOutOfBounds)
            return false;
        warning = fmt::format("{}={} is out of bounds, {} is used: expected {}", setting.written_as,
                              setting.value, canonical, table.variable(index).expected);
        return true;
    });
    return warning;
}

// One line for all names that nothing reads: "UCX_A (did you mean UCX_B?), UCX_C".
std::string unknown_warning(const std::vector<std::string>& names) {
    const size_t count = names.size();
    return fmt::format("{} {} set, but nothing reads {} (UCX_WARN_UNUSED_ENV_VARS=n silences this)",
                       fmt::join(names, ", "), count == 1 ? "is" : "are",
                       count == 1 ? "it" : "them");
}

std::string with_nearest(std::string_view name, const Source::Setting& setting) {
    const std::string near = nearest(name);
    return near.empty() ? setting.written_as
                        : fmt::format("{} (did you mean UCX_{}?)", setting.written_as, near);
}

// All processes of a job have the same variables: one of them says so. Launchers number them.
bool is_first_of_job() {
    for (const char* name :
         {"SWIFTLANE_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
        const std::optional<std::string> rank = runtime().environment->get(name);
        if (rank) return *rank == "0";
    }
    return true;
}

}  // namespace

std::vector<const TableBase*> tables() {
    std::vector<const TableBase*> sorted;
    for (const TableBase* table = TableBase::first(); table != nullptr; table = table->next()) {
        sorted.push_back(table);
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const TableBase* left, const TableBase* right) {
                         return left->title() < right->title();
                     });
    return sorted;
}

bool is_known(std::string_view name) {
    return find_name(name, [](const TableBase&, size_t) { return true; });
}

ucs_status_t Source::modify(std::string_view full_name, std::string_view value,
                            std::string& error) {
    const std::string_view name = without_ucx(full_name);
    bool known = false;
    // A name may be read by several tables, as a fallback by some: each must accept the value.
    const bool bad = find_name(name, [&](const TableBase& table, size_t index) {
        known = true;
        std::string canonical;
        if (table.check(index, value, canonical) != TableBase::Verdict::kUnreadable) return false;
        error = fmt::format("UCX_{}={}: expected {}", name, value, table.variable(index).expected);
        return true;
    });
    if (bad) return UCS_ERR_INVALID_PARAM;
    if (known) {
        set(name, value);
        return UCS_OK;
    }
    const std::string near = nearest(name);
    error = fmt::format("UCX_{}: there is no such variable", name);
    if (!near.empty()) error += fmt::format("; did you mean UCX_{}?", near);
    return UCS_ERR_NO_ELEM;
}

std::string nearest(std::string_view name) {
    std::string best;
    size_t best_distance = edit_limit(name) + 1;
    find_name([&](const TableBase& table, size_t index, std::string_view prefix) {
        const std::string known = fmt::format("{}{}", prefix, table.name(index));
        const size_t found = edit_distance(name, known);
        // The order of registration is the linker's; the alphabet breaks ties.
        if (found < best_distance || (found == best_distance && !best.empty() && known < best)) {
            best = known;
            best_distance = found;
        }
        return false;
    });
    return best;
}

std::vector<std::string> new_warnings(const Source& source) {
    std::vector<std::string> warnings;
    WarnConfig values{};
    std::string error;
    if (kTable.load(source, values, error) != UCS_OK) {
        warnings.push_back(error);
        values.warn_unused = true;
    }
    static std::mutex mutex;
    static std::set<std::string, std::less<>> warned;
    std::lock_guard lock(mutex);
    std::vector<std::string> unknown;
    const bool tells_unknown = values.warn_unused && is_first_of_job();
    for (const auto& [name, setting] : source.settings()) {
        const bool known = is_known(name);
        if (!known && !tells_unknown) continue;
        std::string text = known ? bounds_warning(name, setting) : with_nearest(name, setting);
        if (text.empty() || !warned.insert(setting.written_as).second) continue;
        (known ? warnings : unknown).push_back(std::move(text));
    }
    if (!unknown.empty()) warnings.push_back(unknown_warning(unknown));
    return warnings;
}

std::string print(const Source& source, const PrintOptions& options) {
    std::string text;
    auto out = std::back_inserter(text);
    if (!options.title.empty()) fmt::format_to(out, "#\n{}#\n", comment(options.title));
    for (const TableBase* table : tables()) {
        if (options.docs) fmt::format_to(out, "\n#\n# {}\n#\n", table->title());
        for (size_t index = 0; index < table->size(); ++index) {
            const TableBase::Variable variable = table->variable(index);
            const Source::Setting* setting = table->lookup(index, source);
            const std::string name =
                fmt::format("UCX_{}{}", table->prefixes().front(), variable.name);
            if (options.docs) {
                fmt::format_to(out, "\n{}# default: {}; expected: {}\n", comment(variable.help),
                               variable.default_text, variable.expected);
                for (const std::string_view prefix : table->prefixes().subspan(1)) {
                    fmt::format_to(out, "# falls back to: UCX_{}{}\n", prefix, variable.name);
                }
            }
            if (!options.values) continue;
            std::string value;
            const std::string_view set =
                setting != nullptr ? std::string_view(setting->value) : variable.default_text;
            if (table->check(index, set, value) == TableBase::Verdict::kUnreadable) value = set;
            const bool hidden = options.comment_defaults && setting == nullptr;
            fmt::format_to(out, "{}{}={}\n", hidden ? "# " : "", name, value);
        }
    }
    return text;
}

}  // namespace ucs::config

// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/config/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <set>

#include "ucs/config/spelling.h"
#include "ucs/log/log.h"
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

// Calls function(table, index, prefixed name) for every name that some table reads, till it
// returns true; returns whether it did.
bool find_name(FunctionRef<bool(const TableBase&, size_t, const std::string&)> function) {
    for (const TableBase* table = runtime().tables.load(); table != nullptr;
         table = table->next()) {
        for (size_t index = 0; index < table->size(); ++index) {
            for (const std::string_view prefix : table->prefixes()) {
                if (function(*table, index, fmt::format("{}{}", prefix, table->name(index))))
                    return true;
            }
        }
    }
    return false;
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

bool has_title(const Runtime& runtime, std::string_view title) {
    const TableBase* table = runtime.tables.load();
    while (table != nullptr && table->title() != title) table = table->next();
    return table != nullptr;
}

void push(std::atomic<TableBase*>& head, TableBase& table, TableBase*& next) {
    next = head.load();
    while (!head.compare_exchange_weak(next, &table)) {
    }
}

}  // namespace

void Registry::add(TableBase& table) {
    push(runtime().tables, table, table.next_);
}

void Registry::move(Runtime& from, Runtime& to) {
    TableBase* table = from.tables.exchange(nullptr);
    while (table != nullptr) {
        TableBase* const next = table->next_;
        if (!has_title(to, table->title())) push(to.tables, *table, table->next_);
        table = next;
    }
}

std::vector<const TableBase*> Registry::tables() {
    std::vector<const TableBase*> sorted;
    for (const TableBase* table = runtime().tables.load(); table != nullptr;
         table = table->next()) {
        sorted.push_back(table);
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const TableBase* left, const TableBase* right) {
                         return left->title() < right->title();
                     });
    return sorted;
}

bool is_known(std::string_view name) {
    return find_name(
        [&](const TableBase&, size_t, const std::string& known) { return known == name; });
}

ucs_status_t check_setting(std::string_view name, std::string_view value, std::string& error) {
    bool known = false;
    // A name may be read by several tables, as a fallback by some: each must accept the value.
    const bool bad =
        find_name([&](const TableBase& table, size_t index, const std::string& candidate) {
            if (candidate != name) return false;
            known = true;
            std::string canonical;
            if (table.check(index, value, canonical)) return false;
            error =
                fmt::format("UCX_{}={}: expected {}", name, value, table.variable(index).expected);
            return true;
        });
    if (bad) return UCS_ERR_INVALID_PARAM;
    if (known) return UCS_OK;
    const std::string near = nearest(name);
    error = fmt::format("UCX_{}: there is no such variable", name);
    if (!near.empty()) error += fmt::format("; did you mean UCX_{}?", near);
    return UCS_ERR_NO_ELEM;
}

std::string nearest(std::string_view name) {
    std::string best;
    size_t best_distance = edit_limit(name) + 1;
    find_name([&](const TableBase&, size_t, const std::string& known) {
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

void warn_unknown(const Source& source) {
    WarnConfig values{};
    std::string error;
    if (kTable.load(source, values, error) != UCS_OK) {
        log_warn("{}", error);
        values.warn_unused = true;
    }
    if (!values.warn_unused) return;

    static std::mutex mutex;
    static std::set<std::string, std::less<>> warned;
    for (const auto& [name, setting] : source.settings()) {
        if (is_known(name)) continue;
        std::lock_guard lock(mutex);
        if (!warned.insert(setting.written_as).second) continue;
        const std::string near = nearest(name);
        if (near.empty()) {
            log_warn("{} is set, but nothing reads it (UCX_WARN_UNUSED_ENV_VARS=n silences this)",
                     setting.written_as);
        } else {
            log_warn("{} is set, but nothing reads it; did you mean UCX_{}?", setting.written_as,
                     near);
        }
    }
}

std::string print(const Source& source, const PrintOptions& options) {
    std::string text;
    auto out = std::back_inserter(text);
    if (!options.title.empty()) fmt::format_to(out, "#\n{}#\n", comment(options.title));
    for (const TableBase* table : Registry::tables()) {
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
            if (!table->check(index, set, value)) value = set;
            const bool hidden = options.comment_defaults && setting == nullptr;
            fmt::format_to(out, "{}{}={}\n", hidden ? "# " : "", name, value);
        }
    }
    return text;
}

}  // namespace ucs::config

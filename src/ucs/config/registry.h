// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ucs/config/source.h"
#include "ucs/config/table.h"
#include "ucs/runtime/runtime.h"
#include "ucs/type/status.h"

// What is known about all tables of the process, those of loaded modules included.
namespace ucs::config {

struct Registry {
    // Adds a table to the shared list; any thread.
    static void add(TableBase& table);

    // In the order of their titles.
    static std::vector<const TableBase*> tables();

    // Hands the tables of a module to the shared list, those left out that are there already.
    static void move(Runtime& from, Runtime& to);
};

// Whether some table reads UCX_<name>, its fallback prefixes included.
bool is_known(std::string_view name);

// UCS_OK, UCS_ERR_NO_ELEM (no such variable) or UCS_ERR_INVALID_PARAM, the latter two with `error`.
ucs_status_t check_setting(std::string_view name, std::string_view value, std::string& error);

// The known variable whose name is nearest (Damerau-Levenshtein distance), without "UCX_"; empty
// if none is near enough to be meant.
std::string nearest(std::string_view name);

// Warns, in one line each and once per process, of settings that no table reads, naming the
// nearest right one. Silent if UCX_WARN_UNUSED_ENV_VARS=n. To be called when modules are loaded.
void warn_unknown(const Source& source);

struct PrintOptions {
    std::string_view title;         // a header line over all, if not empty
    bool values = true;             // the lines UCX_NAME=value
    bool docs = false;              // default, what is expected and help, as comments over each
    bool comment_defaults = false;  // put '#' before a variable that has its default value
};

// Every variable with its current value: text that Source::read accepts as a file.
std::string print(const Source& source, const PrintOptions& options);

}  // namespace ucs::config

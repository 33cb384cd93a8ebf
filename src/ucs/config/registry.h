// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ucs/config/source.h"
#include "ucs/config/table.h"

// What is known about all tables of the process, those of loaded modules included.
namespace ucs::config {

// In the order of their titles.
std::vector<const TableBase*> tables();

// Whether some table reads UCX_<name>, its fallback prefixes included.
bool is_known(std::string_view name);

// The known variable whose name is nearest (Damerau-Levenshtein distance), without "UCX_"; empty
// if none is near enough to be meant.
std::string nearest(std::string_view name);

// What the user should be warned of, once per process: settings out of bounds, in one line each,
// and in one more line those that no table reads, with the nearest name that one does. None of the
// latter if UCX_WARN_UNUSED_ENV_VARS=n, or in processes of a job other than its first. To be called
// when modules are loaded.
std::vector<std::string> new_warnings(const Source& source);

struct PrintOptions {
    std::string_view title;         // a header line over all, if not empty
    bool values = true;             // the lines UCX_NAME=value
    bool docs = false;              // default, what is expected and help, as comments over each
    bool comment_defaults = false;  // put '#' before a variable that has its default value
};

// Every variable with its current value: text that Source::read accepts as a file.
std::string print(const Source& source, const PrintOptions& options);

}  // namespace ucs::config

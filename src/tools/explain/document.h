// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "tools/report/json.h"

namespace tools {

// The text of ucpx_worker_explain() as a document: each table with its title, its rows as objects
// by the columns' names ("sum [ns]" is "sum_ns"), cells that are numbers as such; what stands
// outside of tables as notes.
Json explanation_json(std::string_view text);

}  // namespace tools

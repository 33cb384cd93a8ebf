// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include "tools/report/json.h"
#include "tools/sim/study.h"

namespace tools {

// What was run, as a heading.
std::string study_title(const StudyOptions& options);

// Rates of all modes, then what the observer saw of each, then the dynamic run's special tables.
std::string study_text(const StudyOptions& options, std::span<const StudyRun> runs);

Json study_json(const StudyOptions& options, std::span<const StudyRun> runs);

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <vector>

#include "tools/perf/options.h"
#include "tools/perf/report.h"

namespace tools::perf {

// What the CUDA driver's own copies between the two memories take, in one process and without the
// library: latency is a copy and the wait for its end, bandwidth a window of copies on one stream.
// Rows are told as they are there. Throws std::runtime_error where there is no CUDA.
std::vector<Row> measure_driver_copies(const Options& options,
                                       const std::function<void(const Row&)>& on_row);

}  // namespace tools::perf

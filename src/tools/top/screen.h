// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ucp/stats/page_reader.h"

namespace tools {

// What people read: a line for each worker, and below it those of its endpoints.
// @param endpoints  of each worker, at most
std::vector<std::string> screen_lines(std::span<const ucp::stats::PageSample> samples, int64_t now,
                                      size_t endpoints);

}  // namespace tools

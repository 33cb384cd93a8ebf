// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ucp/stats/page_reader.h"

namespace tools {

// The pages in Prometheus's text format, version 0.0.4.
std::string exposition(std::span<const ucp::stats::PageSample> samples, int64_t now);

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "ucp/stats/page.h"

namespace ucp::stats {

// A page as it was at one moment, checked: counts and indices are within bounds, texts end.
struct PageSample {
    pid_t pid = 0;            // as this process knows it
    unsigned descriptor = 0;  // of that process: tells its pages apart
    std::string program;      // printable characters alone
    WorkerRecord worker{};
};

// The pages that this process may read, of its own user and, for root, of all: by process, then in
// the order in which the workers were made. No page is changed, and no process notices.
//
// Nothing in a page is believed. One that is not of this layout, or not of the process that it was
// found in (a forked child has those of its parent), is passed over, and so is one that is being
// written all the time.
//
// @param only  the processes to look at; empty: all
std::vector<PageSample> read_pages(const std::vector<pid_t>& only = {});

// The page behind one descriptor of a process, if it is one.
std::optional<PageSample> read_page(pid_t pid, unsigned descriptor);

}  // namespace ucp::stats

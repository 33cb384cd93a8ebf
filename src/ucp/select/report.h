// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "ucp/select/selection.h"

/** The explanation of a choice of lanes as text. */
namespace ucp::select {

struct Report {
    struct Name {
        std::string transport;
        std::string device;
    };
    /** A transport that is here and takes no part. */
    struct LeftOut {
        std::string transport;
        std::string device;
        std::string reason;
    };
    const WorkerAddress& own;
    const WorkerAddress& peer;
    std::vector<Name> names{};  //!< of the own entries
    std::vector<LeftOut> left_out{};
};

/** A table: each candidate, what it costs in nanoseconds, part by part, and why it won or lost. */
std::string write(const Report& report, std::span<const Candidate> candidates);

}  // namespace ucp::select

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ucp/select/learned_costs.h"
#include "ucp/select/protocol_table.h"
#include "ucp/select/selection.h"

// The explanation of a choice of lanes as text.

namespace ucp::select {

// Lines of cells for people; columns as wide as their widest cell.
class TextTable {
  public:
    // Columns [first_number, last_number) are set to the right.
    explicit TextTable(std::vector<std::string> head, size_t first_number = 0,
                       size_t last_number = 0)
        : lines_{std::move(head)}, first_number_(first_number), last_number_(last_number) {}

    // @param cells  as many as the head has, or fewer
    void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
    // Every line begins with `indent` and ends with a newline.
    std::string text(const std::string& indent) const;

  private:
    std::vector<std::vector<std::string>> lines_;
    size_t first_number_, last_number_;
};

struct Report {
    struct Name {
        std::string transport;
        std::string device;
    };
    // A transport that is here and takes no part.
    struct LeftOut {
        std::string transport;
        std::string device;
        std::string reason;
    };
    const WorkerAddress& own;
    const WorkerAddress& peer;
    std::vector<Name> names{};  // of the own entries
    std::vector<LeftOut> left_out{};
};

// A table: each candidate, what it costs in nanoseconds, part by part, and why it won or lost.
std::string write(const Report& report, std::span<const Candidate> candidates);

// Which protocol carries operations of which length over some lanes, for people: for each range the
// time that it is believed to take at one length, where the figures come from, and what the next
// best would take there, or why it does not come into question.
// @param indent  what each line begins with
std::string describe_protocols(const LaneFigures& lanes, const CostModel& costs,
                               const Thresholds& thresholds, const std::string& indent);

// What was learned of an operation over a lane, for people: for each class of which something is
// known what each way takes, where the figure comes from and how many messages, or windows of puts
// or gets, say so, and which one is used. "" if nothing is.
// @param ways  for each load
// @param table  what is chosen where too little is known
std::string describe_learned(const LearnedCosts& learned, Operation operation,
                             const WaysByLoad& ways, const ProtocolTable& table,
                             const std::string& indent);

}  // namespace ucp::select

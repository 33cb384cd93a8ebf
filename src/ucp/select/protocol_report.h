// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <optional>
#include <string>

#include "ucp/select/learned_costs.h"
#include "ucp/select/protocol_table.h"

namespace ucp::select {

/**
 * Which protocol carries operations of which length over some lanes, for people: for each range the
 * time that it is believed to take at one length, where the figures come from, and what the next
 * best would take there, or why it does not come into question.
 * @param indent  what each line begins with
 */
std::string describe_protocols(const LaneFigures& lanes, const CostModel& costs,
                               const Thresholds& thresholds, const std::string& indent);

/**
 * What was learned of tagged messages over a lane, for people: for each class of which something is
 * known what either way takes, where the figure comes from and how many messages say so, and which
 * one is used. "" if nothing is.
 * @param ways  for each load
 * @param table  what is chosen where too little is known
 */
std::string describe_learned(const LearnedCosts& learned,
                             const std::array<std::optional<Ways>, kLoads>& ways,
                             const ProtocolTable& table, const std::string& indent);

}  // namespace ucp::select

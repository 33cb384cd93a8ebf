// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace ucp::select {
namespace {

std::string in_nanoseconds(double seconds) {
    return fmt::format("{:.0f}", seconds * 1e9);
}

}  // namespace

std::string write(const Report& report, std::span<const Candidate> candidates) {
    const bool is_itself = report.own.uuid == report.peer.uuid;
    std::string text =
        fmt::format("#\n# Worker {} ({:016x}) to worker {} ({:016x}), {}\n#\n", report.own.name,
                    report.own.uuid, report.peer.name, report.peer.uuid,
                    is_itself                             ? "itself"
                    : report.own.host == report.peer.host ? "on the same host"
                                                          : "on another host");
    TextTable table({"transport", "device", "reaches", "latency", "distance", "overhead",
                     fmt::format("{} B", kReferenceBytes), "sum [ns]", "why"},
                    3, 8);
    for (const Candidate& candidate : candidates) {
        const Report::Name& name = report.names[candidate.local];
        std::string reason(select::reason(candidate.outcome));
        const bool is_used =
            candidate.outcome == Outcome::kChosen || candidate.outcome == Outcome::kRail;
        if (is_used && candidate.partner_local != kNone) {
            reason += fmt::format("; hot endpoints go to {}",
                                  report.names[candidate.partner_local].transport);
        } else if (is_used && !is_itself) {
            reason += "; nothing dedicated in common, so it is never promoted";
        }
        if (candidate.remote == kNone) {
            table.add({name.transport, name.device, std::string(select::name(candidate.locality)),
                       "-", "-", "-", "-", "-", std::move(reason)});
            continue;
        }
        const uint8_t domain = report.peer.entries[candidate.remote].domain;
        table.add({name.transport, name.device,
                   fmt::format("{}, its device {}", select::name(candidate.locality), domain),
                   in_nanoseconds(candidate.cost.latency), in_nanoseconds(candidate.cost.distance),
                   in_nanoseconds(candidate.cost.overhead), in_nanoseconds(candidate.cost.transfer),
                   in_nanoseconds(candidate.cost.total()), std::move(reason)});
    }
    for (const Report::LeftOut& left_out : report.left_out) {
        table.add(
            {left_out.transport, left_out.device, "-", "-", "-", "-", "-", "-", left_out.reason});
    }
    return text + table.text("# ") + "#\n";
}

std::string TextTable::text(const std::string& indent) const {
    std::vector<size_t> widths;
    for (const auto& line : lines_) {
        widths.resize(std::max(widths.size(), line.size()));
        for (size_t column = 0; column < line.size(); ++column) {
            widths[column] = std::max(widths[column], line[column].size());
        }
    }
    std::string text;
    for (const auto& line : lines_) {
        std::string row;
        for (size_t column = 0; column < line.size(); ++column) {
            const bool is_number = column >= first_number_ && column < last_number_;
            row += is_number ? fmt::format("{:>{}}  ", line[column], widths[column])
                             : fmt::format("{:<{}}  ", line[column], widths[column]);
        }
        row.erase(row.find_last_not_of(' ') + 1);
        text += indent + row + "\n";
    }
    return text;
}

}  // namespace ucp::select

// SPDX-License-Identifier: BSD-3-Clause
#include "tools/report/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ucp/api/ucpx.h"

namespace tools {

Row combine(const std::vector<Sample>& samples) {
    Row row;
    double elapsed = 0;
    double messages = 0;
    double exchange = 0;
    unsigned senders = 0;
    for (const Sample& sample : samples) {
        row.size = sample.size;
        if (sample.elapsed <= 0 || sample.messages == 0) continue;
        ++senders;
        const auto time = static_cast<double>(sample.elapsed);
        elapsed += time;
        messages += static_cast<double>(sample.messages);
        if (sample.rounds != 0) exchange += time / static_cast<double>(sample.rounds);
    }
    if (senders == 0) return row;
    row.messages_per_second = messages / (elapsed / senders) * 1e9;
    row.megabytes_per_second = row.messages_per_second * static_cast<double>(row.size) / 1e6;
    row.latency = exchange / senders / 1e3;
    return row;
}

namespace {

// The half of a link that was asked for by policy (ucpx.h).
constexpr uint64_t kPinned = uint64_t{1} << 60;

// The lane that carries messages now.
std::string_view active_lane(const ucpx_lanes_t& lanes) {
    const unsigned filled = std::min<unsigned>(lanes.num_entries, 8);
    for (unsigned i = 0; i < filled; ++i) {
        if (lanes.entries[i].roles & UCPX_LANE_ROLE_AM) return lanes.entries[i].transport_name;
    }
    return "none";
}

std::string explain(const ucpx_ep_attr_t& attr) {
    if (attr.adaptive == 0) return "has no other lane";
    std::string text = ucpx_lane_reason_string(attr.reason);
    if (attr.agreed_score != 0 && attr.agreed_score < kPinned) {
        text += fmt::format("; saves {} ns/s here, {} ns/s at the peer", attr.advertised_score,
                            attr.remote_score);
    }
    if (attr.denials != 0) text += fmt::format("; denied {} times", attr.denials);
    if (attr.demotions != 0) text += fmt::format("; demoted {} times", attr.demotions);
    return text;
}

}  // namespace

std::vector<LaneEntry> query_lanes(const Rank& rank) {
    std::vector<LaneEntry> entries;
    for (unsigned peer = 0; peer < rank.count(); ++peer) {
        if (rank.endpoint(peer) == nullptr) continue;
        std::array<ucpx_lane_t, 8> lanes{};
        ucpx_ep_attr_t attr{};
        attr.field_mask = UCPX_EP_ATTR_FIELD_ADAPTIVE | UCPX_EP_ATTR_FIELD_STATE |
                          UCPX_EP_ATTR_FIELD_SCORES | UCPX_EP_ATTR_FIELD_COUNTERS |
                          UCPX_EP_ATTR_FIELD_LANES;
        attr.lanes = {lanes.data(), lanes.size(), sizeof(ucpx_lane_t)};
        if (ucpx_ep_query(rank.endpoint(peer), &attr) != UCS_OK) continue;
        entries.push_back({.rank = rank.index(),
                           .peer = peer,
                           .lane = std::string(active_lane(attr.lanes)),
                           .state = ucpx_lane_state_string(attr.state),
                           .score = static_cast<double>(attr.agreed_score),
                           .why = explain(attr)});
    }
    return entries;
}

LaneCounters query_counters(const Rank& rank) {
    ucpx_worker_attr_t attr{};
    for (const LaneCounter& counter : kLaneCounters) attr.field_mask |= counter.field;
    if (ucpx_worker_query(rank.worker(), &attr) != UCS_OK) return {};
    LaneCounters counters;
    std::ranges::transform(kLaneCounters, counters.values.begin(),
                           [&](const LaneCounter& counter) { return attr.*counter.source; });
    return counters;
}

}  // namespace tools

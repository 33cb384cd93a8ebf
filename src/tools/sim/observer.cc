// SPDX-License-Identifier: BSD-3-Clause
#include "tools/sim/observer.h"

#include <algorithm>

namespace tools {
namespace {

// Traffic of one or both directions is moving between the lanes.
bool is_switching(ucpx_lane_state_t state) {
    return state == UCPX_LANE_STATE_SWITCHING || state == UCPX_LANE_STATE_DEMOTING;
}

}  // namespace

void JobObserver::delivered(unsigned sender, unsigned receiver, size_t length) {
    ++messages_;
    const auto slot = static_cast<size_t>(now_ / interval_);
    if (slot >= timeline_.size()) timeline_.resize(slot + 1);
    ++timeline_[slot];

    LinkTraffic& link = traffic(sender, receiver);
    ++link.messages;
    link.bytes += length;
    if (link.is_dedicated) {
        ++link.dedicated_messages;
        link.dedicated_bytes += length;
    }
    if (link.last >= 0) {
        const int64_t gap = now_ - link.last;
        int64_t& longest = link.switched_since ? link.longest_switch_gap : link.longest_gap;
        longest = std::max(longest, gap);
        ++link.gaps;
        link.sum_of_gaps += gap;
    }
    link.last = now_;
    link.switched_since = link.ends_switching != 0;
}

void JobObserver::lane_changed(unsigned rank, unsigned peer, const ucpx_lane_event_t& event) {
    if (event.old_state == event.new_state) return;
    const bool was = is_switching(event.old_state);
    const bool is = is_switching(event.new_state);
    for (LinkTraffic* link : {&traffic(rank, peer), &traffic(peer, rank)}) {
        if (is && !was) ++link->ends_switching;
        if (was && !is && link->ends_switching > 0) --link->ends_switching;
        if (is || was) link->switched_since = true;
    }
    traffic(rank, peer).is_dedicated = event.new_state == UCPX_LANE_STATE_ESTABLISHED;
    if (event.new_state == UCPX_LANE_STATE_ESTABLISHED) {
        switches_.push_back({now_, rank, peer, true});
    } else if (event.old_state == UCPX_LANE_STATE_ESTABLISHED) {
        switches_.push_back({now_, rank, peer, false});
    }
}
}  // namespace tools

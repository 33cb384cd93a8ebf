// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tools/program/rank.h"
#include "ucp/api/ucpx.h"

namespace tools {

// One end of a link took or left its dedicated lane.
struct SwitchEvent {
    int64_t time;
    unsigned rank;
    unsigned peer;
    bool promotion;
};

// Deliveries from one rank to another.
struct LinkTraffic {
    uint64_t messages = 0;
    uint64_t bytes = 0;
    uint64_t before_mark = 0;  // of these, before JobObserver::mark()
    // While the sender's end had its dedicated lane.
    uint64_t dedicated_messages = 0;
    uint64_t dedicated_bytes = 0;
    bool is_dedicated = false;
    int64_t last = -1;  // time of the last one; -1: none yet, or a pause came since
    unsigned ends_switching = 0;
    bool switched_since = false;  // a switch took place since the last delivery
    int64_t longest_gap = 0;      // between two deliveries, no switch in between
    int64_t longest_switch_gap = 0;
    uint64_t gaps = 0;
    int64_t sum_of_gaps = 0;
};

// Watches a simulated job from outside of its ranks: every delivery and every change of a lane.
class JobObserver final : public DeliveryObserver {
  public:
    // `interval`: nanoseconds of one entry of the timeline.
    JobObserver(unsigned ranks, int64_t interval)
        : ranks_(ranks), interval_(interval), links_(size_t{ranks} * ranks) {}

    void set_time(int64_t now) { now_ = now; }
    void delivered(unsigned sender, unsigned receiver, size_t length) override;
    void lane_changed(unsigned rank, unsigned peer, const ucpx_lane_event_t& event);
    // The program pauses at a barrier: gaps across it say nothing.
    void pause() {
        for (LinkTraffic& link : links_) link.last = -1;
    }
    // Half-time: what happened before and after is told apart.
    void mark() {
        for (LinkTraffic& link : links_) link.before_mark = link.messages;
    }
    // Rank 0 begins to compute.
    void phase() { phases_.push_back(now_); }

    const LinkTraffic& link(unsigned sender, unsigned receiver) const {
        return links_[size_t{sender} * ranks_ + receiver];
    }
    const std::vector<SwitchEvent>& switches() const { return switches_; }
    // Messages delivered in each interval from time 0 on.
    const std::vector<uint64_t>& timeline() const { return timeline_; }
    void completed(int64_t nanoseconds) {
        longest_completion_ = std::max(longest_completion_, nanoseconds);
    }

    // Of those that ranks told of, local completion of a message.
    int64_t longest_completion() const { return longest_completion_; }
    // Times at which rank 0 began to compute.
    const std::vector<int64_t>& phases() const { return phases_; }
    int64_t interval() const { return interval_; }
    uint64_t messages() const { return messages_; }

  private:
    LinkTraffic& traffic(unsigned sender, unsigned receiver) {
        return links_[size_t{sender} * ranks_ + receiver];
    }

    const unsigned ranks_;
    const int64_t interval_;
    int64_t now_ = 0;
    uint64_t messages_ = 0;
    std::vector<LinkTraffic> links_;
    std::vector<SwitchEvent> switches_;
    std::vector<uint64_t> timeline_;
    std::vector<int64_t> phases_;
    int64_t longest_completion_ = 0;
};

}  // namespace tools

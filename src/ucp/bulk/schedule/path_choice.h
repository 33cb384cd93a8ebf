// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucs/sys/time.h"

// Which path takes the next slices, and how many. Pure: time and sizes in, a choice out.
namespace ucp::bulk {

struct ScheduleRules {
    size_t slice = 0;
    size_t window = 0;       // bytes under way on one path, at most
    unsigned chain = 0;      // slices of one doorbell, at most
    bool is_mixed = false;   // short transfers come behind long ones: see Mixture
    bool is_joined = false;  // a chain is one operation; no other path, no other transfer
};

// What is known of a path: what it has under way, and how fast it gets it done.
class Meter {
  public:
    // A path holds what it gets done in so long, so that a slow one holds little of a message.
    static constexpr ucs::Duration kWindowTime = std::chrono::milliseconds(20);
    // Below that a window does not hide the way there and back.
    static constexpr unsigned kMinWindowSlices = 4;
    // An idle path's rate is believed so long.
    static constexpr ucs::Duration kRateLifetime = std::chrono::milliseconds(100);

    // @param rate  bytes per second, as long as nothing is measured
    explicit Meter(double rate) : rate_(rate) {}

    void posted(size_t bytes, ucs::Time now);
    void completed(size_t bytes, ucs::Time now);
    // What was counted as posted and was not.
    void withdrawn(size_t bytes) { under_way_ -= bytes; }
    // All that is under way is given up. The path is on probation: one slice until one is done.
    void give_up();

    size_t under_way() const { return under_way_; }
    double rate() const { return rate_; }
    // Bytes under way that are not done yet, as far as one can tell: a chain is said to be done
    // when all of it is. At least half of them, as rates are estimates and a path may be silent.
    double left(ucs::Time now) const;
    double seconds_for(uint64_t bytes, ucs::Time now) const {
        return (left(now) + static_cast<double>(bytes)) / rate_;
    }
    size_t window(const ScheduleRules& rules) const;
    // May a slice of that length be posted? One always may on an idle path.
    bool has_room(size_t length, const ScheduleRules& rules) const {
        return under_way_ == 0 || under_way_ + length <= window(rules);
    }

    // It was idle, and has shown that it is well.
    void answered(ucs::Time now) { completed_at_ = now; }

    // Since when nothing was completed, if something is under way; else kNever.
    ucs::Time silent_since() const { return under_way_ == 0 ? ucs::kNever : last_; }
    // When something was completed or answered last.
    ucs::Time completed_at() const { return completed_at_; }
    bool is_rate_recent(ucs::Time now) const { return now - sampled_ < kRateLifetime; }

  private:
    void sample(ucs::Time now);

    double rate_;
    size_t under_way_ = 0;
    size_t done_ = 0;    // bytes since `since_`
    ucs::Time since_{};  // start of the sample
    ucs::Time last_{};   // of a completion, or of the first post after idleness
    ucs::Time completed_at_{};
    ucs::Time sampled_{};
    bool is_measured_ = false;
    bool on_probation_ = false;
};

// What of long transfers may be under way on a device while short ones come between: two slices, or
// what hides the way there and back.
// @param rate  bytes per second
size_t mixed_window(double rate, const ScheduleRules& rules);

// Bytes per second that a path is believed to get done before anything of it is measured: each
// slice takes its time on the wire, and the way from the processors to the device.
//
// @param distance  seconds, of that way
double expected_rate(double bandwidth, double distance, size_t slice);

// Some slices to one path.
struct Choice {
    int path = -1;     // index; -1: wait, a completion will come
    size_t bytes = 0;  // to post at most; one slice always goes
};

// The path that has the next slice done first.
//
// A path gets none if the others would be done with all that waits before it is done with this one:
// the end of a message is not left to the slow. One that has been idle for long gets a slice of a
// large message, so that its rate is known.
//
// @param paths    those that may take it; none is null
// @param length   of the next slice
// @param waiting  bytes to be posted in all, this slice included
Choice choose(std::span<const Meter* const> paths, size_t length, uint64_t waiting, ucs::Time now,
              const ScheduleRules& rules);

// The same seen from one path, for who serves only that one: what it may take, by the same rules.
// Of all paths, if each asks when it has room, at least one gets something as long as anything
// waits.
//
// @param all  `own` and the others
// @return 0: it has no room, or others do it sooner; else bytes, one slice at least
size_t pull(const Meter& own, std::span<const Meter* const> all, size_t length, uint64_t waiting,
            ucs::Time now, const ScheduleRules& rules);

}  // namespace ucp::bulk

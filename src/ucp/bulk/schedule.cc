// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule.h"

#include <algorithm>
#include <limits>

namespace ucp::bulk {
namespace {

constexpr ucs::Duration kSampleTime = std::chrono::milliseconds(1);
constexpr double kNewest = 0.5;  // weight of a sample of many bytes in the average
constexpr double kManyBytes = 1 << 20;
constexpr uint64_t kLargeMessage = 8;  // slices that make one to find out rates with

// Two chains keep a path busy: one under way while the other's completion is handled.
size_t portion(const Meter& meter, size_t length, uint64_t waiting, double all_rates,
               const ScheduleRules& rules) {
    const size_t window = meter.window(rules);
    const size_t room = window > meter.under_way() ? window - meter.under_way() : length;
    const double share = static_cast<double>(waiting) * meter.rate() / all_rates;
    const size_t fair = std::max(length, static_cast<size_t>(share));
    return std::min({room, std::max(length, window / 2), fair});
}

bool is_to_be_measured(const Meter& meter, uint64_t waiting, ucs::Time now,
                       const ScheduleRules& rules) {
    return meter.under_way() == 0 && waiting >= kLargeMessage * rules.slice &&
           !meter.is_believed(now);
}

}  // namespace

void Meter::posted(size_t bytes, ucs::Time now) {
    if (under_way_ == 0) {
        since_ = last_ = now;
        done_ = 0;
    }
    under_way_ += bytes;
}

void Meter::completed(size_t bytes, ucs::Time now) {
    under_way_ -= bytes;
    done_ += bytes;
    last_ = completed_at_ = now;
    on_probation_ = false;
    if (now - since_ >= kSampleTime || (under_way_ == 0 && now > since_)) sample(now);
}

// A short sample says more of the way there and back than of the rate, and counts for little.
void Meter::sample(ucs::Time now) {
    const double measured = static_cast<double>(done_) / ucs::seconds(now - since_);
    const double share = std::min(1.0, static_cast<double>(done_) / kManyBytes);
    const double weight = share * (is_measured_ ? kNewest : 1);
    rate_ += weight * (measured - rate_);
    is_measured_ = is_measured_ || share == 1;
    since_ = sampled_ = now;
    done_ = 0;
}

void Meter::give_up() {
    under_way_ = 0;
    on_probation_ = true;
}

size_t Meter::window(const ScheduleRules& rules) const {
    if (on_probation_) return rules.slice;
    const double wanted = rate_ * ucs::seconds(kWindowTime);
    const size_t least = std::min(kMinWindowSlices * rules.slice, rules.window);
    return wanted >= static_cast<double>(rules.window)
               ? rules.window
               : std::max(least, static_cast<size_t>(wanted));
}

Choice choose(std::span<const Meter* const> paths, size_t length, uint64_t waiting, ucs::Time now,
              const ScheduleRules& rules) {
    double all_rates = 0;
    double all_done = std::numeric_limits<double>::infinity();
    double soonest = std::numeric_limits<double>::infinity();
    int best = -1;
    for (size_t index = 0; index < paths.size(); ++index) {
        const Meter& meter = *paths[index];
        all_rates += meter.rate();
        all_done = std::min(all_done, meter.seconds_for(waiting));
        if (!meter.has_room(length, rules)) continue;
        if (paths.size() > 1 && is_to_be_measured(meter, waiting, now, rules)) {
            return {static_cast<int>(index), length};
        }
        const double done = meter.seconds_for(length);
        if (done < soonest) {
            soonest = done;
            best = static_cast<int>(index);
        }
    }
    if (best < 0 || soonest > all_done) return {};
    const Meter& meter = *paths[static_cast<size_t>(best)];
    return {best, portion(meter, length, waiting, all_rates, rules)};
}

size_t pull(const Meter& own, std::span<const Meter* const> all, size_t length, uint64_t waiting,
            ucs::Time now, const ScheduleRules& rules) {
    if (!own.has_room(length, rules)) return 0;
    if (all.size() > 1 && is_to_be_measured(own, waiting, now, rules)) return length;
    const double done = own.seconds_for(length);
    double all_rates = 0;
    for (const Meter* meter : all) {
        if (meter != &own && meter->seconds_for(waiting) < done) return 0;
        all_rates += meter->rate();
    }
    return portion(own, length, waiting, all_rates, rules);
}

}  // namespace ucp::bulk

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/path_choice.h"

#include <algorithm>
#include <limits>

namespace ucp::bulk {

size_t mixed_window(double rate, const ScheduleRules& rules) {
    constexpr ucs::Duration kTime = std::chrono::microseconds(4);
    constexpr unsigned kSlices = 2;
    const auto bytes = static_cast<size_t>(std::min(rate * ucs::seconds(kTime), 1e12));
    return std::min(std::max(kSlices * rules.slice, bytes), rules.window);
}

double expected_rate(double bandwidth, double distance, size_t slice) {
    const auto bytes = static_cast<double>(slice);
    return bytes / (bytes / bandwidth + distance);
}

namespace {

constexpr ucs::Duration kSampleTime = std::chrono::milliseconds(1);
constexpr double kNewestSample = 0.5;  // weight of a sample of many bytes in the average
constexpr double kManyBytes = 1 << 20;
constexpr uint64_t kLargeMessage = 8;  // slices that make one to find out rates with

// Slices of a chain that is worth its doorbell.
constexpr size_t kLongChain = 16;

// Nothing leaves before a whole chain is written (some 40 ns a slice): of more slices than a chain
// is worth idle paths get one, then twice what is under way, until that keeps a link of 400 Gb/s
// busy while the longest of usual chains is written.
constexpr double kEnoughToGoOn = 64 << 10;

// What paths have yet to do of what is under way, and get done in a second, together.
struct Totals {
    double rates = 0;
    double bytes = 0;

    void add(const Meter& meter, ucs::Time now) {
        rates += meter.rate();
        bytes += meter.left(now);
    }
};

// Two chains keep a path busy: one under way while the other's completion is handled. What a path
// is to get yet is posted in halves, as its rate is not known for sure, but in no small pieces. A
// slice's part is a slice: what rounding down leaves over would cost a doorbell for each.
size_t portion(const Meter& meter, size_t length, uint64_t waiting, const Totals& all,
               ucs::Time now, const ScheduleRules& rules) {
    const size_t window = meter.window(rules);
    const size_t room = window > meter.under_way() ? window - meter.under_way() : length;
    // The first byte of a longer chain leaves no later, and nobody else is to have a share.
    if (rules.is_joined)
        return waiting <= room ? waiting : std::min(room, std::max(length, window / 2));
    const double share =
        (all.bytes + static_cast<double>(waiting)) * meter.rate() / all.rates - meter.left(now);
    size_t fair = share > static_cast<double>(length) ? static_cast<size_t>(share) : length;
    if (fair > 2 * kLongChain * rules.slice) fair /= 2;
    // The last slices are shared as is fair; less than a slice, as of small pieces, is no share.
    const bool is_full = waiting > kLongChain * rules.slice || fair < rules.slice;
    fair = (fair + (is_full ? rules.slice - 1 : rules.slice / 2)) / rules.slice * rules.slice;
    if (all.bytes < kEnoughToGoOn && waiting > kLongChain * length) {
        const size_t start = std::max(length, static_cast<size_t>(2 * all.bytes));
        fair = std::min(fair, start);
    }
    return std::min({room, std::max(length, window / 2), fair});
}

// Room for a slice, and rather for some: where something is under way, more room will come.
bool has_room_for_chain(const Meter& meter, size_t length, uint64_t waiting,
                        const ScheduleRules& rules) {
    const uint64_t some = std::min<uint64_t>(waiting, meter.window(rules) / 4);
    return meter.has_room(std::max<size_t>(length, some), rules);
}

// The others, who all go on meanwhile, have all that waits done before this path has a slice.
bool is_left_to_others(const Meter& own, std::span<const Meter* const> all, size_t length,
                       uint64_t waiting, ucs::Time now) {
    const double done = own.seconds_for(length, now);
    double alone = std::numeric_limits<double>::infinity();
    bool is_sooner = false;
    Totals others;
    for (const Meter* meter : all) {
        if (meter == &own) continue;
        others.add(*meter, now);
        alone = std::min(alone, meter->seconds_for(waiting, now));
        is_sooner = is_sooner || meter->seconds_for(length, now) < done;
    }
    const double together = (others.bytes + static_cast<double>(waiting)) / others.rates;
    return is_sooner && done > std::min(alone, together);
}

bool is_to_be_measured(const Meter& meter, uint64_t waiting, ucs::Time now,
                       const ScheduleRules& rules) {
    return meter.under_way() == 0 && waiting >= kLargeMessage * rules.slice &&
           !meter.is_rate_recent(now);
}

}  // namespace

double Meter::left(ucs::Time now) const {
    const auto all = static_cast<double>(under_way_);
    if (now <= last_) return all;
    return all - std::min(all / 2, rate_ * ucs::seconds(now - last_));
}

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

// A short sample says more of the way there and back than of the rate, and counts for little. What
// is averaged is the time of a byte: a burst that a link lets pass at once must not outweigh the
// wait that it is paid for with.
void Meter::sample(ucs::Time now) {
    const double measured = ucs::seconds(now - since_) / static_cast<double>(done_);
    const double share = std::min(1.0, static_cast<double>(done_) / kManyBytes);
    const double weight = share * (is_measured_ ? kNewestSample : 1);
    rate_ = 1 / (1 / rate_ + weight * (measured - 1 / rate_));
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
    if (rules.is_mixed) return mixed_window(rate_, rules);
    const double wanted = rate_ * ucs::seconds(kWindowTime);
    const size_t least = std::min(kMinWindowSlices * rules.slice, rules.window);
    return wanted >= static_cast<double>(rules.window)
               ? rules.window
               : std::max(least, static_cast<size_t>(wanted));
}

Choice choose(std::span<const Meter* const> paths, size_t length, uint64_t waiting, ucs::Time now,
              const ScheduleRules& rules) {
    Totals all;
    double soonest = std::numeric_limits<double>::infinity();
    int best = -1;
    for (size_t index = 0; index < paths.size(); ++index) {
        const Meter& meter = *paths[index];
        all.add(meter, now);
        if (!has_room_for_chain(meter, length, waiting, rules)) continue;
        if (paths.size() > 1 && is_to_be_measured(meter, waiting, now, rules)) {
            return {static_cast<int>(index), length};
        }
        const double done = meter.seconds_for(length, now);
        if (done < soonest) {
            soonest = done;
            best = static_cast<int>(index);
        }
    }
    if (best < 0) return {};
    const Meter& meter = *paths[static_cast<size_t>(best)];
    if (is_left_to_others(meter, paths, length, waiting, now)) return {};
    return {best, portion(meter, length, waiting, all, now, rules)};
}

size_t pull(const Meter& own, std::span<const Meter* const> all, size_t length, uint64_t waiting,
            ucs::Time now, const ScheduleRules& rules) {
    if (!has_room_for_chain(own, length, waiting, rules)) return 0;
    if (all.size() > 1 && is_to_be_measured(own, waiting, now, rules)) return length;
    if (is_left_to_others(own, all, length, waiting, now)) return 0;
    Totals totals;
    for (const Meter* meter : all) totals.add(*meter, now);
    return portion(own, length, waiting, totals, now, rules);
}

}  // namespace ucp::bulk

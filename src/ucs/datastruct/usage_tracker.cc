// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/usage_tracker.h"

#include <algorithm>
#include <cmath>

namespace ucs {

namespace {

// After a time without progress, old scores count no more intervals than these: what was not
// observed is not known to have been idle.
constexpr double kMaxCatchUp = 10;

UsageTracker::Options bounded(UsageTracker::Options options) {
    options.interval = std::max<Duration>(options.interval, 1us);
    options.windows = std::clamp(options.windows, 1u, 1000u);
    options.duty = std::clamp(options.duty, 1e-6, 1.0);
    options.decay = std::clamp(options.decay, 0.0, 0.9999);
    options.min_score = std::max(options.min_score, 0.0);
    options.bytes_per_message = std::max(options.bytes_per_message, 1.0);
    options.capacity = std::clamp<size_t>(options.capacity, 1, UsageTracker::kMaxCapacity);
    return options;
}

}  // namespace

UsageTracker::UsageTracker(const Options& options)
    : lru_(bounded(options).capacity),
      options_(bounded(options)),
      random_(options.seed),
      entries_(std::make_unique<Entry[]>(capacity())),
      order_(std::make_unique<uint16_t[]>(capacity())),
      free_(std::make_unique<uint16_t[]>(capacity())),
      candidates_(std::make_unique<Candidate[]>(capacity())) {
    for (size_t slot = capacity(); slot-- > 0;) {
        free_[free_count_++] = static_cast<uint16_t>(slot);
    }
}

UsageTracker::~UsageTracker() {
    // Owners may outlive their tracker.
    lru_.clear();
    for (size_t slot = 0; slot < capacity(); ++slot) {
        if (entries_[slot].hook != nullptr) entries_[slot].hook->entry = kNoEntry;
    }
}

size_t UsageTracker::memory_bytes() const {
    return sizeof(*this) - sizeof(lru_) + lru_.memory_bytes() +
           capacity() * (sizeof(Entry) + 2 * sizeof(uint16_t) + sizeof(Candidate));
}

double UsageTracker::weight(const Sample& sample) const {
    return static_cast<double>(sample.messages) +
           static_cast<double>(sample.bytes) / options_.bytes_per_message;
}

// Messages come as a Poisson process; each weighs as much as their mean.
double UsageTracker::weight_variance(const Sample& sample) const {
    const double total = weight(sample);
    return sample.messages == 0 ? 0 : total * total / static_cast<double>(sample.messages);
}

void UsageTracker::touch_slow(Hook& hook, const OwnerId& id, size_t bytes) {
    Sample& sample = lru_.touch(hook.sample, [this](Sample& oldest) {
        samples_ += oldest.messages;
        keep_evicted(oldest);
    });
    sample.hook = &hook;
    sample.id = id;
    ++sample.messages;
    sample.bytes += bytes;
}

// An owner with a rate keeps its count though its entry goes to somebody else. The count of one
// without is lost: it was seldom seen, or it would not be the oldest.
void UsageTracker::keep_evicted(const Sample& sample) {
    if (sample.hook->entry == kNoEntry) return;
    Entry& entry = entries_[sample.hook->entry];
    entry.sampled += weight(sample);
    entry.sampled_variance += weight_variance(sample);
}

void UsageTracker::arm(Time now) {
    if (armed_) return;
    armed_ = true;
    armed_since_ = now;
}

void UsageTracker::disarm(Time now) {
    if (!armed_) return;
    armed_ = false;
    armed_time_ += now - armed_since_;
}

bool UsageTracker::is_idle() const {
    bool is_counted = false;
    lru_.for_each([&](const Sample& sample) { is_counted |= sample.messages != 0; });
    return !is_counted && free_count_ == capacity();
}

void UsageTracker::advance(Time now) {
    if (options_.interval == kForever) {
        next_event_ = kNever;
        return;
    }
    if (!started_) {
        started_ = true;
        plan_interval(now);
    }
    disarm(now);

    const Time interval_end = deadline(interval_start_, options_.interval);
    if (now >= interval_end && armed_time_ > Duration::zero()) {
        close_interval(now);
        plan_interval(now);
    }

    const Duration length = std::max<Duration>(
        1ns, from_seconds(seconds(options_.interval) * options_.duty) / options_.windows);
    const bool overdue = now >= deadline(interval_start_, options_.interval);
    if (overdue || (window_ < options_.windows && now >= window_start_)) {
        arm(now);
        next_event_ = deadline(now, length);
        // Windows missed meanwhile are not made up for.
        while (window_ < options_.windows && window_start_ < next_event_) {
            ++window_;
            window_start_ = window_start(window_);
        }
    } else {
        next_event_ = window_ < options_.windows ? window_start_
                                                 : deadline(interval_start_, options_.interval);
    }
}

void UsageTracker::plan_interval(Time start) {
    interval_start_ = start;
    armed_time_ = Duration::zero();
    window_ = 0;
    window_start_ = window_start(0);
}

// One window in each of as many equal parts of the interval, anywhere in its part.
Time UsageTracker::window_start(unsigned window) {
    const double part = seconds(options_.interval) / options_.windows;
    const double offset = part * (window + (1 - options_.duty) * random_.uniform());
    return deadline(interval_start_, from_seconds(offset));
}

void UsageTracker::close_interval(Time now) {
    const double intervals =
        std::min(seconds(now - interval_start_) / seconds(options_.interval), kMaxCatchUp);
    const double decay = std::pow(options_.decay, intervals);
    const double observed = seconds(armed_time_);
    decay_and_add(decay, observed);
    admit_newcomers(decay, observed);
    ++rounds_;
}

void UsageTracker::decay_and_add(double decay, double observed) {
    lru_.for_each([this](Sample& sample) {
        samples_ += sample.messages;
        if (sample.messages == 0 || sample.hook->entry == kNoEntry) return;
        keep_evicted(sample);
        sample.messages = 0;
        sample.bytes = 0;
    });
    for (size_t slot = 0; slot < capacity(); ++slot) {
        Entry& entry = entries_[slot];
        if (entry.hook == nullptr) continue;
        const double share = (1 - decay) / observed;
        entry.rate = decay * entry.rate + share * entry.sampled;
        entry.variance = decay * decay * entry.variance + share * share * entry.sampled_variance;
        entry.sampled = 0;
        entry.sampled_variance = 0;
        // Far below what could be promoted, an owner only takes up room.
        if (entry.rate < options_.min_score * 0.01) leave(entry);
    }
}

void UsageTracker::admit_newcomers(double decay, double observed) {
    size_t count = 0;
    lru_.for_each([&](Sample& sample) {
        if (sample.messages == 0) return;
        const double share = (1 - decay) / observed;
        candidates_[count++] = {&sample, share * weight(sample),
                                share * share * weight_variance(sample)};
    });
    std::sort(candidates_.get(), candidates_.get() + count,
              [](const Candidate& a, const Candidate& b) {
                  return a.rate != b.rate ? a.rate > b.rate : a.sample->id < b.sample->id;
              });
    // Best first, each takes a free entry or the lowest one left, if that is lower.
    size_t victims = count > free_count_ ? sort_entries() : 0;
    for (size_t index = 0; index < count; ++index) {
        const Candidate& candidate = candidates_[index];
        if (free_count_ == 0) {
            if (victims == 0) break;
            Entry& victim = entries_[order_[--victims]];
            if (victim.rate >= candidate.rate) break;
            leave(victim);
        }
        enter(candidate);
    }
    lru_.for_each([](Sample& sample) {
        sample.messages = 0;
        sample.bytes = 0;
    });
}

// Puts the entries in use into order_, highest rate first; returns how many they are.
size_t UsageTracker::sort_entries() {
    size_t count = 0;
    for (size_t slot = 0; slot < capacity(); ++slot) {
        if (entries_[slot].hook != nullptr) order_[count++] = static_cast<uint16_t>(slot);
    }
    std::sort(order_.get(), order_.get() + count, [this](uint16_t left, uint16_t right) {
        const Entry& a = entries_[left];
        const Entry& b = entries_[right];
        return a.rate != b.rate ? a.rate > b.rate : a.id < b.id;
    });
    return count;
}

void UsageTracker::enter(const Candidate& candidate) {
    const uint16_t slot = free_[--free_count_];
    const Sample& sample = *candidate.sample;
    entries_[slot] = {.hook = sample.hook,
                      .id = sample.id,
                      .rate = candidate.rate,
                      .variance = candidate.variance};
    sample.hook->entry = slot;
}

void UsageTracker::leave(Entry& entry) {
    entry.hook->entry = kNoEntry;
    entry = {};
    free_[free_count_++] = static_cast<uint16_t>(&entry - entries_.get());
}

void UsageTracker::remove(Hook& hook) {
    lru_.remove(hook.sample);
    if (hook.entry != kNoEntry) leave(entries_[hook.entry]);
}

UsageTracker::Usage UsageTracker::usage_of(const Hook& hook) const {
    return hook.entry == kNoEntry ? Usage{} : usage_of(entries_[hook.entry]);
}

}  // namespace ucs

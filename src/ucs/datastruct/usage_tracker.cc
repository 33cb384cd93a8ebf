// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/datastruct/usage_tracker.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace ucs {
namespace {

// An interval that was lengthened by progress that came late counts no more than these.
constexpr double kMaxCatchUp = 10;

// Whoever is to take another owner's entry must be busier than that by so much, and by so many
// standard errors of his first count: of many equals the luckiest would else replace one another
// all the time, and what is known of the others would be lost.
constexpr double kAdvantage = 2, kDoubt = 3;

// Who sends so many messages on average are all who send: a few of one each would be of many.
constexpr uint64_t kRepeated = 8;

// So many windows find out that somebody has begun to send, in an interval.
constexpr int kEagerWindows = 200;

// An interval is off if it saw less than half of the mean or more than twice, and that by so many
// standard deviations.
constexpr double kOff = 2, kOffDeviations = 2;

// base^exponent to six digits, of small numbers that are not negative. std::pow() is exact, by
// tables of the C library's that nothing else here uses: the first lane of a process would wait
// some 10 us for their pages.
double power(double base, double exponent) {
    const auto whole = static_cast<unsigned>(exponent);
    double result = 1;
    for (unsigned n = 0; n < whole; ++n) result *= base;
    constexpr int kBits = 20;
    double left = exponent - whole, root = base;
    for (int bit = 0; bit < kBits && left > 0; ++bit) {
        root = std::sqrt(root);
        left *= 2;
        if (left < 1) continue;
        left -= 1;
        result *= root;
    }
    return result;
}

}  // namespace

UsageTracker::UsageTracker(const Options& options, Valuer valuer)
    : lru_(options.capacity),
      options_(options),
      valuer_(std::move(valuer)),
      random_(options.seed),
      entries_(std::make_unique<Entry[]>(capacity())),
      free_(std::make_unique<uint16_t[]>(capacity())),
      newcomers_(std::make_unique<Newcomer[]>(capacity())),
      victims_(std::make_unique<uint16_t[]>(capacity())) {
    assert(options_.capacity >= 1 && options_.capacity <= kMaxCapacity);
    assert(options_.interval >= 1us && options_.windows >= 1);
    assert(options_.duty > 0 && options_.duty <= 1);
    assert(options_.decay >= 0 && options_.decay < 1);
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
           capacity() * (sizeof(Entry) + sizeof(Newcomer) + 2 * sizeof(uint16_t));
}

UsageTracker::Sample& UsageTracker::sample_of(Hook& hook, const OwnerId& id) {
    Sample& sample = lru_.touch(hook.sample, [this](Sample& oldest) { keep_evicted(oldest); });
    sample.hook = &hook;
    sample.id = id;
    return sample;
}

void UsageTracker::touch_slow(Hook& hook, const OwnerId& id, size_t bytes) {
    Sample& sample = sample_of(hook, id);
    ++sample.messages;
    sample.bytes += bytes;
}

void UsageTracker::count(Hook& hook, OwnerId id, size_t bytes) {
    Sample& sample = sample_of(hook, id);
    ++sample.whole_messages;
    sample.whole_bytes += bytes;
}

// Moves what was counted into the entry. Messages that come by chance do so as a Poisson process;
// each weighs as much as their mean.
void UsageTracker::take_up(Entry& entry, Sample& sample) {
    const auto add = [&entry](uint64_t messages, uint64_t bytes, double& sum, double& variance,
                              Traffic& traffic) {
        if (messages == 0) return;
        traffic.messages += static_cast<float>(messages);
        traffic.bytes += static_cast<float>(bytes);
        const double worth = entry.value.of(messages, bytes);
        sum += worth;
        variance += worth * worth / static_cast<double>(messages);
    };
    add(sample.messages, sample.bytes, entry.sampled, entry.sampled_variance,
        entry.sampled_traffic);
    add(sample.whole_messages, sample.whole_bytes, entry.whole, entry.whole_variance,
        entry.whole_traffic);
    sample.messages = sample.bytes = 0;
    sample.whole_messages = sample.whole_bytes = 0;
}

// An owner with a rate keeps its count though its sample goes to somebody else. The count of one
// without is lost: it was seldom seen, or it would not be the oldest.
void UsageTracker::keep_evicted(Sample& sample) {
    if (sample.is_empty()) return;
    samples_ += sample.messages + sample.whole_messages;
    evicted_ = true;
    if (sample.hook->entry != kNoEntry) take_up(entries_[sample.hook->entry], sample);
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

void UsageTracker::expect_newcomers(Time now) {
    expecting_until_ = deadline(now, options_.interval);
    if (is_eager_ || !started_ || is_closing()) return;
    next_event_ = std::min(next_event_, now);
}

UsageTracker::Beginning UsageTracker::beginning() const {
    Beginning result;
    lru_.for_each([&](const Sample& sample) {
        if (sample.is_empty()) return;
        const bool is_known = sample.hook->entry != kNoEntry;
        result.is_of_known |= is_known;
        if (is_known) return;
        const uint64_t messages = sample.messages + sample.whole_messages;
        Beginning::Part& part = sample.hook->competes ? result.competing : result.without_rivals;
        ++part.senders;
        part.messages += messages;
    });
    return result;
}

// Of those of whom nothing is known yet, all that send may be promoted: few of them compete for
// places, after a time in which nobody sent, or none does.
bool UsageTracker::has_begun() const {
    if (!is_eager_ || evicted_) return false;
    const Beginning seen = beginning();
    Beginning::Part part = seen.without_rivals;
    if (is_quiet() && free_count_ == capacity() && seen.competing.senders <= options_.few) {
        part.senders += seen.competing.senders;
        part.messages += seen.competing.messages;
    }
    return part.senders > 0 && part.messages >= kRepeated * part.senders;
}

// Somebody new may send at any moment. Those who are known already have time, and of many the best
// are not found by a look at all that the first of them send.
bool UsageTracker::is_eager(Time now) const {
    if (now < expecting_until_) return true;
    if (options_.few == 0 || !is_quiet()) return false;
    const Beginning seen = beginning();
    return !seen.is_of_known && seen.competing.senders <= options_.few;
}

bool UsageTracker::was_silent() const {
    bool is_silent = !evicted_;
    lru_.for_each([&](const Sample& sample) { is_silent &= sample.is_empty(); });
    return is_silent;
}

void UsageTracker::advance(Time now) {
    if (options_.interval == kForever) {
        next_event_ = kNever;
        return;
    }
    if (!started_) {
        started_ = true;
        plan_interval(now);
    } else {
        skip_pause(now);
    }
    disarm(now);

    const Time interval_end = deadline(interval_start_, options_.interval);
    const bool has_windows = armed_time_ > Duration::zero();
    if (is_closing() || (has_windows && (now >= interval_end || has_begun()))) {
        // Whoever calls seldom has time for all of it.
        const bool is_late = now - next_event_ > options_.interval / 8;
        if (!close_interval(now, options_.in_steps && !is_late)) {
            next_event_ = now;
            return;
        }
        plan_interval(now);
    }

    is_eager_ = is_eager(now);
    const Duration length = std::max<Duration>(
        1ns, is_eager_
                 ? options_.interval / kEagerWindows
                 : from_seconds(seconds(options_.interval) * options_.duty) / options_.windows);
    const bool overdue = now >= deadline(interval_start_, options_.interval);
    if (is_eager_ || overdue || (window_ < options_.windows && now >= window_start_)) {
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

// A call that is late by more than an interval ends a time in which the program did something else:
// all that is under way goes on as if that time had not been. A window that was open then counts
// for its planned length.
void UsageTracker::skip_pause(Time now) {
    const Duration late = now - next_event_;
    if (late <= options_.interval) return;
    interval_start_ += late;
    window_start_ += late;
    armed_since_ += late;
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

// @return whether it is closed
bool UsageTracker::close_interval(Time now, bool in_steps) {
    if (!is_closing()) begin_closing(now);
    do {
        closing_step();
    } while (!in_steps && is_closing());
    return !is_closing();
}

void UsageTracker::begin_closing(Time now) {
    const double length = seconds(now - interval_start_);
    const double intervals = std::min(length / seconds(options_.interval), kMaxCatchUp);
    interval_ = {.decay = power(options_.decay, intervals),
                 .first_decay = power(options_.decay, std::max(intervals, 1.0)),
                 .armed = seconds(armed_time_),
                 .length = length};
    closing_ = Closing::kSamples;
    place_ = newcomer_count_ = victim_count_ = 0;
    is_silent_ = !evicted_;
    evicted_ = false;
}

// Owners may go between two steps, and whole messages be counted: a place is looked at anew.
void UsageTracker::closing_step() {
    const size_t end = std::min(place_ + kStep, capacity());
    switch (closing_) {
        case Closing::kSamples: {
            // To find out what an unknown one's traffic is worth takes as long as all else.
            size_t left = kStep;
            while (place_ < capacity() && left > 0) left -= take_sample(place_++) ? 2 : 1;
            if (place_ < capacity()) return;
            note_silence();
            closing_ = stands_still_ ? Closing::kNone : Closing::kEntries;
            place_ = 0;
            return;
        }
        case Closing::kEntries:
            while (place_ < end) renew_entry(place_++);
            if (place_ == capacity()) closing_ = Closing::kNewcomers;
            return;
        default:
            for (size_t left = kStep; left > 0 && newcomer_count_ > 0; --left) admit_best();
            if (newcomer_count_ > 0) return;
            closing_ = Closing::kNone;
            ++rounds_;
    }
}

// @return whether it was a newcomer's
bool UsageTracker::take_sample(size_t slot) {
    Sample* sample = lru_.at(slot);
    if (sample == nullptr || sample->is_empty()) return false;
    is_silent_ = false;
    if (sample->hook->entry != kNoEntry) {
        samples_ += sample->messages + sample->whole_messages;
        take_up(entries_[sample->hook->entry], *sample);
        return false;
    }
    const Value value = value_of(sample->id);
    const double seen = interval_.rate_of(value.of(sample->messages, sample->bytes),
                                          value.of(sample->whole_messages, sample->whole_bytes));
    newcomers_[newcomer_count_++] = {value, seen, static_cast<uint16_t>(slot)};
    std::push_heap(newcomers_.get(), newcomers_.get() + newcomer_count_);
    return true;
}

void UsageTracker::note_silence() {
    silent_time_ = is_silent_ ? silent_time_ + from_seconds(interval_.length) : Duration::zero();
    stands_still_ = silent_time_ > Duration::zero() && silent_time_ <= options_.hold;
}

// Counts the intervals in a row that are off to the same side. The first of them must stand out
// from the noise.
void UsageTracker::note_trend(Entry& entry, double seen, double mean) {
    const int side = kOff * seen < mean ? -1 : seen > kOff * mean ? 1 : 0;
    const bool goes_on = side * entry.trend > 0;
    if (!goes_on) entry.trend = 0;
    const double stands_out = kOffDeviations * std::sqrt(entry.noise);
    if (goes_on || std::abs(seen - mean) > stands_out) entry.trend += side;
}

// The noise is that of what the intervals saw about their mean; of the first there is only what
// chance would make of its count. Where the mean has moved a trend shows it: its n-th interval
// counts as n, and is no noise.
void UsageTracker::renew(Entry& entry) const {
    double decay = entry.youth == 1 ? interval_.first_decay : interval_.decay;
    const double seen = interval_.rate_of(entry.sampled, entry.whole);
    if (entry.youth == 1) {
        entry.noise = interval_.variance_of(entry.sampled_variance, entry.whole_variance);
    } else {
        const double mean = entry.mean(), distance = seen - mean;
        note_trend(entry, seen, mean);
        const int in_a_row = std::min(std::abs(entry.trend), static_cast<int>(options_.trend));
        for (int n = 1; n < in_a_row; ++n) decay *= interval_.decay;
        if (in_a_row < 2) entry.noise = decay * entry.noise + (1 - decay) * distance * distance;
    }
    entry.rate = decay * entry.rate + (1 - decay) * seen;
    for (float Traffic::*part : {&Traffic::messages, &Traffic::bytes}) {
        const double now =
            interval_.rate_of(entry.sampled_traffic.*part, entry.whole_traffic.*part);
        const double mean = decay * entry.traffic.*part + (1 - decay) * now;
        entry.traffic.*part = static_cast<float>(mean);
    }
    entry.sampled_traffic = entry.whole_traffic = {};
    entry.youth *= decay;
    entry.sampled = entry.sampled_variance = 0;
    entry.whole = entry.whole_variance = 0;
}

void UsageTracker::renew_entry(size_t slot) {
    Entry& entry = entries_[slot];
    if (entry.hook == nullptr) return;
    renew(entry);
    // Far below what could be promoted, an owner only takes up room.
    if (entry.rate < options_.min_score * 0.01) return leave(entry);
    if (newcomer_count_ <= free_count_) return;
    victims_[victim_count_++] = static_cast<uint16_t>(slot);
    std::push_heap(victims_.get(), victims_.get() + victim_count_, IsBusier{entries_.get()});
}

// The best newcomer left takes a free entry, or that of the least busy one.
void UsageTracker::admit_best() {
    std::pop_heap(newcomers_.get(), newcomers_.get() + newcomer_count_);
    const Newcomer& best = newcomers_[--newcomer_count_];
    Sample* sample = lru_.at(best.sample);
    // Its owner may have gone since, or another one have taken its place.
    if (sample == nullptr || sample->is_empty() || sample->hook->entry != kNoEntry) return;
    samples_ += sample->messages + sample->whole_messages;
    Entry newcomer{.hook = sample->hook, .id = sample->id, .value = best.value};
    take_up(newcomer, *sample);
    renew(newcomer);
    if (newcomer.rate > 0 && (free_count_ > 0 || make_room(newcomer))) enter(newcomer);
}

// Means are compared: rates begin at zero, and by those a newcomer would have to be busier by
// 1 / (1 - decay).
bool UsageTracker::make_room(const Entry& newcomer) {
    const double least = newcomer.mean() - kDoubt * std::sqrt(newcomer.noise);
    if (victim_count_ == 0) return false;
    Entry& victim = entries_[victims_[0]];
    if (least <= kAdvantage * victim.mean()) return false;
    std::pop_heap(victims_.get(), victims_.get() + victim_count_--, IsBusier{entries_.get()});
    leave(victim);
    return true;
}

void UsageTracker::enter(const Entry& newcomer) {
    const uint16_t slot = free_[--free_count_];
    entries_[slot] = newcomer;
    newcomer.hook->entry = slot;
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

void UsageTracker::revalue(Hook& hook) {
    if (hook.entry == kNoEntry) return;
    Entry& entry = entries_[hook.entry];
    const Value value = value_of(entry.id);
    const double factor =
        entry.value.per_message > 0 ? value.per_message / entry.value.per_message : 0;
    entry.value = value;
    entry.rate *= factor;
    entry.noise *= factor * factor;
    entry.sampled *= factor;
    entry.sampled_variance *= factor * factor;
    entry.whole *= factor;
    entry.whole_variance *= factor * factor;
}

// Of a mean in which each interval counts by `decay` less than the one after it.
UsageTracker::Usage UsageTracker::usage_of(const Entry& entry) const {
    const double weight = (1 - options_.decay) / (1 + options_.decay);
    const double seen = 1 - entry.youth;  // the rest of the means is their start, zero
    return {entry.id, entry.rate, std::sqrt(entry.noise * weight * (1 - entry.youth * entry.youth)),
            entry.traffic.messages / seen, entry.traffic.bytes / seen};
}

UsageTracker::Usage UsageTracker::usage_of(const Hook& hook) const {
    return hook.entry == kNoEntry ? Usage{} : usage_of(entries_[hook.entry]);
}

}  // namespace ucs

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ucs/datastruct/lru.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"

namespace ucs {

// Finds the few busiest of many objects ("owners"; endpoints, say) at next to no cost.
//
// Stage one: in short windows, at random moments, the tracker is armed, and the owners report what
// they send. A fixed-size LRU counts messages and bytes of the recently used. Counts over the time
// armed give absolute rates, which compare between processes. Random moments, because windows at a
// fixed pace would see all or nothing of traffic with the same pace.
//
// Stage two: once in each interval every rate decays and takes up what was seen,
//     rate = decay * rate + (1 - decay) * (messages + bytes / bytes_per_message) per second,
// so it tends to the true one, and idle owners sink though nobody sends.
//
// Who of them is promoted or demoted is for a Ranking (ranking.h), which these rates feed: the
// other end of a link has its own, and only the sum of both ranks.
//
// Cost: an owner embeds a Hook of 4 bytes. The tracker takes memory when constructed only, about
// 120 bytes * capacity, whatever the number of owners. memory_bytes() is exact.
//
// The send path, with a test that it has anyway and that includes armed():
//     if (tracker.armed()) [[unlikely]] tracker.touch(hook, id, bytes);
// The progress path, as often or as seldom as it likes:
//     tracker.progress(now);
// One thread at a time.
class UsageTracker {
  public:
    // Unique among the owners of a tracker.
    using OwnerId = uint64_t;

    struct Hook;

  private:
    // The counters are apart, or compilers pack both into a vector: twice the instructions.
    struct Sample {
        uint64_t messages = 0;
        Hook* hook = nullptr;
        uint64_t bytes = 0;
        OwnerId id = 0;
    };
    using SampleLru = Lru<Sample>;
    static constexpr uint16_t kNoEntry = 0xffff;

  public:
    struct Options {
        size_t capacity = 64;             // owners whose rates are kept, and samples
        Duration interval = 100ms;        // between new rates; kForever: the tracker never arms
        unsigned windows = 4;             // per interval, at least 1
        double duty = 0.1;                // part of the interval that is armed, in (0, 1]
        double decay = 0.8;               // per interval, in [0, 1)
        double min_score = 100;           // an owner below a hundredth of it is forgotten
        double bytes_per_message = 4096;  // so many bytes weigh as much as one message
        uint64_t seed = 1;                // of the windows' places
    };

    static constexpr size_t kMinCapacity = 32;  // that is worth its while; less is possible
    static constexpr size_t kMaxCapacity = 32768;

    // The part of the tracker inside an owner. Must stay where it is while tracked() and be removed
    // before the owner's memory goes.
    struct Hook {
        constexpr Hook() = default;
        bool tracked() const { return sample.in_use() || entry != kNoEntry; }

        // For the tracker to set: the entries in its LRU and in its table.
        SampleLru::Slot sample;
        uint16_t entry = kNoEntry;
    };

    // In weighted messages per second.
    struct Usage {
        OwnerId id;
        double rate;
        double deviation;  // its standard error: few counted messages say little
    };

    // Options outside their bounds are brought to the nearest value inside. No window is armed
    // before the first progress().
    explicit UsageTracker(const Options& options);
    UsageTracker(const UsageTracker&) = delete;
    UsageTracker& operator=(const UsageTracker&) = delete;
    ~UsageTracker();

    bool armed() const { return armed_; }

    // Counts one message of `bytes`. Only while armed. The id is read only if the owner is not the
    // newest.
    void touch(Hook& hook, const OwnerId& id, size_t bytes) {
        if (!lru_.is_newest(hook.sample)) [[unlikely]] {
            touch_slow(hook, id, bytes);
            return;
        }
        Sample& sample = lru_.newest();
        ++sample.messages;
        sample.bytes += bytes;
    }

    // Opens and closes windows and, at the end of an interval, brings the rates up to date. A
    // window that is opened late, since progress was late, still gets its full length; an interval
    // without any lasts until it had one. One comparison when nothing is due.
    void progress(Time now) {
        if (now >= next_event_) [[unlikely]]
            advance(now);
    }

    // When progress() has something to do next; kNever if the tracker never arms.
    Time next_event() const { return next_event_; }

    // No rate is kept and nothing counted: until somebody sends, windows find nothing. Who sleeps
    // need not wake for them.
    bool is_idle() const;

    // The schedule does this by itself; also for callers with a better idea of a window.
    void arm(Time now);
    void disarm(Time now);

    // Forgets an owner. No effect on one that is not tracked.
    void remove(Hook& hook);

    // All zero if the owner is not in the table.
    Usage usage_of(const Hook& hook) const;

    // Calls function(const Usage&) for each owner in the table. Not to be used with remove()
    // inside.
    template <typename Function>
    void for_each(Function&& function) const {
        for (size_t slot = 0; slot < capacity(); ++slot) {
            if (entries_[slot].hook != nullptr) function(usage_of(entries_[slot]));
        }
    }

    // Intervals closed so far: so often were the rates brought up to date.
    uint64_t rounds() const { return rounds_; }
    // Messages counted in those intervals.
    uint64_t samples() const { return samples_; }
    size_t capacity() const { return lru_.capacity(); }
    size_t memory_bytes() const;
    const Options& options() const { return options_; }

  private:
    struct Entry {
        Hook* hook = nullptr;  // null: the entry is free
        OwnerId id = 0;
        double rate = 0;
        double variance = 0;          // of the rate, as far as it comes from counting (Poisson)
        double sampled = 0;           // weighted messages in this interval, kept at evictions
        double sampled_variance = 0;  // of that count
    };

    struct Candidate {
        Sample* sample;
        double rate;
        double variance;
    };

    void touch_slow(Hook& hook, const OwnerId& id, size_t bytes);
    double weight(const Sample& sample) const;
    double weight_variance(const Sample& sample) const;
    void keep_evicted(const Sample& sample);

    void advance(Time now);
    void plan_interval(Time start);
    Time window_start(unsigned window);
    void close_interval(Time now);
    void decay_and_add(double decay, double observed);
    void admit_newcomers(double decay, double observed);
    size_t sort_entries();
    void enter(const Candidate& candidate);
    void leave(Entry& entry);
    static Usage usage_of(const Entry& entry) {
        return {entry.id, entry.rate, std::sqrt(entry.variance)};
    }

    SampleLru lru_;
    bool armed_ = false;
    Time next_event_{};

    Options options_;
    Random random_;

    bool started_ = false;
    Time interval_start_{};
    Time window_start_{};
    unsigned window_ = 0;  // of this interval, the next to open
    Time armed_since_{};
    Duration armed_time_{};  // in this interval

    std::unique_ptr<Entry[]> entries_;
    std::unique_ptr<uint16_t[]> order_;
    std::unique_ptr<uint16_t[]> free_;
    std::unique_ptr<Candidate[]> candidates_;
    size_t free_count_ = 0;
    uint64_t rounds_ = 0;
    uint64_t samples_ = 0;
};

}  // namespace ucs

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
// Stage two: once in each interval every score decays and takes up the rate seen,
//     score = decay * score + (1 - decay) * (messages + bytes / bytes_per_message) per second,
// so it tends to the rate itself and idle owners sink though nobody sends. The other half of a
// link's score, the peer's, may be set from outside; it decays in intervals that bring no news of
// it. Owners are ranked by the sum, then by id: a strict total order. The first max_promoted that
// score at least min_score are promoted; an incumbent's score counts (1 + margin) times, so that
// near-ties change nothing.
//
// Cost: an owner embeds a Hook of 4 bytes. The tracker takes memory when constructed only,
//     about 130 bytes * capacity, with capacity = max(32, 4 * max_promoted) unless it is given,
// whatever the number of owners: 8 KiB for 16 promoted. memory_bytes() is exact.
//
// The send path, with a test that it has anyway and that includes armed():
//     if (tracker.armed()) [[unlikely]] tracker.touch(hook, id, bytes);
// The progress path, as often or as seldom as it likes:
//     tracker.progress(now);
// One thread at a time.
class UsageTracker {
  public:
    // Names an owner in rankings and breaks ties; the same at both ends of a link, so that both
    // order links alike. Unique among the owners of a tracker.
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
    static constexpr uint16_t kNoScore = 0xffff;

  public:
    struct Options {
        size_t max_promoted = 16;         // any; brought down to kMaxPromoted
        Duration interval = 100ms;        // between rankings; kForever: the tracker never arms
        unsigned windows = 4;             // per interval, at least 1
        double duty = 0.1;                // part of the interval that is armed, in (0, 1]
        double decay = 0.8;               // per interval, in [0, 1)
        double margin = 0.2;              // of incumbents over challengers, at least 0
        double min_score = 100;           // below it an owner is not worth a promotion
        double bytes_per_message = 4096;  // so many bytes weigh as much as one message
        size_t capacity = 0;              // entries of LRU and score table; 0: see above
        uint64_t seed = 1;                // of the windows' places
    };

    static constexpr size_t kMaxPromoted = 8192;
    static constexpr size_t kMinCapacity = 32;

    // The part of the tracker inside an owner. Must stay where it is while tracked() and be removed
    // before the owner's memory goes.
    struct Hook {
        constexpr Hook() = default;
        bool tracked() const { return sample.in_use() || score != kNoScore; }

        // For the tracker to set: the entries in its LRU and in its table of scores.
        SampleLru::Slot sample;
        uint16_t score = kNoScore;
    };

    // Told of changes by progress(), demotions first, each in the order of rank. May call remove()
    // and set_remote(), not progress(). Not owned.
    class Listener {
      public:
        virtual void promote(OwnerId id, double score) = 0;
        virtual void demote(OwnerId id, double score) = 0;

      protected:
        ~Listener() = default;
    };

    // Scores are in weighted messages per second.
    struct Rank {
        OwnerId id;
        double local;
        double remote;
        bool promoted;
        double deviation;  // standard error of local: few counted messages say little

        double score() const { return local + remote; }
    };

    // Options outside their bounds are brought to the nearest value inside. No window is armed
    // before the first progress(). `listener` may be null.
    UsageTracker(const Options& options, Listener* listener);
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

    // Opens and closes windows and, at the end of an interval, ranks. A window that is opened late,
    // since progress was late, still gets its full length; an interval without any lasts until it
    // had one. One comparison when nothing is due.
    void progress(Time now) {
        if (now >= next_event_) [[unlikely]]
            advance(now);
    }

    // When progress() has something to do next; kNever if the tracker never arms.
    Time next_event() const { return next_event_; }

    // Nothing is scored and nothing counted: until somebody sends, windows find nothing. Who sleeps
    // need not wake for them.
    bool is_idle() const;

    // The schedule does this by itself; also for callers with a better idea of a window.
    void arm(Time now);
    void disarm(Time now);

    // Sets the peer's half of an owner's score, as of now. With the table full it replaces the
    // lowest unpromoted owner that scores less; if there is none, nothing happens: false.
    bool set_remote(Hook& hook, OwnerId id, double score);

    // Forgets an owner, without a call to demote. No effect on one that is not tracked.
    void remove(Hook& hook);

    // The owner's standing; all zero if it is not in the table.
    Rank rank_of(const Hook& hook) const;

    // Calls function(const Rank&) in the order of the last ranking, best first, removed ones left
    // out. Not to be used with remove() or set_remote() inside.
    template <typename Function>
    void for_each(Function&& function) const {
        for (size_t position = 0; position < ranked_; ++position) {
            const Score& score = scores_[order_[position]];
            if (score.ranked) function(rank_of(score));
        }
    }

    // Intervals closed so far, that is rankings.
    uint64_t rounds() const { return rounds_; }
    // Messages counted in those intervals.
    uint64_t samples() const { return samples_; }
    size_t promoted_count() const { return promoted_; }
    size_t capacity() const { return lru_.capacity(); }
    size_t memory_bytes() const;
    const Options& options() const { return options_; }

  private:
    struct Score {
        Hook* hook = nullptr;  // null: the entry is free
        OwnerId id = 0;
        double local = 0;
        double remote = 0;
        double variance = 0;          // of local, as far as it comes from counting (Poisson)
        double sampled = 0;           // weighted messages in this interval, kept at evictions
        double sampled_variance = 0;  // of that count
        bool remote_is_news = false;  // set since the last ranking
        bool promoted = false;
        bool wanted = false;  // by the ranking under way
        bool ranked = false;  // took part in the last ranking

        double total() const { return local + remote; }
    };

    struct Candidate {
        Sample* sample;
        double local;
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
    void rank();
    void notify();

    size_t sort_victims();
    Score* lowest_below(double total);
    Score& enter(Score& place, Hook& hook, OwnerId id);
    Score* free_place();
    void leave(Score& score);
    bool before(const Score& left, const Score& right) const;
    double standing(const Score& score) const;
    static Rank rank_of(const Score& score) {
        return {score.id, score.local, score.remote, score.promoted, std::sqrt(score.variance)};
    }

    SampleLru lru_;
    bool armed_ = false;
    Time next_event_{};

    Options options_;
    Listener* listener_;
    Random random_;

    bool started_ = false;
    Time interval_start_{};
    Time window_start_{};
    unsigned window_ = 0;  // of this interval, the next to open
    Time armed_since_{};
    Duration armed_time_{};  // in this interval

    std::unique_ptr<Score[]> scores_;
    std::unique_ptr<uint16_t[]> order_;
    std::unique_ptr<uint16_t[]> free_;
    std::unique_ptr<Candidate[]> candidates_;
    size_t free_count_ = 0;
    size_t ranked_ = 0;
    size_t promoted_ = 0;
    uint64_t rounds_ = 0;
    uint64_t samples_ = 0;
};

}  // namespace ucs

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
//     rate = decay * rate + (1 - decay) * (messages * per_message + bytes * per_byte) per second,
// so it tends to the true one, and idle owners sink while others send. What a message and a byte
// are worth may differ from owner to owner (Value). Of intervals in a row that all see far more
// than the mean, or all far less, the second counts as two, the third as three and so on: traffic
// has moved, and a mean that went on at its pace would be long in following.
//
// When somebody sends after a time in which nobody did, a program has begun something. If there are
// so few of them that all may be promoted, who is busier does not matter: until then the tracker is
// armed all the time, and the first of many short windows that sees some messages of each ends the
// interval. The same holds for a while after expect_newcomers(), for those who have places enough
// whatever the others do (Hook::competes).
//
// Time stands still while progress() is not called for more than an interval: the program
// computes, and what it does not send says nothing. It also stands still, for `hold` at most, while
// nobody sends at all: then the program waits for others that compute.
//
// Who of them is promoted or demoted is for a Ranking (ranking.h), which these rates feed: the
// other end of a link has its own, and only the sum of both ranks.
//
// Messages so large that counting them costs nothing beside sending them are all counted (count()):
// windows would see few of them.
//
// Cost: an owner embeds a Hook of 4 bytes. The tracker takes memory when constructed only, about
// 220 bytes * capacity, whatever the number of owners. memory_bytes() is exact.
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
        // Of count(), in this interval.
        uint64_t whole_messages = 0;
        uint64_t whole_bytes = 0;

        bool is_empty() const { return messages == 0 && whole_messages == 0; }
    };
    using SampleLru = Lru<Sample>;
    static constexpr uint16_t kNoEntry = 0x7fff;

  public:
    // What traffic of an owner is worth, in the unit of its rate.
    struct Value {
        double per_message = 1;
        double per_byte = 1.0 / 4096;
        double of(uint64_t messages, uint64_t bytes) const {
            return static_cast<double>(messages) * per_message +
                   static_cast<double>(bytes) * per_byte;
        }
    };
    // Asked when an owner is about to enter the table, and by revalue(). Worth nothing: it does not
    // enter.
    using Valuer = std::function<Value(OwnerId)>;

    struct Options {
        size_t capacity = 64;  // owners whose rates are kept, and samples; 1 to kMaxCapacity
        // Between new rates, at least 1 us; kForever: the tracker never arms.
        Duration interval = 100ms;
        unsigned windows = 4;  // per interval, at least 1
        double duty = 0.1;     // part of the interval that is armed, in (0, 1]
        double decay = 0.8;    // per interval, in [0, 1)
        unsigned trend = 4;    // so often an interval that follows a trend counts at most; 1: once
        size_t few = 0;        // so many may all be promoted
        double min_score = 100;  // an owner below a hundredth of it is forgotten
        Duration hold{};         // so long rates stand still while nobody sends
        uint64_t seed = 1;       // of the windows' places
        // An interval is closed in several calls of progress(), each of which looks at no more than
        // kStep owners, so that none takes long. The next is due at once.
        bool in_steps = false;
    };

    static constexpr size_t kStep = 16;

    static constexpr size_t kMinCapacity = 64;  // that is worth its while; less is possible
    static constexpr size_t kMaxCapacity = kNoEntry;

    // The part of the tracker inside an owner. Must stay where it is while tracked() and be removed
    // before the owner's memory goes.
    struct Hook {
        constexpr Hook() = default;
        bool tracked() const { return sample.in_use() || entry != kNoEntry; }

        // For the tracker to set: the entries in its LRU and in its table.
        SampleLru::Slot sample;
        uint16_t entry : 15 = kNoEntry;
        // For the owner to set: whether it competes for the places of Options::few.
        uint16_t competes : 1 = true;
    };

    // Worth per second.
    struct Usage {
        OwnerId id;
        double rate;
        double deviation;  // standard error of the rate, by how much the intervals differed
        double messages;   // sent in a second: the mean of the same intervals
        double bytes;
    };

    // Options outside their bounds are brought to the nearest value inside. No window is armed
    // before the first progress().
    explicit UsageTracker(const Options& options, Valuer valuer = {});
    UsageTracker(const UsageTracker&) = delete;
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

    // Counts one message whether armed or not, which touch() is not told of.
    void count(Hook& hook, OwnerId id, size_t bytes);

    // Opens and closes windows and, at the end of an interval, brings the rates up to date. A
    // window that is opened late, since progress was late, still gets its full length; an interval
    // without any lasts until it had one. One comparison when nothing is due.
    void progress(Time now) {
        if (now >= next_event_) [[unlikely]]
            advance(now);
    }

    // An interval is being closed: see Options::in_steps.
    bool is_closing() const { return closing_ != Closing::kNone; }

    // When progress() has something to do next; kNever if the tracker never arms.
    Time next_event() const { return next_event_; }

    // Nothing is counted, and no rate is kept or all stand still: until somebody sends, windows
    // find nothing. Who sleeps need not wake for them.
    bool is_idle() const {
        return !is_closing() && (stands_still_ || free_count_ == capacity()) && was_silent();
    }

    // The schedule does this by itself; also for callers with a better idea of a window.
    void arm(Time now);
    void disarm(Time now);

    // Forgets an owner. No effect on one that is not tracked.
    void remove(Hook& hook);
    // Owners that are new may soon send: for an interval each is seen after a few messages.
    void expect_newcomers(Time now);
    // What the owner's traffic is worth has changed: its rate is taken to have been worth that.
    void revalue(Hook& hook);

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

    // The same for those in the next `count` places of the table, from `place` on, which moves on.
    // @return whether there are places left
    template <typename Function>
    bool for_some(size_t& place, size_t count, Function&& function) const {
        for (; count > 0 && place < capacity(); ++place, --count) {
            if (entries_[place].hook != nullptr) function(usage_of(entries_[place]));
        }
        return place < capacity();
    }

    // Intervals closed so far: so often were the rates brought up to date.
    uint64_t rounds() const { return rounds_; }
    // Messages counted in those intervals.
    uint64_t samples() const { return samples_; }
    size_t capacity() const { return lru_.capacity(); }
    size_t memory_bytes() const;
    const Options& options() const { return options_; }

  private:
    struct Traffic {
        float messages = 0;
        float bytes = 0;
    };
    struct Entry {
        Hook* hook = nullptr;  // null: the entry is free
        OwnerId id = 0;
        Value value;
        double rate = 0;
        double noise = 0;  // variance of what the intervals saw
        double youth = 1;  // share of the rate that is still its start, zero
        int trend = 0;     // so many intervals in a row saw far more or, below 0, far less
        // Of this interval, in windows and in all of it: worth, and its variance if messages come
        // by chance.
        double sampled = 0, sampled_variance = 0;
        double whole = 0, whole_variance = 0;
        // The same for what is behind the worth: counts, and their rates.
        Traffic sampled_traffic{}, whole_traffic{}, traffic{};

        // Of the intervals that it was seen in: of a new one the rate is a part of that.
        double mean() const { return rate / (1 - youth); }
    };
    // One without an entry, who has sent: in which place of the LRU, and how much.
    struct Newcomer {
        Value value;
        double seen;
        uint16_t sample;
        // Who has sent most comes first out of a heap.
        bool operator<(const Newcomer& other) const {
            return seen != other.seen ? seen < other.seen : sample > other.sample;
        }
    };
    // Who is least busy comes first out of a heap of places in the table.
    struct IsBusier {
        const Entry* entries;
        bool operator()(uint16_t left, uint16_t right) const {
            const Entry &a = entries[left], &b = entries[right];
            return a.mean() != b.mean() ? a.mean() > b.mean() : a.id < b.id;
        }
    };
    // An interval is closed in this order.
    enum class Closing : uint8_t { kNone, kSamples, kEntries, kNewcomers };

    void touch_slow(Hook& hook, const OwnerId& id, size_t bytes);
    Sample& sample_of(Hook& hook, const OwnerId& id);
    Value value_of(OwnerId id) const { return valuer_ ? valuer_(id) : Value{}; }
    static void take_up(Entry& entry, Sample& sample);
    void keep_evicted(Sample& sample);

    void advance(Time now);
    void skip_pause(Time now);
    void plan_interval(Time start);
    Time window_start(unsigned window);
    bool close_interval(Time now, bool in_steps);
    void begin_closing(Time now);
    void closing_step();
    bool is_quiet() const { return rounds_ == 0 || silent_time_ > Duration::zero(); }
    // Who has sent in this interval.
    struct Beginning {
        struct Part {
            uint64_t senders = 0, messages = 0;
        };
        Part competing, without_rivals;  // of those of whom nothing is known yet
        bool is_of_known = false;        // others have, too
    };
    Beginning beginning() const;
    bool has_begun() const;
    bool is_eager(Time now) const;
    bool was_silent() const;
    // What an interval is closed with: its times in seconds.
    struct Interval {
        double decay = 0;
        double first_decay = 0;  // of a newcomer: who begins to send goes on for an interval
        double armed = 0;
        double length = 0;
        double rate_of(double sampled, double whole) const {
            return sampled / armed + whole / length;
        }
        double variance_of(double sampled, double whole) const {
            return sampled / (armed * armed) + whole / (length * length);
        }
    };
    static void note_trend(Entry& entry, double seen, double mean);
    void renew(Entry& entry) const;
    bool take_sample(size_t slot);
    void note_silence();
    void renew_entry(size_t slot);
    void admit_best();
    bool make_room(const Entry& newcomer);
    void enter(const Entry& newcomer);
    void leave(Entry& entry);
    Usage usage_of(const Entry& entry) const;

    SampleLru lru_;
    bool armed_ = false;
    Time next_event_{};

    Options options_;
    Valuer valuer_;
    Random random_;

    bool started_ = false;
    Time interval_start_{};
    Time window_start_{};
    unsigned window_ = 0;  // of this interval, the next to open
    Time armed_since_{};
    Duration armed_time_{};   // in this interval
    Duration silent_time_{};  // intervals in a row in which nobody sent
    Time expecting_until_{};  // newcomers
    bool is_eager_ = false;   // one short window follows the other
    bool evicted_ = false;    // a sample was, in this interval
    bool stands_still_ = false;

    std::unique_ptr<Entry[]> entries_;
    std::unique_ptr<uint16_t[]> free_;
    size_t free_count_ = 0;
    // While an interval is being closed: what with, and how far it is.
    Closing closing_ = Closing::kNone;
    Interval interval_{};
    size_t place_ = 0;       // of the LRU or the table, the next to look at
    bool is_silent_ = true;  // nobody has sent, as far as was seen
    // Heaps: the best newcomer and the least busy entry come out first.
    std::unique_ptr<Newcomer[]> newcomers_;
    size_t newcomer_count_ = 0;
    std::unique_ptr<uint16_t[]> victims_;
    size_t victim_count_ = 0;
    uint64_t rounds_ = 0;
    uint64_t samples_ = 0;
};

}  // namespace ucs

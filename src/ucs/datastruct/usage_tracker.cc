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
    options.max_promoted = std::min(options.max_promoted, UsageTracker::kMaxPromoted);
    options.interval = std::max<Duration>(options.interval, 1us);
    options.windows = std::clamp(options.windows, 1u, 1000u);
    options.duty = std::clamp(options.duty, 1e-6, 1.0);
    options.decay = std::clamp(options.decay, 0.0, 0.9999);
    options.margin = std::max(options.margin, 0.0);
    options.min_score = std::max(options.min_score, 0.0);
    options.bytes_per_message = std::max(options.bytes_per_message, 1.0);
    if (options.capacity == 0) {
        options.capacity = std::max(UsageTracker::kMinCapacity, 4 * options.max_promoted);
    }
    // Room for a challenger beside the promoted, who are never pushed out.
    options.capacity =
        std::clamp<size_t>(options.capacity, options.max_promoted + 1, Lru<int>::kMaxCapacity);
    return options;
}

}  // namespace

UsageTracker::UsageTracker(const Options& options, Listener* listener)
    : lru_(bounded(options).capacity),
      options_(bounded(options)),
      listener_(listener),
      random_(options.seed),
      scores_(std::make_unique<Score[]>(capacity())),
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
        if (scores_[slot].hook != nullptr) scores_[slot].hook->score = kNoScore;
    }
}

size_t UsageTracker::memory_bytes() const {
    return sizeof(*this) - sizeof(lru_) + lru_.memory_bytes() +
           capacity() * (sizeof(Score) + 2 * sizeof(uint16_t) + sizeof(Candidate));
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

// An owner with a score keeps its count though its entry goes to somebody else. The count of one
// without is lost: it was seldom seen, or it would not be the oldest.
void UsageTracker::keep_evicted(const Sample& sample) {
    if (sample.hook->score == kNoScore) return;
    Score& score = scores_[sample.hook->score];
    score.sampled += weight(sample);
    score.sampled_variance += weight_variance(sample);
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
    rank();
    ++rounds_;
    notify();
}

void UsageTracker::decay_and_add(double decay, double observed) {
    lru_.for_each([this](Sample& sample) {
        samples_ += sample.messages;
        if (sample.messages == 0 || sample.hook->score == kNoScore) return;
        keep_evicted(sample);
        sample.messages = 0;
        sample.bytes = 0;
    });
    for (size_t slot = 0; slot < capacity(); ++slot) {
        Score& score = scores_[slot];
        if (score.hook == nullptr) continue;
        const double share = (1 - decay) / observed;
        score.local = decay * score.local + share * score.sampled;
        score.variance = decay * decay * score.variance + share * share * score.sampled_variance;
        if (!score.remote_is_news) score.remote *= decay;
        score.remote_is_news = false;
        score.sampled = 0;
        score.sampled_variance = 0;
        // Far below what could be promoted, an owner only takes up room.
        if (!score.promoted && score.total() < options_.min_score * 0.01) leave(score);
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
                  return a.local != b.local ? a.local > b.local : a.sample->id < b.sample->id;
              });
    // Best first, each takes a free entry or that of the lowest owner left, if that scores less.
    size_t victims = count > free_count_ ? sort_victims() : 0;
    for (size_t index = 0; index < count; ++index) {
        const Candidate& candidate = candidates_[index];
        Score* place = free_place();
        if (place == nullptr) {
            if (victims == 0) break;
            place = &scores_[order_[--victims]];
            if (place->total() >= candidate.local) break;
            leave(*place);
            place = free_place();
        }
        Score& score = enter(*place, *candidate.sample->hook, candidate.sample->id);
        score.local = candidate.local;
        score.variance = candidate.variance;
    }
    lru_.for_each([](Sample& sample) {
        sample.messages = 0;
        sample.bytes = 0;
    });
}

// Puts the unpromoted into order_, best first; returns how many they are.
size_t UsageTracker::sort_victims() {
    size_t count = 0;
    for (size_t slot = 0; slot < capacity(); ++slot) {
        const Score& score = scores_[slot];
        if (score.hook != nullptr && !score.promoted) order_[count++] = static_cast<uint16_t>(slot);
    }
    std::sort(order_.get(), order_.get() + count, [this](uint16_t left, uint16_t right) {
        return before(scores_[left], scores_[right]);
    });
    return count;
}

UsageTracker::Score* UsageTracker::lowest_below(double total) {
    Score* lowest = nullptr;
    for (size_t slot = 0; slot < capacity(); ++slot) {
        Score& score = scores_[slot];
        if (score.hook == nullptr || score.promoted || score.total() >= total) continue;
        if (lowest == nullptr || before(*lowest, score)) lowest = &score;
    }
    return lowest;
}

// The entry that the next owner gets; null if none is free.
UsageTracker::Score* UsageTracker::free_place() {
    return free_count_ == 0 ? nullptr : &scores_[free_[free_count_ - 1]];
}

// `place` is what free_place() has just given.
UsageTracker::Score& UsageTracker::enter(Score& place, Hook& hook, OwnerId id) {
    --free_count_;
    place = {.hook = &hook, .id = id};
    hook.score = static_cast<uint16_t>(&place - scores_.get());
    return place;
}

void UsageTracker::leave(Score& score) {
    score.hook->score = kNoScore;
    if (score.promoted) --promoted_;
    score = {};
    free_[free_count_++] = static_cast<uint16_t>(&score - scores_.get());
}

double UsageTracker::standing(const Score& score) const {
    return score.promoted ? score.total() * (1 + options_.margin) : score.total();
}

bool UsageTracker::before(const Score& left, const Score& right) const {
    const double left_standing = standing(left);
    const double right_standing = standing(right);
    return left_standing != right_standing ? left_standing > right_standing : left.id < right.id;
}

void UsageTracker::rank() {
    ranked_ = 0;
    for (size_t slot = 0; slot < capacity(); ++slot) {
        if (scores_[slot].hook != nullptr) order_[ranked_++] = static_cast<uint16_t>(slot);
    }
    std::sort(order_.get(), order_.get() + ranked_, [this](uint16_t left, uint16_t right) {
        return before(scores_[left], scores_[right]);
    });
    for (size_t position = 0; position < ranked_; ++position) {
        Score& score = scores_[order_[position]];
        score.ranked = true;
        score.wanted = position < options_.max_promoted && standing(score) >= options_.min_score;
    }
}

// A listener may remove owners and set scores meanwhile: an entry that was removed, or is another
// owner's by now, is neither ranked nor wanted nor promoted.
void UsageTracker::notify() {
    for (size_t position = 0; position < ranked_; ++position) {
        Score& score = scores_[order_[position]];
        if (!score.promoted || score.wanted) continue;
        score.promoted = false;
        --promoted_;
        if (listener_ != nullptr) listener_->demote(score.id, score.total());
    }
    for (size_t position = 0; position < ranked_; ++position) {
        Score& score = scores_[order_[position]];
        if (score.promoted || !score.wanted) continue;
        score.promoted = true;
        ++promoted_;
        if (listener_ != nullptr) listener_->promote(score.id, score.total());
    }
}

bool UsageTracker::set_remote(Hook& hook, OwnerId id, double remote) {
    // Comes from a peer: nothing but a finite, non-negative number may enter the order.
    if (!std::isfinite(remote) || remote < 0) remote = 0;
    if (hook.score == kNoScore) {
        if (free_count_ == 0) {
            Score* lowest = lowest_below(remote);
            if (lowest == nullptr) return false;
            leave(*lowest);
        }
        enter(*free_place(), hook, id);
    }
    Score& score = scores_[hook.score];
    score.remote = remote;
    score.remote_is_news = true;
    return true;
}

void UsageTracker::remove(Hook& hook) {
    lru_.remove(hook.sample);
    if (hook.score != kNoScore) leave(scores_[hook.score]);
}

UsageTracker::Rank UsageTracker::rank_of(const Hook& hook) const {
    if (hook.score == kNoScore) return {};
    return rank_of(scores_[hook.score]);
}

}  // namespace ucs

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>

namespace ucs {

using namespace std::chrono_literals;

// Spans and points of time, in signed nanoseconds: 292 years either way. A point belongs to the
// clock that gave it; its zero means nothing outside that clock.
using Duration = std::chrono::nanoseconds;

struct Timescale {
    using rep = Duration::rep;
    using period = Duration::period;
    using duration = Duration;
    using time_point = std::chrono::time_point<Timescale, Duration>;
};

using Time = Timescale::time_point;

// "inf" in the configuration: a span that never ends, and the point at which it ends.
inline constexpr Duration kForever = Duration::max();
inline constexpr Time kNever = Time::max();

// The end of a span that begins at `start`; kNever if it does not end within the timeline.
constexpr Time deadline(Time start, Duration span) {
    return span >= kNever - start ? kNever : start + span;
}

// Somebody waits for a sign of another's, and looks from time to time whether that takes too long.
// If his process was stopped, or had no processor, he has not seen what went on meanwhile: of the
// time since he looked last no more counts than a quarter of what is too long. @return the rest
constexpr Duration unseen(Time last_look, Time now, Duration too_long) {
    return now <= last_look ? Duration(0) : std::max(now - last_look - too_long / 4, Duration(0));
}

constexpr double seconds(Duration span) {
    return std::chrono::duration<double>(span).count();
}

constexpr Duration from_seconds(double value) {
    return value >= seconds(kForever) ? kForever
                                      : Duration(static_cast<Duration::rep>(value * 1e9));
}

// The seam through which time enters the library. Clocks are not owned through this interface.
class Clock {
  public:
    // Never decreases. Any thread may call it.
    virtual Time now() const = 0;

    // The time that a reader of the log wants to see: since 1970 for a wall clock.
    virtual Time calendar() const { return now(); }

  protected:
    constexpr Clock() = default;
    ~Clock() = default;
};

// No system call where the kernel offers its vdso.
class WallClock final : public Clock {
  public:
    constexpr WallClock() = default;
    Time now() const override { return Time(std::chrono::steady_clock::now().time_since_epoch()); }
    Time calendar() const override {
        return Time(std::chrono::system_clock::now().time_since_epoch());
    }
};

// Stands still until it is told to move. For tests and the simulator; one thread.
class VirtualClock final : public Clock {
  public:
    explicit constexpr VirtualClock(Time start = Time()) : now_(start) {}

    Time now() const override { return now_; }
    void advance(Duration span) { now_ += span; }
    // A time that has passed already is ignored: the clock never goes back.
    void advance_to(Time when) {
        if (when > now_) now_ = when;
    }

  private:
    Time now_;
};

}  // namespace ucs

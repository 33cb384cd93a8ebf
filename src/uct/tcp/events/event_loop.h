// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ucs/sys/descriptor.h"
#include "ucs/sys/time.h"

namespace uct::tcp {

// What an interface's epoll set can name. Goes only after a whole batch of events is handled.
class EventTarget {
  public:
    // @return how many things happened that Interface::progress() counts
    virtual unsigned on_event(uint32_t events) = 0;

  protected:
    ~EventTarget() = default;
};

using TimerHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<struct TimerTag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// What has something due at a time of its own: a connection coming up, another attempt.
class Timer : public TimerHook {
  public:
    ucs::Time deadline() const { return deadline_; }
    // Leaves the list, or has a later deadline afterwards.
    virtual void on_deadline() = 0;

  protected:
    ~Timer() = default;
    ucs::Time deadline_{};
};

using TimerList = boost::intrusive::list<Timer, boost::intrusive::base_hook<TimerHook>,
                                         boost::intrusive::constant_time_size<false>>;

using WatchHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<struct WatchTag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// What has to be looked at from time to time while it is in the list.
class Watched : public WatchHook {
  public:
    ucs::Time next_check() const { return next_check_; }
    // Sets the time of the next check, which holds if it leaves the list and comes back.
    virtual void check(ucs::Time now) = 0;

  protected:
    ~Watched() = default;
    ucs::Time next_check_{};
};

using WatchList = boost::intrusive::list<Watched, boost::intrusive::base_hook<WatchHook>,
                                         boost::intrusive::constant_time_size<false>>;

// What an interface waits for: its sockets, in one epoll set, which is also its event descriptor;
// deadlines; and what is looked at from time to time.
class EventLoop {
  public:
    // @param name  of the device, for messages
    explicit EventLoop(std::string name);

    // @return false if there is no descriptor for it
    bool is_open() const { return is_open_; }
    int descriptor() const { return poll_.get(); }

    // @param is_new  the set does not have the descriptor yet
    bool watch(int descriptor, EventTarget& target, uint32_t events, bool is_new);
    void stop_watching(int descriptor);
    void add_timer(Timer& timer) { timers_.push_back(timer); }
    void look_after(Watched& watched) {
        watched_.push_back(watched);
        next_watch_ = std::min(next_watch_, watched.next_check());
    }

    // Hand on what has happened to the descriptors. @return how much
    unsigned poll();
    bool has_timers() const { return !timers_.empty(); }
    void run_timers(ucs::Time now);
    // To be asked in every progress call: is there somebody to look after, this time?
    bool is_check_due() { return !watched_.empty() && ++watch_calls_ % kWatchCalls == 0; }
    void check_watched(ucs::Time now);

    ucs::Time next_deadline() const;
    // Its descriptor polls readable at that time. @return false if something has come
    bool arm(ucs::Time next, ucs::Time now);

  private:
    // While there is somebody to look after, one in so many calls reads the clock.
    static constexpr unsigned kWatchCalls = 64;

    const std::string name_;
    ucs::Descriptor poll_;
    ucs::Descriptor alarm_;  // wakes a sleeper for what is due
    bool is_open_;
    TimerList timers_;
    WatchList watched_;
    std::vector<Watched*> due_;  // of check_watched() alone
    unsigned watch_calls_ = 0;
    ucs::Time next_watch_ = ucs::kNever;  // not after the first next_check()
};

}  // namespace uct::tcp

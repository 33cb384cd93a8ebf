// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>

#include "ucs/sys/time.h"

namespace uct::tcp {

using TimerHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<struct TimerTag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

/** What has something due at a time of its own: a connection coming up, another attempt. */
class Timer : public TimerHook {
  public:
    ucs::Time deadline() const { return deadline_; }
    /** Leaves the list, or has a later deadline afterwards. */
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

/** What has to be looked at from time to time while it is in the list. */
class Watched : public WatchHook {
  public:
    ucs::Time next_check() const { return next_check_; }
    /** Sets the time of the next check, which holds if it leaves the list and comes back. */
    virtual void check(ucs::Time now) = 0;

  protected:
    ~Watched() = default;
    ucs::Time next_check_{};
};

using WatchList = boost::intrusive::list<Watched, boost::intrusive::base_hook<WatchHook>,
                                         boost::intrusive::constant_time_size<false>>;

}  // namespace uct::tcp

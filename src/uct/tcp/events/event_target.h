// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace uct::tcp {

/** What an interface's epoll set can name. Goes only after a whole batch of events is handled. */
class EventTarget {
  public:
    /** @return how many things happened that Interface::progress() counts */
    virtual unsigned on_event(uint32_t events) = 0;

  protected:
    ~EventTarget() = default;
};

}  // namespace uct::tcp

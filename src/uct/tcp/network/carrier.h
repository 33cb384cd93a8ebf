// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "ucs/sys/descriptor.h"
#include "uct/tcp/events/event_target.h"
#include "uct/tcp/network/device.h"

namespace uct::tcp {

/**
 * Whether a device has a link, as the kernel tells all who listen when it
 * changes. Where nobody may listen, it has one.
 */
class Carrier final : public EventTarget {
  public:
    explicit Carrier(const NetworkDevice& device) : device_(device) {}

    /** @return whether there is a socket to watch */
    bool open();
    int socket() const { return socket_.get(); }
    bool is_up() const { return is_up_; }
    /** Has it changed since the last question? */
    bool take_change() { return std::exchange(changed_, false); }

    unsigned on_event(uint32_t events) override;

  private:
    void ask();

    const NetworkDevice& device_;
    bool is_up_ = true;
    bool changed_ = false;
    ucs::Descriptor socket_;
};

}  // namespace uct::tcp

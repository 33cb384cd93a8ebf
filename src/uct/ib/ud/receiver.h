// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/slist.hpp>
#include <cstdint>

#include "ucs/runtime/runtime.h"
#include "ucs/sys/time.h"
#include "uct/ib/ud/wire.h"

namespace uct::ib::ud {

// A packet that came too early, until those before it are here; the transport derives its own.
class HeldPacket : public boost::intrusive::slist_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::normal_link>> {
  public:
    explicit HeldPacket(uint32_t number) : number_(number) {}
    uint32_t number() const { return number_; }

  private:
    uint32_t number_;
};

using HeldList = boost::intrusive::slist<HeldPacket, boost::intrusive::cache_last<true>,
                                         boost::intrusive::constant_time_size<false>>;

// The receiving half of a connection: what is next, what is held, when to acknowledge.
//
// Pure, as Sender. Held packets belong to the caller and are linked here until next() or
// take_all().
class Receiver {
  public:
    enum class Verdict : uint8_t {
        kDeliver,  // the next one: hand it on, then call next() until it gives null
        kHold,     // early: call hold(), or drop it if there is no room
        kDrop,     // here already, or too far ahead
    };
    Verdict arrived(uint32_t number, bool asks_acknowledgement, ucs::Time now);
    void hold(HeldPacket& packet);
    // The held packet whose turn has come, taken out; or null.
    HeldPacket* next();

    // When the acknowledgement that is owed must go; kNever if none is.
    ucs::Time deadline() const { return due_; }
    // Fills in what is to be acknowledged; all owed is paid. @param alone  the packet has nothing
    // else in it: tell of held packets too
    void acknowledge(Header* header, bool alone);

    uint32_t expected() const { return expected_; }
    uint32_t held() const { return held_count_; }
    // Begin anew with the first number. @param held  gets what was held
    void restart(HeldList* held);

  private:
    static constexpr uint32_t kPacketsToAcknowledge = 8;
    static constexpr ucs::Duration kDelay = std::chrono::microseconds(20);

    HeldList held_;
    ucs::Time due_ = ucs::kNever;
    uint32_t expected_ = ucs::first_number();
    uint16_t held_count_ = 0;
    uint16_t unacknowledged_ = 0;
};

}  // namespace uct::ib::ud

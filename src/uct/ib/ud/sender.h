// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/slist.hpp>
#include <cstdint>
#include <span>

#include "ucs/runtime/runtime.h"
#include "ucs/sys/time.h"

namespace uct::ib::ud {

// What connections go by; the same for all of an interface.
struct Settings {
    ucs::Duration timeout;  // without a sign of life, and something outstanding: dead
    ucs::Duration tick;     // shortest wait before a retransmission
    double backoff;         // factor on the wait, each time in a row; at least 1
    uint32_t max_window;    // packets in flight, at most kMaxAhead
};

using ucs::is_before;

// A packet until it is acknowledged; the transport derives its own.
class SentPacket : public boost::intrusive::list_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::normal_link>> {
  public:
    enum class State : uint8_t { kWaiting, kInFlight, kLost, kDelivered };
    // What the Sender keeps of it; nobody else's affair.
    struct Record {
        uint32_t number = 0;
        uint32_t order = 0;  // of its last transmission
        State state = State::kWaiting;
        bool was_resent = false;
        ucs::Time sent{};  // last time
    };

    uint32_t number() const { return record.number; }
    // Its last transmission was not the first.
    bool was_resent() const { return record.was_resent; }

    Record record;
};

using SentList = boost::intrusive::list<SentPacket, boost::intrusive::constant_time_size<false>>;

// The sending half of a connection: numbers, window, what is lost, when to send again.
//
// Pure: no I/O; the caller passes the time and transmits what next() names. Packets belong to the
// caller and are linked here until acknowledged() gives them back.
class Sender {
  public:
    explicit Sender(const Settings& settings) : settings_(settings) {}

    // Appends a packet, which gets the next number.
    void add(SentPacket& packet);

    // The packet to transmit next: a lost one, or a new one that the window admits; or null.
    SentPacket* next();
    // `packet`, from next(), is on its way.
    void transmitted(SentPacket& packet, ucs::Time now);
    // It was not: the adapter still reads its former transmission. It counts as in flight.
    void postponed(SentPacket& packet, ucs::Time now) { transmitted(packet, now); }
    // Is this the last that the window admits? Then an acknowledgement should be asked for.
    bool fills_window() const { return in_flight_ + 1 >= window(); }

    // All numbers below `until` have arrived, and those of the words after it (see Header).
    // @param done  gets the packets that are acknowledged, in order
    // @return false if the acknowledgement cannot be of this stream; nothing happened
    bool acknowledged(uint32_t until, std::span<const uint64_t> selective, ucs::Time now,
                      SentList* done);
    // A sign of life.
    void heard(ucs::Time now) { alive_ = looked_ = now; }

    enum class Verdict : uint8_t { kNothing, kSendAgain, kDead };
    // At deadline(). kSendAgain: next() has something.
    Verdict on_timer(ucs::Time now);
    // kNever if nothing that was sent awaits its acknowledgement.
    ucs::Time deadline() const;

    bool is_idle() const { return packets_.empty(); }
    // Packets that are not acknowledged.
    uint32_t backlog() const { return next_number_ - first_; }
    uint32_t next_number() const { return next_number_; }
    // The first number that is not acknowledged.
    uint32_t first() const { return first_; }
    // Does the other end have anything?
    bool has_arrived() const { return has_arrived_; }
    bool is_complete(uint32_t number) const { return is_before(number, first_); }
    uint32_t window() const { return window_ / kUnit; }
    uint32_t in_flight() const { return in_flight_; }

    // Takes all packets out, when the connection ends.
    void take_all(SentList* packets);

  private:
    static constexpr uint32_t kUnit = 256;  // of the window, which grows by parts of a packet
    static constexpr uint32_t kFirstWindow = 16, kLeastWindow = 4;
    static constexpr uint32_t kReordering = 3;
    static constexpr uint32_t kFirstTicks = 4;  // wait before a round trip was measured
    static constexpr ucs::Duration kLongestWait = std::chrono::milliseconds(100);

    // Nothing will happen without a timer.
    bool awaits_something() const {
        return in_flight_ != 0 || (lost_ == 0 && first_ != end_of_sent());
    }
    uint32_t end_of_sent() const { return waiting_ != nullptr ? waiting_->number() : next_number_; }
    // What passed while the process was stopped does not count.
    void look(ucs::Time now);
    void delivered(SentPacket& packet, ucs::Time now);
    void mark_selective(std::span<const uint64_t> words, ucs::Time now);
    bool find_lost();
    void grow(uint32_t packets);
    void shrink(uint32_t to);
    void measured(ucs::Duration round_trip);
    ucs::Duration wait() const;

    const Settings& settings_;
    SentList packets_;
    SentPacket* waiting_ = nullptr;  // the first never sent
    uint32_t first_ = ucs::first_number();
    uint32_t next_number_ = first_;
    uint32_t in_flight_ = 0;
    uint32_t lost_ = 0;
    uint32_t window_ = kFirstWindow * kUnit;
    uint32_t threshold_ = UINT32_MAX;
    uint32_t delivered_order_ = ucs::first_number();  // the highest of those delivered
    uint32_t next_order_ = delivered_order_ + 1;
    // Order up to which losses belong to the last shrinking.
    uint32_t round_ends_ = delivered_order_;
    bool has_arrived_ = false;
    bool has_resent_ = false;                  // orders are no longer those of the numbers
    uint8_t timeouts_ = 0;                     // in a row
    uint32_t round_trip_ = 0, deviation_ = 0;  // nanoseconds; 0: not measured
    ucs::Time waits_since_{};
    ucs::Time alive_{};
    ucs::Time looked_{};  // when it was last asked whether that is too long ago
};

}  // namespace uct::ib::ud

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ucp/endpoint/endpoint_table.h"
#include "ucp/proto/eager/eager.h"
#include "ucp/proto/match/receive.h"
#include "ucp/runtime/interface_set.h"
#include "ucp/select/learned_costs.h"
#include "ucs/sys/time.h"

namespace ucp {

#pragma pack(push, 1)
// kTook, which goes back to the sender of a timed message: what it has cost its receiver.
struct TookMessage {
    uint64_t from;   // uuid of who received it
    uint64_t stamp;  // that came with the message
    // in nanoseconds
    uint64_t work;    // of the receiver's processor; kUnknown
    uint64_t before;  // from its beginning until it was seen; 0: the clocks differ
    uint64_t took;    // from then to its end

    static constexpr uint64_t kUnknown = UINT64_MAX;
};
#pragma pack(pop)

// Times some of the long messages, tagged and active ones, and learns from them how to send
// (UCX_COSTS=adapt, learn).
//
// The sender says which messages are timed: such a message bears a stamp. Both ends add up what
// time their processors work at it, not what they wait; the receiver tells the sender when it has
// ended. Within a host, where clocks are the same, the stamp is the time at which it began.
//
//   sender                                   receiver
//   open(), work at each piece   ----->      begin(), work at each piece
//   learns                       <-----      end(): kTook
class MessageTimes {
  public:
    MessageTimes(const ucs::Clock& clock, EndpointTable& endpoints)
        : clock_(clock), endpoints_(endpoints) {}
    MessageTimes(const MessageTimes&) = delete;

    void add_handlers(InterfaceSet& interfaces) {
        interfaces.set_handler(AmId::kTook, on_took, this);
    }

    // --- the sender ---

    // May learned costs choose the way of a message over the current lane?
    static bool has_choice(const Endpoint& endpoint, select::Operation operation,
                           select::BufferClass buffer, size_t length) {
        const LearnedLane* const lane = endpoint.learned(operation);
        return lane != nullptr &&
               (buffer == select::BufferClass::kContiguous ||
                buffer == select::BufferClass::kRegistered) &&
               lane->ways_of(select::Load::kAlone, length) != nullptr;
    }
    // By which protocol a message goes.
    struct Route {
        select::Protocol protocol;
        uint64_t stamp = 0;  // of a message that is timed
    };
    // The route by what was learned. Requires has_choice().
    // @param usual  the table's choice
    Route route(const Endpoint& endpoint, select::Operation operation, select::Load load,
                size_t length, select::Protocol usual);
    // Does a piece of work at a message.
    // @param stamp  0: it is not timed
    // @param work  whatever it returns; a ucs_status_t other than an error is work done
    template <typename Work>
    auto work(uint64_t stamp, Work piece) {
        if (stamp == 0) [[likely]]
            return piece();
        const ucs::Time begin = clock_.now();
        const auto result = piece();
        if (result == UCS_OK || result == UCS_INPROGRESS) add_work(stamp, clock_.now() - begin);
        return result;
    }

    // --- the receiver ---

    // The first of a message that is timed has come.
    // @param length  of the message, of which `arrived` bytes are here
    void begin(Timing& timing, uint64_t sender, uint64_t stamp, size_t length, size_t arrived);
    // The same of a receive that has found its message, which was announced, timed or not.
    // @param stamp  0: it is not
    void begin_announced(Request& receive, uint64_t sender, uint64_t stamp, size_t length) {
        if (stamp != 0) [[unlikely]]
            begin(receive.part<TagReceive>().timing, sender, stamp, length, 0);
    }
    ucs::Time now() const { return clock_.now(); }
    // The message is complete, but its receive is not posted: from now on the program is waited
    // for, which does not count.
    void arrived(Timing& timing) { timing.took = clock_.now().time_since_epoch() - timing.began; }
    // Its receive has ended, or the program is about to get it.
    void end(ucs_status_t status, Timing& timing);

  private:
    // A message of ours that is timed.
    struct Open {
        uint64_t stamp = 0;  // 0: none
        uint64_t peer = 0;
        select::LearnedCosts* costs = nullptr;
        select::LearnedCosts::Class which{};
        select::Way way{};
        double assumed = 0;     // seconds
        ucs::Duration wires{};  // at most, of its time
        ucs::Duration work{};
    };
    // In a stamp, below the time.
    static constexpr uint64_t kSharedClock = 1;
    static constexpr unsigned kPlaceBits = 5;  // with the former
    static constexpr size_t kPlaces = 16;      // the first is for none

    // A message that is timed begins. @return its stamp; 0: it cannot be timed
    uint64_t open(const Endpoint& endpoint, const LearnedLane& lane,
                  select::LearnedCosts::Class which, select::Way way, size_t length);
    static size_t place_of(uint64_t stamp) { return (stamp >> 1) % kPlaces; }
    void add_work(uint64_t stamp, ucs::Duration work) {
        Open& open = open_[place_of(stamp)];
        if (open.stamp == stamp) open.work += work;
    }
    static ucs_status_t on_took(void* self, void* data, size_t length,
                                uct::ReceiveDescriptor* descriptor);

    const ucs::Clock& clock_;
    EndpointTable& endpoints_;
    size_t next_place_ = 0;
    std::array<Open, kPlaces> open_{};
};

// What eager sends that may be timed have in their requests' parts.
struct TimedSend : EagerSend {
    uint64_t stamp = 0;  // 0: it is not timed
    MessageTimes* times = nullptr;

    template <typename Work>
    auto work(Work piece) {
        return times->work(stamp, piece);
    }
};

// A scope in which the receiver works at a message.
class ReceiverWork {
  public:
    explicit ReceiverWork(Timing& timing)
        : timing_(timing), begin_(timing.times == nullptr ? ucs::Time() : timing.times->now()) {}
    ~ReceiverWork() {
        if (timing_.times != nullptr) [[unlikely]]
            timing_.work += timing_.times->now() - begin_;
    }
    ReceiverWork(ReceiverWork&&) = delete;

  private:
    Timing& timing_;
    const ucs::Time begin_;
};

}  // namespace ucp

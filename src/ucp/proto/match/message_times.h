// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ucp/endpoint/endpoint_table.h"
#include "ucp/proto/match/receive.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/sys/time.h"

namespace ucp {

#pragma pack(push, 1)
/** kTook: tagged messages of the worker that this goes to took so long, by its peer's clock. */
struct TookMessage {
    uint64_t sender;    //!< uuid of who has received them
    uint8_t situation;  //!< select::Situation
    uint8_t way;        //!< select::Way
    uint32_t count;
    uint64_t bytes;  //!< of all of them
    uint64_t nanoseconds;
};
#pragma pack(pop)

/**
 * Times long tagged messages, and learns from them how to send (UCX_COSTS=learn).
 *
 * A sender cannot compare the ways of a message: one that goes at once is done for him when it is
 * copied. So receivers take the time, and tell senders. A message takes the time from what comes
 * first of it, or from the end of the message before, if that is later, to its end: so among others
 * it is the time that its bytes have kept the receiver and the wires busy. Only messages count that
 * find their receive posted, and among others those that follow one of the same way.
 *
 * Reports are sums over kInterval, so that they cost less than a thousandth of the traffic.
 */
class MessageTimes {
  public:
    /** @param is_on  else nothing is timed, and what peers tell is dropped */
    MessageTimes(const ucs::Clock& clock, EndpointTable& endpoints, bool is_on)
        : clock_(clock), endpoints_(endpoints), is_on_(is_on) {}
    MessageTimes(const MessageTimes&) = delete;

    void add_handlers(InterfaceSet& interfaces) {
        interfaces.set_handler(AmId::kTook, on_took, this);
    }

    /**
     * The first of a message has come, and its receive was posted; the rest is timed.
     * @param length  of the message, of which `arrived` bytes are here
     */
    void begin(TagReceive& receive, uint64_t sender, select::Way way, size_t length,
               size_t arrived) {
        if (is_on_) [[unlikely]]
            start(receive, sender, way, length, arrived);
    }
    /** The receive has ended, with what its status says. */
    void end(Request& request, TagReceive& receive);

    static constexpr ucs::Duration kInterval = std::chrono::milliseconds(1);

  private:
    /** What is to be told a sender of messages alike. */
    struct Sum {
        TookMessage message{};  //!< `sender` is whom it is for
        size_t size = 0;        //!< LearnedCosts::size_of()
        ucs::Time told{};
    };

    void start(TagReceive& receive, uint64_t sender, select::Way way, size_t length,
               size_t arrived);
    void add(uint64_t sender, const TookMessage& took, ucs::Time now);
    void tell(Sum& sum, ucs::Time now);
    static ucs_status_t on_took(void* self, void* data, size_t length,
                                uct::ReceiveDescriptor* descriptor);

    const ucs::Clock& clock_;
    EndpointTable& endpoints_;
    const bool is_on_;
    unsigned under_way_ = 0;
    ucs::Time last_end_{};
    select::Way last_way_ = select::Way::kAtOnce;
    std::array<Sum, 64> sums_{};  //!< by hash; one that meets another's takes its place
};

}  // namespace ucp

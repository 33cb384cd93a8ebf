// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "ucp/base/request.h"
#include "ucp/dt/buffer.h"
#include "ucp/mem/memory.h"
#include "ucp/proto/match/matcher.h"
#include "ucs/sys/time.h"

namespace ucp {

class MessageTimes;

// What the receiver of a message takes down of it if it is timed (message_times.h).
struct Timing {
    MessageTimes* times;  // null: it is not timed, and nothing else here has a value
    uint64_t sender;      // uuid
    uint64_t stamp;
    ucs::Duration began;  // by the clock; a ucs::Time would be set to 0 in each receive
    ucs::Duration work;   // of this processor, so far
    ucs::Duration took;   // if all of it came before its receive; else 0
    bool is_elsewhere;    // some of the work was done where it is not seen
    size_t length;        // of the message
    size_t rest;          // of these, bytes that came after the first
};

// The part of a receive's request: tagged messages, and data of active messages by rendezvous.
struct TagReceive : ExpectedReceive {
    static constexpr bool kNeedsNoDestructor = true;  // a hook that knows nothing

    TagReceive() {}
    // As Request::fill(), for what is behind the second line.
    void fill() {
        arrived = 0;
        user_memory = nullptr;
        memory = nullptr;
        timing.times = nullptr;
    }

    Unpacker buffer;
    size_t arrived;  // bytes of the message's fragments so far

    // rendezvous only (proto/rndv)
    Memory* user_memory;  // the handle that came with the receive
    Memory* memory;       // a registration of our own, to be destroyed
    uint64_t sender;      // uuid
    uint64_t sender_request;
    size_t wanted;  // bytes to fetch: all of the message that fits

    Timing timing;
};

// Make a request a receive into a user's buffer.
// @return UCS_ERR_INVALID_PARAM as Unpacker::open(); the request holds nothing then
ucs_status_t open_receive(Request& request, void* buffer, size_t count, const OpParams& params);
// Releases what the part holds: the cleanup of receives.
void release_receive(Request& request);
// Was the request made by open_receive()?
inline bool is_receive(const Request& request) {
    return request.cleanup == release_receive;
}

// The receive is matched: fill tag_info with tag and length. A message that does not fit marks the
// request UCS_ERR_MESSAGE_TRUNCATED; its data is dropped or cut, the request still ends when the
// message does.
void matched(Request& receive, Tag tag, size_t length);
// Store bytes of a matched message; errors go to the request's status.
void store(Request& receive, size_t offset, const void* data, size_t length);

}  // namespace ucp

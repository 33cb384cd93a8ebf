// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "ucs/sys/time.h"

namespace ucp {

/** An active message that came before its handler: what AmHandlers needs to hand it over later. */
struct EarlyMessage {
    uint16_t id = 0;
    bool wants_reply = false;
    uint64_t sender = 0;               //!< uuid, if wants_reply
    std::vector<std::byte> header;     //!< the user's
    std::byte* data = nullptr;         //!< of AmHandlers::allocate(); null for an announcement
    size_t length = 0;                 //!< of the data in bytes, announced or here
    std::vector<std::byte> announced;  //!< the announcement of a rendezvous; else empty
    ucs::Time since = {};              //!< when the first look found it; set by overdue()
    bool was_seen = false;             //!< such a look has been

    /** Memory that it takes here, in bytes. */
    size_t size() const {
        return sizeof(*this) + header.size() + announced.size() + (data != nullptr ? length : 0);
    }
};

/**
 * Active messages without a handler, in order of arrival. A program may set a handler as late as
 * when its own send has ended; the answer may have come by then. Bounded in number, bytes and time:
 * more than that is a mistake of the program's. The owner of the messages' data is whoever took
 * them out last.
 */
class EarlyMessages {
  public:
    static constexpr size_t kMostMessages = 1024;
    static constexpr size_t kMostBytes = size_t{4} << 20;
    /** How long one waits, from the first look at it on. */
    static constexpr ucs::Duration kPatience = std::chrono::seconds(1);

    bool empty() const { return messages_.empty(); }
    /** Room for one more message of that size()? */
    bool has_room(size_t bytes) const {
        return messages_.size() < kMostMessages && bytes <= kMostBytes - bytes_;
    }
    /** Requires has_room(). */
    void add(EarlyMessage message);
    bool has(uint16_t id) const;
    /** Moves the oldest message of that id to `message`. @return false: there is none */
    bool take(uint16_t id, EarlyMessage* message);
    /** Moves the oldest message to `message` if nobody asked for it in time. */
    bool take_overdue(ucs::Time now, EarlyMessage* message);
    /** The oldest of all. @return false: there is none */
    bool take_any(EarlyMessage* message);
    /** When a message is overdue; ucs::kNever without any. */
    ucs::Time next_deadline() const;

  private:
    using Messages = std::list<EarlyMessage>;
    void take(Messages::iterator found, EarlyMessage* message);

    Messages messages_;
    size_t bytes_ = 0;
};

}  // namespace ucp

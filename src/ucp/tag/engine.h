// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ucp/core/request.h"
#include "ucp/core/wire.h"
#include "ucp/dt/buffer.h"
#include "ucp/tag/matcher.h"

namespace ucp {

class Worker;

/** The part of a posted receive's request. */
struct TagReceive : ExpectedReceive {
    Unpacker buffer;
    size_t arrived = 0;  //!< bytes of an eager message's fragments so far
};

enum class TagMessageKind : uint8_t {
    kEager,       //!< all of the data is here
    kFragmented,  //!< the first fragment, later ones as they come: Reassembly finds it by `id`
    kRendezvous,  //!< `data` is the announcement (RndvRts) as it came
};

/** A message that waits for its receive. Owns its bytes. */
struct TagMessage : UnexpectedMessage {
    TagMessageKind kind = TagMessageKind::kEager;
    size_t length = 0;          //!< of the whole message
    size_t arrived = 0;         //!< bytes in `data` so far
    std::byte* data = nullptr;  //!< malloc'd, `length` bytes (kRendezvous: the announcement)
    uint64_t sync_sender = 0;   //!< uuid to acknowledge to, if sync_request is not 0
    uint64_t sync_request = 0;
    MessageId id{};
};

/** Tag matching of a worker: the queues, and what happens when the two sides meet. */
class TagEngine {
  public:
    explicit TagEngine(Worker& worker) : worker_(worker) {}
    ~TagEngine();

    /** The receive that an arriving message goes to, taken out of the queues; null if none. */
    Request* take_expected(Tag tag);

    /** A message without a receive, with room for `bytes`. @return null if there is no memory */
    TagMessage* allocate(Tag tag, TagMessageKind kind, size_t bytes);
    /** Let receives and probes find the message. */
    void keep(TagMessage& message) { matcher_.keep(message); }
    void free(TagMessage& message);

    /**
     * The receive is matched: fill tag_info with tag and length. A message that does not fit marks
     * the request UCS_ERR_MESSAGE_TRUNCATED; its data is dropped or cut, the request still ends
     * when the message does.
     */
    void matched(Request& receive, Tag tag, size_t length);
    /** Store bytes of a matched message; errors go to the request's status. */
    void store(Request& receive, size_t offset, const void* data, size_t length);

    Matcher& matcher() { return matcher_; }

  private:
    Worker& worker_;
    Matcher matcher_;
};

void add_rndv_handlers(Worker& worker);
void add_rma_handlers(Worker& worker);

}  // namespace ucp

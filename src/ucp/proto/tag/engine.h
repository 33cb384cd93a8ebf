// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "ucp/dt/buffer.h"
#include "ucp/proto/tag/matcher.h"
#include "ucs/datastruct/memory_pool.h"

namespace ucp {

class Worker;

class Memory;

/** The part of a receive's request: tagged messages, and data of active messages by rendezvous. */
struct TagReceive : ExpectedReceive {
    static constexpr bool kNeedsNoDestructor = true;  //!< a hook that knows nothing

    TagReceive() {}
    /** As Request::unfold(), for what is behind the second line. */
    void unfold() {
        arrived = 0;
        user_memory = nullptr;
        memory = nullptr;
    }

    Unpacker buffer;
    size_t arrived;  //!< bytes of the message's fragments so far

    // rendezvous only (proto/rndv_receive)
    Memory* user_memory;  //!< the handle that came with the receive
    Memory* memory;       //!< a registration of our own, to be destroyed
    uint64_t sender;      //!< uuid
    uint64_t sender_request;
    size_t wanted;  //!< bytes to fetch: all of the message that fits
};

/**
 * Make a request a receive into a user's buffer.
 * @return UCS_ERR_INVALID_PARAM as Unpacker::open(); the request holds nothing then
 */
ucs_status_t open_receive(Request& request, void* buffer, size_t count, const OpParams& params);
/** Was the request made by open_receive()? */
bool is_receive(const Request& request);

enum class TagMessageKind : uint8_t {
    kEager,       //!< all of the data is here
    kFragmented,  //!< the first fragment, later ones as they come: Reassembly finds it by `id`
    kRendezvous,  //!< `data` is the announcement (RndvRts) as it came
};

/** A message that waits for its receive. Owns its bytes. What ucp_tag_message_h points to. */
struct TagMessage : UnexpectedMessage {
    static constexpr size_t kInlineBytes = 64;

    TagMessageKind kind = TagMessageKind::kEager;
    size_t length = 0;          //!< of the whole message
    size_t arrived = 0;         //!< bytes in `data` so far
    std::byte* data = nullptr;  //!< room for the message (kRendezvous: the announcement)
    uint64_t sync_sender = 0;   //!< uuid to acknowledge to, if sync_request is not 0
    uint64_t sync_request = 0;
    MessageId id{};
    size_t room = 0;  //!< bytes of `data`
    std::byte inline_data[kInlineBytes];
};

/** Tag matching of a worker: the queues, and what happens when the two sides meet. */
class TagEngine {
  public:
    explicit TagEngine(Worker& worker) : worker_(worker) {}
    ~TagEngine();
    TagEngine(const TagEngine&) = delete;
    TagEngine& operator=(const TagEngine&) = delete;

    // --- the user's calls ---

    ucs_status_ptr_t receive(void* buffer, size_t count, Tag tag, Tag mask, OpParams params);
    /** The earliest message that fits, taken out of the queues if `remove`; null if none. */
    TagMessage* probe(Tag tag, Tag mask, bool remove);
    ucs_status_ptr_t receive_message(TagMessage& message, void* buffer, size_t count,
                                     const OpParams& params);
    /** @return false if the receive has been matched: it ends as it ends */
    bool cancel(Request& receive);
    /** Calls of receive() so far. */
    uint64_t receives() const { return receives_; }

    // --- arriving messages ---

    /** The receive that an arriving message goes to, taken out of the queues; null if none. */
    Request* take_expected(Tag tag) {
        ExpectedReceive* const expected = matcher_.take_expected(tag);
        return expected == nullptr ? nullptr : &unfolded(*expected);
    }
    /**
     * A message is here as a whole and in one piece: give it to the receive that waits for it.
     * @param receive  set if false is returned: what it goes to by take_expected(), or null
     * @return false if there is none, or its buffer is not contiguous or too small
     */
    bool receive_at_once(Tag tag, const void* data, size_t length, Request** receive);

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
    static Request& unfolded(ExpectedReceive& expected);
    [[gnu::noinline]] ucs_status_ptr_t receive_any(void* buffer, size_t count, Tag tag, Tag mask,
                                                   const OpParams& params);
    Request* begin(void* buffer, size_t count, const OpParams& params, ucs_status_t* status);
    void give(Request& receive, TagMessage& message);

    Worker& worker_;
    uint64_t receives_ = 0;
    Matcher matcher_;
    ucs::ObjectPool<TagMessage> messages_{"tag_messages"};
};

void add_rndv_handlers(Worker& worker);
void add_rma_handlers(Worker& worker);

}  // namespace ucp

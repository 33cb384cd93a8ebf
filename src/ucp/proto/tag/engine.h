// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "ucp/proto/match/message_times.h"
#include "ucp/proto/match/receive.h"
#include "ucp/proto/match/turns.h"
#include "ucp/proto/rndv/rndv.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/datastruct/memory_pool.h"

namespace ucp {

enum class TagMessageKind : uint8_t {
    kWhole,       // all of the data is here, no long copy, and nobody waits to hear of it
    kEager,       // all of the data is here, or will never come: `status`
    kFragmented,  // the first fragment, later ones as they come: Reassembly finds it by `id`
    kRendezvous,  // `data` is the announcement (RndvRts) as it came
};

// A message that waits for its receive. Owns its bytes. What ucp_tag_message_h points to.
struct TagMessage : UnexpectedMessage {
    static constexpr size_t kInlineBytes = 64;

    TagMessage(Tag of, TagMessageKind what, size_t bytes) : kind(what), length(bytes) { tag = of; }

    TagMessageKind kind;
    ucs_status_t status = UCS_OK;  // why data will never come; its receive ends with it
    size_t length;                 // of the whole message
    std::byte* data;               // room for the message (kRendezvous: the announcement)
    HeldBytes held;                // of its sender's memory here
    std::byte inline_data[kInlineBytes];

    // A whole one has no use for what follows.
    size_t room;           // bytes of `data`
    size_t arrived;        // bytes in `data` so far
    uint64_t sync_sender;  // uuid to acknowledge to, if sync_request is not 0
    uint64_t sync_request;
    MessageId id;            // kFragmented
    Timing timing;           // kFragmented
    Reassembly* reassembly;  // kFragmented: charges what it grows by

    // Give these their first values. @param bytes  of `data`
    void fill(size_t bytes) {
        room = bytes;
        arrived = 0;
        sync_request = 0;
        timing.times = nullptr;
    }
    // A whole one goes the way of the others.
    void fill_whole() {
        fill(length);
        arrived = length;
        kind = TagMessageKind::kEager;
    }
};

enum class TagMode : uint8_t { kNormal, kSync };

// Tagged messages of a worker: sending, the queues, and what happens when the two sides meet.
class TagEngine : MessageProtocol {
  public:
    // @param services  of the messages; @param times  outlives the engine
    template <typename... Services>
    explicit TagEngine(MessageTimes& times, Services&... services)
        : MessageProtocol(services...), times_(times) {}
    ~TagEngine() { clear(); }

    void add_handlers(InterfaceSet& interfaces);
    // The worker ends: the program need keep no buffer of a receive.
    void stop_copies() { copies_are_stopped_ = true; }
    // Receives and messages that wait go: the worker does.
    void clear();
    // What messages that had no receive when they came leave to the next progress: announced ones
    // are fetched, and a piece of a long one is copied.
    unsigned run_deferred();
    // The announced ones of them.
    unsigned fetch_announced();

    // What a call copies of a message that was kept, so that none takes long.
    static constexpr size_t kPiece = 128 * 1024;
    // Messages of that length and more make up turns, as the way of longer ones depends on them.
    static constexpr size_t kCounted = 4096;

    // --- the user's calls ---

    // Send by whatever protocol suits; the result of the user's call.
    ucs_status_ptr_t send(Endpoint& endpoint, const void* buffer, size_t count, Tag tag,
                          TagMode mode, const OpParams& params);
    ucs_status_ptr_t receive(void* buffer, size_t count, Tag tag, Tag mask, OpParams params) {
        return matcher_.unexpected_count() == 0 ? receive_next(buffer, count, tag, mask, params)
                                                : receive_waiting(buffer, count, tag, mask, params);
    }
    // The earliest message that fits, taken out of the queues if `remove`; null if none.
    TagMessage* probe(Tag tag, Tag mask, bool remove);
    ucs_status_ptr_t receive_message(TagMessage& message, void* buffer, size_t count,
                                     const OpParams& params);
    // @return false if the receive has been matched: it ends as it ends
    bool cancel(Request& receive);

    // --- arriving messages ---

    // The receive that an arriving message goes to, taken out of the queues; null if none.
    Request* take_expected(Tag tag) {
        ExpectedReceive* const expected = matcher_.take_expected(tag);
        return expected == nullptr ? nullptr : &whole(*expected);
    }
    // A message is here as a whole and in one piece: give it to the receive that it goes to by
    // Matcher::take_expected().
    // @return false if its buffer is not contiguous or too small: nothing is done yet
    bool receive_at_once(ExpectedReceive& expected, Tag tag, const void* data, size_t length) {
        auto& part = static_cast<TagReceive&>(expected);
        // Posted receives hold one reference and nothing that would have to be released.
        if (!part.buffer.is_contiguous() || length > part.buffer.length()) [[unlikely]]
            return false;
        copy_plain(part.buffer.data(), data, length);
        Request& request = Request::of(part);
        request.tag_info = {tag, length};
        requests_.end_receive(request);
        return true;
    }

    // A message without a receive, with room for `bytes`. @return null if there is no memory
    [[nodiscard]] TagMessage* allocate(Tag tag, TagMessageKind kind, size_t bytes);
    // Let receives and probes find the message.
    void keep(TagMessage& message) { matcher_.keep(message); }
    void free(TagMessage& message) {
        if (message.data != message.inline_data) [[unlikely]]
            std::free(message.data);
        messages_.destroy(&message);
    }
    // There is no memory for a message. It keeps its place without data, so that the receive that
    // it goes to ends with UCS_ERR_NO_MEMORY and no later message takes it.
    // @throws std::bad_alloc if there is none for that either: its sender's endpoint fails
    void keep_lost(Tag tag, size_t length, uint64_t sync_sender, uint64_t sync_request,
                   ucs_status_t status = UCS_ERR_NO_MEMORY);

    Matcher& matcher() { return matcher_; }

  private:
    static Request& whole(ExpectedReceive& expected);
    ucs_status_ptr_t post(const Unpacker& unpacker, Tag tag, Tag mask, const OpParams& params);
    // A whole message for a receive into plain memory, which it fits into.
    [[gnu::always_inline]] ucs_status_ptr_t take_whole(TagMessage& message,
                                                       const Unpacker& unpacker,
                                                       const OpParams& params);
    // The same into memory of a device that other operations work on.
    // @return null: it is another receive, and nothing was done
    ucs_status_ptr_t post_held(void* buffer, size_t count, Tag tag, Tag mask,
                               const OpParams& params);
    // A message that is still to come.
    [[gnu::noinline]] ucs_status_ptr_t receive_next(void* buffer, size_t count, Tag tag, Tag mask,
                                                    OpParams params);
    // One of those that wait, if it fits.
    [[gnu::noinline]] ucs_status_ptr_t receive_waiting(void* buffer, size_t count, Tag tag,
                                                       Tag mask, OpParams params);
    // @param message  of those, the one that fits; null: none does
    [[gnu::noinline]] ucs_status_ptr_t receive_any(void* buffer, size_t count, Tag tag, Tag mask,
                                                   UnexpectedMessage* message, OpParams params);
    Request* begin(void* buffer, size_t count, const OpParams& params, ucs_status_t* status);
    void give(Request& receive, TagMessage& message, const OpParams& params);

    void begin_eager(Request& request, const Packer& packer, Tag tag, TagMode mode, uint64_t stamp,
                     const OpParams& params);
    MessageTimes::Route route(Endpoint& endpoint, const Packer& buffer, const Memory* memory);
    void note_found() {
        matcher_.note_found();
        last_found_ = matcher_.receives();
    }
    Turns::Place place_of_next(const Endpoint& endpoint);
    void receive_kept(Request& receive, TagMessage& message, bool at_once);
    bool fetch_later(Request& receive, TagMessage& message);
    void end_kept(Request& receive, TagMessage& message);
    void acknowledge(uint64_t sender, uint64_t sync_request);
    void arrived(Request* receive, Tag tag, const std::byte* payload, size_t length,
                 uint64_t sync_sender, uint64_t sync_request);
    // A message of on_message(): receives are posted, of which one may be for it, or none is.
    [[gnu::noinline]] ucs_status_t arrived_late(Tag tag, const std::byte* payload, size_t length);
    [[gnu::noinline]] ucs_status_t arrived_early(Tag tag, const std::byte* payload, size_t length);
    [[gnu::noinline]] void drop_uncharged(TagMessage& message);
    TagMessage* make(Tag tag, TagMessageKind kind, size_t bytes);
    static ucs_status_t on_message(void* self, void* data, size_t length,
                                   uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_sync_message(void* self, void* data, size_t length,
                                        uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_sync_ack(void* self, void* data, size_t length,
                                    uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_first_fragment(void* self, void* data, size_t length,
                                          uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_announcement(void* self, void* data, size_t length,
                                        uct::ReceiveDescriptor* descriptor);

    // A long message on its way from where it was kept to its receive.
    struct KeptCopy {
        Request* receive;
        TagMessage* message;
        size_t done;  // bytes
    };

    // Charges the message, of which `bytes` are kept, to who sent it. @return false: the sender is
    // cut off, it is freed
    bool charge(TagMessage& message, uint64_t claimed, size_t bytes);

    // Most messages have 8 bytes.
    static void copy_plain(void* to, const void* from, size_t length) {
        if (length == sizeof(uint64_t)) {
            std::memcpy(to, from, sizeof(uint64_t));
        } else if (length != 0) {
            std::memcpy(to, from, length);
        }
    }

    struct Free {
        TagEngine& engine;
        void operator()(TagMessage* message) const { engine.free(*message); }
    };
    // An announced message and who has asked for it.
    struct Announced {
        Request* receive;
        TagMessage* message;
    };

    MessageTimes& times_;
    bool* is_enough_ = nullptr;    // the interface set's
    std::deque<KeptCopy> copies_;  // the first one is under way
    std::deque<Announced> announced_;
    bool copies_are_stopped_ = false;
    Turns turns_;              // of long messages
    uint64_t last_found_ = 0;  // Matcher::receives() when a receive last found its message here
    Matcher matcher_;
    static constexpr size_t kSpare = 16;  // places for messages that find no memory
    ucs::ObjectPool<TagMessage> messages_{"tag_messages"};
};

}  // namespace ucp

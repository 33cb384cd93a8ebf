// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucp/api/ucpx.h"
#include "ucp/base/request.h"
#include "ucp/proto/eager/reassembly.h"
#include "ucp/runtime/interface_set.h"
#include "ucp/runtime/peer_memory.h"

// Notifications tell a worker that a batch of a peer has ended, with a number and maybe some bytes.
// They are messages of the sender's endpoint, in its order; whoever sends one sees to it that the
// batch's bytes land before (docs/design/bulk.md).
namespace ucp {

class Endpoint;
class EndpointTable;
class Notifier;
class RequestPool;

// What the peer is to be told of a batch: the part of the program's request, which tells it when
// the batch is over, and ends then.
struct Notification {
    Notifier* owner = nullptr;
    uint64_t value = 0;
    std::byte* payload = nullptr;        // a copy, malloc'd; null without
    size_t length = 0;                   // of the payload
    size_t offset = 0;                   // bytes posted
    uint64_t number = 0;                 // of the message, if it has fragments
    uint64_t peer = 0;                   // uuid, once it is counted or waits
    bool is_posted = false;              // behind the batch's bytes; it must not be sent again
    std::optional<uint32_t> waits = {};  // for its peer: the endpoint's operation meanwhile
};

#pragma pack(push, 1)
// kNotify without a payload; what a transport makes of immediate data is the same
struct NotifyMessage {
    uint64_t sender;  // uuid
    uint64_t value;
};
// Any other kNotify begins with this.
struct NotifyHeader {
    enum Kind : uint32_t {
        kPayload = 1,  // NotifyPayload follows, then the payload's first bytes; the rest: kFragment
        kCredit = 2,   // so much (`value`) of what the peer had sent has been handed over
    };
    uint64_t sender;  // uuid
    uint64_t value;
    uint32_t kind;
    uint32_t total;  // bytes of the payload
};
struct NotifyPayload {
    uint64_t number;  // of the message
};
#pragma pack(pop)

// The user's function for notifications: one of the two, or none.
struct NotifyHandler {
    ucpx_notify_callback_t of_value = nullptr;
    ucpx_notification_callback_t of_all = nullptr;
    void* argument = nullptr;

    bool is_set() const { return of_value != nullptr || of_all != nullptr; }
};

// The batch before the request is over: it tells the peer if that has ended well, and ends.
void tell_of_end(Request& teller, ucs_status_t status);

// Sends a worker's notifications, and hands over those of its peers.
//
// What comes while there is no handler is kept, in its order, until there is one. So that it stays
// little, a peer may have so much under way or kept here (kWindow): what it has sent counts until
// this worker says that it has been handed over. Beyond that the peer's batches do not end:
// their notifications wait at the sender, whose other operations go on.
//
// Thread rule: the worker's. Handlers of the program run inside.
class Notifier {
  public:
    static constexpr size_t kLongest = UCPX_MAX_NOTIFICATION_PAYLOAD;
    static constexpr size_t kWindow = 2 * kLongest;
    // What counts of each notification beside its payload.
    static constexpr size_t kOverhead = 64;
    // Credit is given when so much has been handed over. A peer lacks less than that, so that the
    // longest notification always finds room in the end.
    static constexpr size_t kCredit = kWindow / 4;

    Notifier(RequestPool& requests, EndpointTable& endpoints, Reassembly& reassembly, uint64_t uuid)
        : requests_(requests), endpoints_(endpoints), reassembly_(reassembly), uuid_(uuid) {}
    Notifier(const Notifier&) = delete;

    void add_handlers(InterfaceSet& interfaces);

    // --- the sender ---

    // The program's request for a batch, which will tell the endpoint's peer.
    // @param payload  copied
    // @return null: no memory
    Request* begin(Endpoint& endpoint, uint64_t value, std::span<const std::byte> payload,
                   const OpParams& params);
    // The batch is over: tells the peer if it has ended well, and ends the request.
    void finish(Request& request, ucs_status_t status);

    // May the notification be posted on this lane now, behind all that was posted there: do the
    // endpoint's messages go that way, and has the peer room? It counts from then on.
    bool take_room(Notification& notification, const uct::Endpoint& lane);
    // It was not posted.
    void give_room(Notification& notification);
    // Post it, whose room has been taken, on this lane. Nothing happens if it would have to wait,
    // or needs more than one message.
    static bool post_behind(Notification& notification, const Lane& lane);

    // --- the receiver ---

    // What has come before is handed over in the next progress.
    void set_handler(const NotifyHandler& handler);
    // Hands over what came before the handler. @return how many
    unsigned run_deferred();
    size_t kept() const { return kept_.size(); }

    // --- both ---

    // An endpoint to the peer has failed: what was under way is lost or is not counted any more.
    void peer_failed(uint64_t peer);
    // No endpoint leads there any more.
    void forget_peer(uint64_t peer);
    // Peers of which anything is known.
    size_t peers() const { return outgoing_.size() + incoming_.size(); }

  private:
    // To a peer.
    struct Outgoing {
        size_t under_way = 0;  // what counts, that the peer has not given credit for
        RequestQueue waiting;  // for credit
    };
    // Of a peer, before there was a handler.
    struct Kept {
        uint64_t sender = 0;
        uint64_t value = 0;
        std::vector<std::byte> payload;
        HeldBytes held;
    };
    // Of which not all pieces have come.
    struct Arriving {
        Notifier* owner = nullptr;
        uint64_t sender = 0;
        uint64_t value = 0;
        std::vector<std::byte> payload;
        HeldBytes held;
    };

    static size_t cost_of(size_t length) { return kOverhead + length; }
    static ucs_status_t on_message(void* self, void* data, size_t length, uct::ReceiveDescriptor*);
    static ucs_status_t store(void* arriving, size_t offset, const void* data, size_t length);
    static void end(void* arriving, ucs_status_t status);
    static void abort(Request& request, ucs_status_t status);

    bool take_room(Notification& notification, uint64_t peer);
    void start(Request& request);
    void wait_for_room(Request& request);
    void start_waiting(Outgoing& outgoing);
    // @return false: it is malformed
    bool take_payload(const NotifyHeader& header, std::span<const std::byte> rest);
    bool take_credit(const NotifyHeader& header, std::span<const std::byte> rest);

    void arrived(uint64_t sender, uint64_t value, std::span<const std::byte> payload);
    void keep(uint64_t sender, uint64_t value, std::span<const std::byte> payload);
    void hand_over(uint64_t sender, uint64_t value, std::span<const std::byte> payload);
    void credit(uint64_t peer, size_t units);

    RequestPool& requests_;
    EndpointTable& endpoints_;
    Reassembly& reassembly_;
    const uint64_t uuid_;
    NotifyHandler handler_;
    std::unordered_map<uint64_t, Outgoing> outgoing_;  // by the peer's uuid
    std::unordered_map<uint64_t, size_t> incoming_;    // the same: handed over, without credit yet
    std::list<Kept> kept_;
    size_t kept_bytes_ = 0;
    bool has_warned_ = false;
};

}  // namespace ucp

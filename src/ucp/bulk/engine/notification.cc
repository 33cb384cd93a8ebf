// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/notification.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "ucp/dt/buffer.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/runtime/request_pool.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

// One message.
struct NotifyPiece {
    std::span<const std::byte> header;
    std::span<const std::byte> payload;

    static size_t pack(void* destination, void* arg) {
        const auto& [header, payload] = *static_cast<const NotifyPiece*>(arg);
        std::memcpy(destination, header.data(), header.size());
        std::memcpy(static_cast<std::byte*>(destination) + header.size(), payload.data(),
                    payload.size());
        return header.size() + payload.size();
    }
};

// What goes before the first bytes of a payload.
struct PayloadHeader {
    NotifyHeader header;
    NotifyPayload payload;
};

ucs_status_t post_plain(Notification& notification, const Lane& lane) {
    const NotifyMessage message{Request::of(notification).endpoint->local_uuid(),
                                notification.value};
    return post_bytes(lane.endpoint, AmId::kNotify, std::as_bytes(std::span(&message, 1)));
}

// As Request::Post. One piece of the payload.
ucs_status_t post_payload(Notification& notification, const Lane& lane) {
    const Endpoint& endpoint = *Request::of(notification).endpoint;
    const uint64_t sender = endpoint.local_uuid();
    if (notification.number == 0) notification.number = endpoint.next_message();
    const PayloadHeader first{{sender, notification.value, NotifyHeader::kPayload,
                               static_cast<uint32_t>(notification.length)},
                              {notification.number}};
    const FragmentHeader further{{sender, notification.number}, notification.offset};
    const bool is_first = notification.offset == 0;
    NotifyPiece piece{
        is_first ? std::as_bytes(std::span(&first, 1)) : std::as_bytes(std::span(&further, 1)), {}};
    const size_t room = lane.attributes.am.max_bcopy - piece.header.size();
    const size_t left = notification.length - notification.offset;
    piece.payload = {notification.payload + notification.offset, piece_length(room, left)};
    const ssize_t sent =
        lane.endpoint.am_bcopy(static_cast<uint8_t>(is_first ? AmId::kNotify : AmId::kFragment),
                               NotifyPiece::pack, &piece);
    if (sent < 0) return static_cast<ucs_status_t>(sent);
    notification.offset += piece.payload.size();
    return notification.offset == notification.length ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t post(Notification& notification, const Lane& lane) {
    return notification.length == 0 ? post_plain(notification, lane)
                                    : post_payload(notification, lane);
}

// Without memory for a notification the endpoint fails: it must not go missing unseen.
template <typename Work>
bool with_memory(Endpoint& endpoint, Work work) {
    try {
        work();
        return true;
    } catch (const std::bad_alloc&) {
        ucs::log_error("no memory for a notification of worker {:016x}: its endpoint fails",
                       endpoint.remote_uuid());
        endpoint.reset(UCS_ERR_NO_MEMORY);
        return false;
    }
}

void close(Request& request) {
    const Notification& notification = request.part<Notification>();
    std::free(notification.payload);
    if (notification.waits) request.endpoint->remote_operation_finished(*notification.waits);
}

}  // namespace

// --- the sender

Request* Notifier::begin(Endpoint& endpoint, uint64_t value, std::span<const std::byte> payload,
                         const OpParams& params) {
    std::byte* copy = nullptr;
    if (!payload.empty()) {
        copy = static_cast<std::byte*>(std::malloc(payload.size()));
        if (copy == nullptr) return nullptr;
        std::memcpy(copy, payload.data(), payload.size());
    }
    Request* const request = requests_.begin(params, Request::CallbackKind::kSend);
    if (request == nullptr) {
        std::free(copy);
        return nullptr;
    }
    auto& notification = request->emplace<Notification>();
    notification.owner = this;
    notification.value = value;
    notification.payload = copy;
    notification.length = payload.size();
    request->endpoint = &endpoint;
    request->post = [](Request& self, const Lane& lane) {
        return post(self.part<Notification>(), lane);
    };
    request->abort = abort;
    request->cleanup = close;
    return request;
}

void tell_of_end(Request& teller, ucs_status_t status) {
    teller.part<Notification>().owner->finish(teller, status);
}

void Notifier::finish(Request& request, ucs_status_t status) {
    auto& notification = request.part<Notification>();
    if (status == UCS_OK && !notification.is_posted) status = request.endpoint->status();
    if (status != UCS_OK || notification.is_posted) return request.complete(status);
    const uint64_t peer = request.endpoint->remote_uuid();
    const bool has_memory = with_memory(*request.endpoint, [&] { outgoing_[peer]; });
    if (!has_memory) return request.complete(UCS_ERR_NO_MEMORY);
    if (take_room(notification, peer)) {
        start(request);
    } else {
        wait_for_room(request);
    }
}

void Notifier::start(Request& request) {
    Endpoint& endpoint = *request.endpoint;
    // The peer gives credit for this one, for which it needs this worker's address.
    if (outgoing_.find(endpoint.remote_uuid())->second.under_way >= kCredit)
        request.flags |= Request::kNeedsGreeting;
    // What waits for the fence may wait for this notification.
    if (!endpoint.fence().has_seen(endpoint.host().fence_sequence))
        request.flags |= Request::kAwaited;
    endpoint.start(request);
}

bool Notifier::take_room(Notification& notification, uint64_t peer) {
    const size_t cost = cost_of(notification.length);
    try {
        Outgoing& outgoing = outgoing_[peer];
        if (!outgoing.waiting.empty() || outgoing.under_way + cost > kWindow) return false;
        outgoing.under_way += cost;
        notification.peer = peer;
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

bool Notifier::take_room(Notification& notification, const uct::Endpoint& lane) {
    const Endpoint& endpoint = *Request::of(notification).endpoint;
    if (!endpoint.message_ready() || &endpoint.tx_lane() != &lane ||
        !take_room(notification, endpoint.remote_uuid()))
        return false;
    if (endpoint.has_greeted() || outgoing_.find(notification.peer)->second.under_way < kCredit)
        return true;
    give_room(notification);
    return false;
}

void Notifier::give_room(Notification& notification) {
    const auto outgoing = outgoing_.find(notification.peer);
    const size_t cost = cost_of(notification.length);
    if (outgoing != outgoing_.end())
        outgoing->second.under_way -= std::min(outgoing->second.under_way, cost);
}

bool Notifier::post_behind(Notification& notification, const Lane& lane) {
    const size_t whole = sizeof(PayloadHeader) + notification.length;
    if (notification.length != 0 && whole > lane.attributes.am.max_bcopy) return false;
    return post(notification, lane) == UCS_OK;
}

void Notifier::wait_for_room(Request& request) {
    auto& notification = request.part<Notification>();
    Endpoint& endpoint = *request.endpoint;
    if (!with_memory(endpoint, [&] { requests_.name(request); }))
        return request.complete(UCS_ERR_NO_MEMORY);
    notification.peer = endpoint.remote_uuid();
    outgoing_.find(notification.peer)->second.waiting.push_back(request);
    notification.waits = endpoint.remote_operation_started();
}

// The endpoint has failed while the notification waited for credit.
void Notifier::abort(Request& request, ucs_status_t status) {
    const auto& notification = request.part<Notification>();
    RequestQueue& waiting = notification.owner->outgoing_.find(notification.peer)->second.waiting;
    waiting.erase(waiting.iterator_to(request));
    request.complete(status);
}

void Notifier::start_waiting(Outgoing& outgoing) {
    while (!outgoing.waiting.empty()) {
        Request& request = outgoing.waiting.front();
        const size_t cost = cost_of(request.part<Notification>().length);
        if (outgoing.under_way + cost > kWindow) return;
        outgoing.under_way += cost;
        outgoing.waiting.pop_front();
        requests_.unname(request);
        start(request);
    }
}

void Notifier::credit(uint64_t peer, size_t units) {
    const auto found = outgoing_.find(peer);
    if (found == outgoing_.end()) return;
    Outgoing& outgoing = found->second;
    outgoing.under_way -= std::min(outgoing.under_way, units);
    start_waiting(outgoing);
}

void Notifier::peer_failed(uint64_t peer) {
    const auto found = outgoing_.find(peer);
    if (found == outgoing_.end()) return;
    found->second.under_way = 0;
    start_waiting(found->second);  // of other endpoints to it
}

void Notifier::forget_peer(uint64_t peer) {
    incoming_.erase(peer);
    const auto found = outgoing_.find(peer);
    if (found != outgoing_.end() && found->second.waiting.empty()) outgoing_.erase(found);
}

// --- the receiver

void Notifier::add_handlers(InterfaceSet& interfaces) {
    interfaces.set_handler(AmId::kNotify, on_message, this);
}

ucs_status_t Notifier::on_message(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<Notifier*>(arg);
    NotifyMessage plain;
    NotifyHeader header;
    std::span<const std::byte> rest;
    if (read_whole(data, length, &plain)) {
        self.arrived(plain.sender, plain.value, {});
        return UCS_OK;
    }
    bool is_sound = read_header(data, length, &header, &rest);
    if (is_sound && header.kind == NotifyHeader::kPayload) {
        is_sound = self.take_payload(header, rest);
    } else {
        is_sound =
            is_sound && header.kind == NotifyHeader::kCredit && self.take_credit(header, rest);
    }
    if (!is_sound) ucs::log_warn("a malformed notification of {} bytes was dropped", length);
    return UCS_OK;
}

bool Notifier::take_credit(const NotifyHeader& header, std::span<const std::byte> rest) {
    if (!rest.empty() || header.total != 0) return false;
    credit(header.sender, header.value);
    return true;
}

bool Notifier::take_payload(const NotifyHeader& header, std::span<const std::byte> rest) {
    NotifyPayload message;
    if (!read_header(rest.data(), rest.size(), &message, &rest) || rest.empty() ||
        rest.size() > header.total || header.total > kLongest)
        return false;
    if (rest.size() == header.total) {
        arrived(header.sender, header.value, rest);
        return true;
    }
    auto arriving = std::make_unique<Arriving>();
    arriving->owner = this;
    arriving->sender = header.sender;
    arriving->value = header.value;
    if (!reassembly_.charge(arriving->held, header.sender, sizeof(Arriving) + header.total))
        return true;
    arriving->payload.reserve(Reassembly::room_for(rest.size(), header.total));
    arriving->payload.assign(rest.begin(), rest.end());
    const Reassembly::Sink sink{store, end, arriving.release()};
    reassembly_.begin({header.sender, message.number}, header.total, rest.size(), sink);
    return true;
}

ucs_status_t Notifier::store(void* target, size_t, const void* data, size_t length) {
    auto& payload = static_cast<Arriving*>(target)->payload;
    const auto* const bytes = static_cast<const std::byte*>(data);
    try {
        payload.insert(payload.end(), bytes, bytes + length);
    } catch (const std::bad_alloc&) {
        return UCS_ERR_NO_MEMORY;
    }
    return UCS_OK;
}

void Notifier::end(void* target, ucs_status_t status) {
    const std::unique_ptr<Arriving> arriving(static_cast<Arriving*>(target));
    Notifier& self = *arriving->owner;
    if (status == UCS_ERR_NO_MEMORY) {
        ucs::log_error("no memory for a notification: it is lost");
        Endpoint* const endpoint = self.endpoints_.find(arriving->sender);
        if (endpoint != nullptr) endpoint->reset(status);
    }
    if (status != UCS_OK) return;
    arriving->held.release();
    self.arrived(arriving->sender, arriving->value, arriving->payload);
}

void Notifier::arrived(uint64_t sender, uint64_t value, std::span<const std::byte> payload) {
    incoming_.try_emplace(sender, 0);
    (void)run_deferred();  // what came before is handed over before
    if (handler_.is_set()) {
        hand_over(sender, value, payload);
    } else {
        keep(sender, value, payload);
    }
}

void Notifier::keep(uint64_t sender, uint64_t value, std::span<const std::byte> payload) {
    std::list<Kept> last(1);
    Kept& kept = last.front();
    kept.sender = sender;
    kept.value = value;
    kept.payload.assign(payload.begin(), payload.end());
    if (!reassembly_.charge(kept.held, sender, sizeof(Kept) + payload.size())) return;
    kept_.splice(kept_.end(), last);
    kept_bytes_ += cost_of(payload.size());
    if (has_warned_ || kept_bytes_ < kWindow / 2) return;
    has_warned_ = true;
    ucs::log_warn(
        "{} notifications wait for a handler (ucpx_worker_set_notify_handler): who sends more "
        "waits "
        "as well",
        kept_.size());
}

void Notifier::set_handler(const NotifyHandler& handler) {
    handler_ = handler;
    has_warned_ = false;
    // Handlers are called from progress alone.
    if (handler_.is_set() && !kept_.empty()) requests_.run_behind_call();
}

// A handler may set or take away the handler meanwhile.
unsigned Notifier::run_deferred() {
    unsigned count = 0;
    for (; handler_.is_set() && !kept_.empty(); ++count) {
        std::list<Kept> first;
        first.splice(first.begin(), kept_, kept_.begin());
        Kept& kept = first.front();
        kept_bytes_ -= cost_of(kept.payload.size());
        kept.held.release();
        hand_over(kept.sender, kept.value, kept.payload);
    }
    return count;
}

// The credit first: the handler may throw.
void Notifier::hand_over(uint64_t sender, uint64_t value, std::span<const std::byte> payload) {
    const NotifyHandler handler = handler_;
    if (const auto incoming = incoming_.find(sender); incoming != incoming_.end()) {
        incoming->second += cost_of(payload.size());
        if (incoming->second >= kCredit) {
            const size_t units = std::exchange(incoming->second, 0);
            const NotifyHeader message{uuid_, units, NotifyHeader::kCredit, 0};
            if (sender == uuid_) {
                credit(uuid_, units);
            } else {
                endpoints_.answer(sender, AmId::kNotify, std::as_bytes(std::span(&message, 1)));
            }
        }
    }
    if (handler.of_all == nullptr) return handler.of_value(handler.argument, sender, value);
    const ucpx_notification_t notification{
        UCPX_NOTIFICATION_FIELD_SENDER_UID | UCPX_NOTIFICATION_FIELD_VALUE |
            UCPX_NOTIFICATION_FIELD_PAYLOAD,
        sender, value, payload.empty() ? nullptr : payload.data(), payload.size()};
    handler.of_all(handler.argument, &notification);
}

}  // namespace ucp

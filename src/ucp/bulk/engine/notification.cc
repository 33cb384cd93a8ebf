// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/notification.h"

#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

ucs_status_t post(uct::Endpoint& lane, const NotifyMessage& message) {
    return post_bytes(lane, AmId::kNotify, std::as_bytes(std::span(&message, 1)));
}

ucs_status_t post_notification(Request& request, const Lane& lane) {
    return post(lane.endpoint, request.part<NotifyMessage>());
}

ucs_status_t on_notification(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    const NotifyHandler handler = *static_cast<const NotifyHandler*>(arg);
    NotifyMessage message;
    if (!read_whole(data, length, &message)) {
        ucs::log_warn("a malformed notification of {} bytes was dropped", length);
        return UCS_OK;
    }
    if (handler.callback == nullptr) {
        ucs::log_warn("a notification was dropped: the worker has no handler for them");
        return UCS_OK;
    }
    handler.callback(handler.argument, message.sender, message.value);
    return UCS_OK;
}

}  // namespace

void add_notify_handler(NotifyHandler& handler, InterfaceSet& interfaces) {
    interfaces.set_handler(AmId::kNotify, on_notification, &handler);
}

void send_notification(Endpoint& endpoint, uint64_t value) {
    if (endpoint.is_failed()) return;
    Request* request = endpoint.requests().allocate();
    if (request == nullptr) {
        ucs::log_error("no memory for a notification: it is lost");
        return;
    }
    request->emplace<NotifyMessage>(NotifyMessage{endpoint.local_uuid(), value});
    request->endpoint = &endpoint;
    request->post = post_notification;
    endpoint.start(*request);
}

bool may_send_notification(const Endpoint& endpoint, const uct::Endpoint& lane) {
    return endpoint.message_ready() && &endpoint.tx_lane() == &lane;
}

bool send_notification_behind(Endpoint& endpoint, uint64_t value, const uct::Endpoint& lane) {
    if (!may_send_notification(endpoint, lane)) return false;
    return post(endpoint.tx_lane(), {endpoint.local_uuid(), value}) == UCS_OK;
}

}  // namespace ucp

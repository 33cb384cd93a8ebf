// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/engine/notification.h"

#include <cstring>

#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

size_t pack_notification(void* destination, void* arg) {
    std::memcpy(destination, arg, sizeof(NotifyMessage));
    return sizeof(NotifyMessage);
}

ucs_status_t post_notification(Request& request, const Lane& lane) {
    const ssize_t sent = lane.endpoint.am_bcopy(static_cast<uint8_t>(AmId::kNotify),
                                                pack_notification, &request.part<NotifyMessage>());
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

ucs_status_t on_notification(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    const NotifyHandler handler = *static_cast<const NotifyHandler*>(arg);
    NotifyMessage message;
    if (length != sizeof(message)) {
        ucs::log_warn("a malformed notification of {} bytes was dropped", length);
        return UCS_OK;
    }
    std::memcpy(&message, data, sizeof(message));
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
    NotifyMessage message{endpoint.local_uuid(), value};
    return endpoint.tx_lane().am_bcopy(static_cast<uint8_t>(AmId::kNotify), pack_notification,
                                       &message) >= 0;
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace uct {
class Endpoint;
}  // namespace uct

// Notifications tell a worker that a batch of a peer has ended. They are messages of the sender's
// endpoint, in its order; whoever sends one sees to it that the bytes land before
// (docs/design/bulk.md).
namespace ucp {

class Endpoint;
class InterfaceSet;

// What the peer is to be told of a batch.
struct Notification {
    uint64_t value = 0;
    bool is_wanted = false;
    bool is_posted = false;  // it is under way, behind the bytes, and must not be sent again
};

#pragma pack(push, 1)
// kNotify; what a transport makes of immediate data is the same
struct NotifyMessage {
    uint64_t sender;  // uuid
    uint64_t value;
};
#pragma pack(pop)

// The user's function for notifications.
struct NotifyHandler {
    void (*callback)(void* arg, uint64_t sender_uid, uint64_t notification) = nullptr;
    void* argument = nullptr;
};

// Arriving notifications go to the handler, which may change.
void add_notify_handler(NotifyHandler& handler, InterfaceSet& interfaces);

// On a failed endpoint nothing is sent. A flush waits for it as for any message.
void send_notification(Endpoint& endpoint, uint64_t value);

// Are the endpoint's messages posted on this lane, and now?
bool may_send_notification(const Endpoint& endpoint, const uct::Endpoint& lane);

// Post it on this lane, behind all that was posted there. Nothing happens if it would have to wait,
// or if the endpoint's messages go another way at the moment.
// @return whether it was posted
bool send_notification_behind(Endpoint& endpoint, uint64_t value, const uct::Endpoint& lane);

}  // namespace ucp

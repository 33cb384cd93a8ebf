// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Notifications tell a worker that a batch of a peer has ended. They are messages of the sender's
// endpoint, in its order; whoever sends one sees to it that the bytes have landed before.
namespace ucp {

class Endpoint;
class Worker;

#pragma pack(push, 1)
/** kNotify */
struct NotifyMessage {
    uint64_t sender;  //!< uuid
    uint64_t value;
};
#pragma pack(pop)

void add_notify_handler(Worker& worker);

/** On a failed endpoint nothing is sent. A flush waits for it as for any message. */
void send_notification(Endpoint& endpoint, uint64_t value);

}  // namespace ucp

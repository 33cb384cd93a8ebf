// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "ucp/lanes/link.h"
#include "ucp/lanes/messages.h"
#include "ucs/type/status.h"

namespace ucp::lanes {

struct Change {
    LinkState from;
    LinkState to;
    Reason reason;
    Score score;  // agreed, when it happened
};

struct PeerId {
    std::uint64_t worker = 0;
    std::uint32_t connection = 0;  // the same at both ends
};

// What the negotiator wants done. Calls come in the order in which they must take effect, after the
// event that caused them has been digested: an implementation may call the negotiator back from
// inside, with any event. It may throw std::bad_alloc if it has done nothing; it is asked again.
class Sink {
  public:
    virtual ~Sink() = default;

    // Who is at the other end; asked once for each record.
    virtual PeerId identify(Peer peer) = 0;
    // What a dedicated lane to it takes; the same at both ends.
    virtual Pool pool_of(Peer) { return Pool::kDevice; }

    // A control message on the scalable lane, in order with all others and with start_tx_switch.
    virtual void send(Peer peer, const Message& message) = 0;

    // Make a dedicated lane, then on_lane_created().
    virtual void create_lane(Peer peer) = 0;
    // Connect it to `address`, make it able to receive, then on_lane_ready().
    virtual void connect_lane(Peer peer, std::span<const std::uint8_t> address) = 0;
    // Destroy it, then on_lane_destroyed(). Nothing of a live peer is outstanding on it.
    virtual void destroy_lane(Peer peer) = 0;

    // Put it aside as it is, then on_lane_destroyed(): it is out of its slot. Nothing is under way
    // on it at either end. It outlives the endpoint: it is known by who is at the other end.
    virtual void keep_lane(Peer peer) = 0;
    // The link has the lane again that was kept for it: on_lane_created() with its address. To
    // connect_lane() with the address that it is connected to, it is ready.
    virtual void take_lane(Peer peer) = 0;
    // Destroy the lane kept for that link, at once: another may need what it holds.
    virtual void drop_kept_lane(const PeerId& peer) = 0;
    // Asked only: would a lane for `peer`, which could not be made for want of a resource, find
    // that where the one kept for that link is dropped?
    virtual bool makes_room(const PeerId& kept, Peer peer) = 0;

    // Post `mark` on the scalable lane as the last message of this direction there, then
    // on_marker_posted(). Messages go where the link's TxDirection says; pending ones are replayed.
    virtual void start_tx_switch(Peer peer, const Message& mark) = 0;
    // The peer acknowledged MARK: the window is gone, waiting messages may be posted.
    virtual void open_tx_window(Peer peer) = 0;
    // The peer's MARK was processed: deliver what was held of the dedicated lane, in order.
    virtual void open_rx_gate(Peer peer) = 0;

    // Post `dmark` on the dedicated lane as the last message of this direction there, then
    // on_marker_posted(). From now on messages go to the scalable lane as ordered ones of the
    // round, one-sided operations as ever.
    virtual void stop_tx_and_mark(Peer peer, const Message& dmark) = 0;
    // When all that was posted on the dedicated lane, the marker included, is done remotely:
    // on_flushed().
    virtual void flush_lane(Peer peer) = 0;
    // The peer's DMARK was processed: deliver what was held of the scalable lane, in order.
    virtual void open_early(Peer peer) = 0;
    // The peer acknowledged DMARK: messages go to the scalable lane as they are.
    virtual void resume_tx(Peer peer) = 0;

    // The dedicated lane failed under messages: the endpoint's requests end with `status`.
    virtual void fail_endpoint(Peer peer, ucs_status_t status) = 0;
    // After on_close() or withdraw_all(): the link holds nothing more; forget() may follow.
    virtual void closed(Peer peer) = 0;

    // For explain, counters and callbacks of the interface.
    virtual void notify(Peer peer, const Change& change) = 0;
};

}  // namespace ucp::lanes

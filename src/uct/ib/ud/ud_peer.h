// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <boost/intrusive/slist.hpp>
#include <boost/intrusive/unordered_set.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "uct/ib/base/receive_queue.h"
#include "uct/ib/ud/ud_endpoint.h"
#include "uct/ib/ud/ud_packet.h"

namespace uct::ib::ud {

class UdInterface;

// Another interface: the handle of its port and its address there.
struct PeerTarget {
    ibv_ah* handle = nullptr;
    UdAddress address;
    friend bool operator==(const PeerTarget&, const PeerTarget&) = default;
};

// Somebody who waits until a packet and all before it are acknowledged. From a pool.
struct AcknowledgementWaiter : boost::intrusive::slist_base_hook<
                                   boost::intrusive::link_mode<boost::intrusive::normal_link>> {
    uint32_t number = 0;
    Completion* completion = nullptr;
};

// A packet that came too early, kept in its receive buffer, in place of the GRH.
struct HeldBuffer final : HeldPacket {
    HeldBuffer(uint32_t number, ReceiveBuffer* in, uint32_t bytes)
        : HeldPacket(number), length(bytes), buffer(in) {}
    uint32_t length;  // header and payload
    ReceiveBuffer* buffer;
};

// What an interface has for each other one that it talks with: a connection, and who uses it.
//
// Made by the first endpoint to it or the first packet from it. It lives until it fails and its
// last endpoint is gone, else as long as the interface.
class UdPeer final : public boost::intrusive::unordered_set_base_hook<>,
                     public boost::intrusive::set_base_hook<boost::intrusive::optimize_size<true>> {
  public:
    struct Source {
        PortAddress port;
        uint64_t identity;  // PeerIdentity::name
    };
    UdPeer(UdInterface& interface, const PeerTarget& target, const Source& source,
           size_t payload_limit, uint32_t name, uint64_t start);
    ~UdPeer();

    UdInterface& interface() const { return interface_; }
    const PeerTarget& target() const { return target_; }
    UdConnection& connection() { return *connection_; }
    ucs_status_t status() const { return status_; }
    const PortAddress& port() const { return port_; }

    void add(UdEndpoint& endpoint) { endpoints_.push_back(endpoint); }
    bool has_endpoints() const { return !endpoints_.empty(); }

    // --- sending ---
    bool has_room() const;
    // Why has_room() is false.
    ucs_status_t no_room() const { return status_ != UCS_OK ? status_ : UCS_ERR_NO_RESOURCE; }
    // A packet that a message of any length can be written to, and all that it is cut into.
    ucs_status_t begin_message(Packet** packet);
    // The packet's payload is a message.
    void send(Packet& packet, uint8_t id, size_t length);
    ucs_status_t flush(Completion* completion);
    // Complete when all sent so far is acknowledged, which it is not yet.
    void await_acknowledgement(AcknowledgementWaiter& waiter, Completion* completion);
    // Everything that connection and queue admit. @return false if the queue is full
    bool transmit();
    // An acknowledgement of its own, if there is room.
    void acknowledge();

    // --- receiving ---
    // A packet of this peer; takes the buffer. `data` is the packet, `length` its bytes.
    void arrived(const Header& header, ReceiveBuffer* buffer, std::byte* data, uint32_t length);

    // What is held or not complete: the other end's stream begins anew.
    void drop_received();

    // --- time: the interface asks at scheduled() ---
    ucs::Time scheduled() const { return scheduled_; }
    void set_scheduled(ucs::Time when) { scheduled_ = when; }

    // --- the end ---
    // Takes no more; end() follows, outside of callbacks.
    void fail(ucs_status_t status) { status_ = status; }
    // All that is outstanding or waits completes with the status; endpoints hear of it.
    void end();
    // Begin anew, when nothing of ours is outstanding.
    void restart(uint32_t name, uint64_t start);

    bool is_ready = false;  // in the interface's list of those that may transmit

  private:
    using Waiters =
        boost::intrusive::slist<AcknowledgementWaiter, boost::intrusive::cache_last<true>,
                                boost::intrusive::constant_time_size<false>>;

    void post(Packet& packet);
    void deliver(const Header& header, ReceiveBuffer* buffer, std::byte* payload, size_t length);
    void complete_waiters();

    UdInterface& interface_;
    const PeerTarget target_;
    const PortAddress port_;
    PeerIdentity identity_;
    std::optional<UdConnection> connection_;
    ucs::Time scheduled_ = ucs::kNever;
    boost::intrusive::list<UdEndpoint, boost::intrusive::base_hook<EndpointHook>,
                           boost::intrusive::constant_time_size<false>>
        endpoints_;
    Waiters waiters_;
    std::unique_ptr<std::vector<std::byte>> assembly_;  // a message of several packets, so far
    const uint16_t payload_limit_;
    enum class Assembling : uint8_t { kNothing, kMessage, kLost } assembling_{};
    ucs_status_t status_ = UCS_OK;
};

}  // namespace uct::ib::ud

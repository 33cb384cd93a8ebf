// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>

#include "uct/base/pending_queue.h"
#include "uct/base/refusing_endpoint.h"

namespace uct::ib::ud {

class UdPeer;

struct PeerListTag;

// Its place in the list of those that share the peer.
using EndpointHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<PeerListTag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

// A way to send to another interface. All it has is its place in the queue of those that wait: the
// stream belongs to the UdPeer, which endpoints to the same interface share. There are no one-sided
// operations, as the interface's attributes say.
class UdEndpoint final : public RefusingEndpoint, public PendingQueue::Group, public EndpointHook {
  public:
    explicit UdEndpoint(UdPeer& peer);
    ~UdEndpoint() override;

    UdPeer& peer() const { return peer_; }

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override;
    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) override;
    // Copies, and completes when the peer has the message.
    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) override;

    ucs_status_t fence() override;
    ucs_status_t flush(Completion* completion) override;
    ucs_status_t check(Completion* completion) override;
    ucs_status_t pending_add(Pending* pending) override;
    void pending_remove(Pending* pending) override;
    bool is_connected(const RemoteAddress& remote) const override;

  private:
    UdPeer& peer_;
};

}  // namespace uct::ib::ud

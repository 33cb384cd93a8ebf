// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/ud/ud_endpoint.h"

#include <cstring>

#include "uct/base/am.h"
#include "uct/ib/ud/ud_interface.h"
#include "uct/ib/ud/ud_peer.h"

namespace uct::ib::ud {

UdEndpoint::UdEndpoint(UdPeer& peer) : peer_(peer) {
    peer.add(*this);
}

UdEndpoint::~UdEndpoint() {
    peer_.interface().pending().drop_all(*this);
    EndpointHook::unlink();
    // What is outstanding goes on without the endpoint.
    peer_.interface().endpoint_gone(peer_);
}

ucs_status_t UdEndpoint::am_short(uint8_t id, uint64_t header, const void* payload,
                                  uint32_t length) {
    if (!peer_.has_room()) [[unlikely]]
        return peer_.no_room();
    Packet* packet = peer_.interface().short_packet();
    if (packet == nullptr) [[unlikely]]
        return UCS_ERR_NO_MEMORY;
    std::byte* const data = packet->payload();
    std::memcpy(data, &header, sizeof(header));
    if (length > 0) std::memcpy(data + sizeof(header), payload, length);
    peer_.send(*packet, id, sizeof(header) + length);
    return UCS_OK;
}

ssize_t UdEndpoint::am_bcopy(uint8_t id, PackCallback pack, void* arg) {
    Packet* packet = nullptr;
    const ucs_status_t status = peer_.begin_message(&packet);
    if (status != UCS_OK) [[unlikely]]
        return status;
    const size_t length = pack_or_release(pack, packet->payload(), arg, [&] { packet->drop(); });
    peer_.send(*packet, id, length);
    return static_cast<ssize_t>(length);
}

ucs_status_t UdEndpoint::am_zcopy(uint8_t id, std::span<const std::byte> header,
                                  std::span<const Iov> iov, Completion* completion) {
    const OperationLimits& limits = peer_.interface().attributes().am;
    if (iov.size() > limits.max_iov || header.size() > limits.max_header) {
        return UCS_ERR_INVALID_PARAM;
    }
    Packet* packet = nullptr;
    const ucs_status_t status = peer_.begin_message(&packet);
    if (status != UCS_OK) [[unlikely]]
        return status;
    AcknowledgementWaiter* waiter = nullptr;
    if (completion != nullptr) {
        waiter = peer_.interface().waiters().create();
        if (waiter == nullptr) {
            packet->drop();
            return UCS_ERR_NO_MEMORY;
        }
    }
    std::byte* end = packet->payload();
    const auto append = [&](const void* from, size_t length) {
        if (length > 0) std::memcpy(end, from, length);
        end += length;
    };
    append(header.data(), header.size());
    for (const Iov& piece : iov) append(piece.buffer, piece.length);
    peer_.send(*packet, id, static_cast<size_t>(end - packet->payload()));
    if (waiter != nullptr) peer_.await_acknowledgement(*waiter, completion);
    return UCS_INPROGRESS;
}

ucs_status_t UdEndpoint::fence() {
    return peer_.status();  // messages arrive in order anyway
}

ucs_status_t UdEndpoint::flush(Completion* completion) {
    return peer_.flush(completion);
}

ucs_status_t UdEndpoint::check(Completion* completion) {
    if (peer_.status() != UCS_OK) return peer_.status();
    if (peer_.connection().sender().is_idle()) {
        Packet* packet = peer_.interface().short_packet();
        if (packet == nullptr) return UCS_ERR_NO_MEMORY;
        packet->is_ping = true;
        peer_.send(*packet, 0, 0);
    }
    return peer_.flush(completion);
}

ucs_status_t UdEndpoint::pending_add(Pending* pending) {
    if (peer_.status() != UCS_OK) return peer_.status();
    if (empty() && peer_.has_room()) return UCS_ERR_BUSY;
    peer_.interface().pending().add(*this, *pending);
    return UCS_OK;
}

void UdEndpoint::pending_remove(Pending* pending) {
    if (pending->is_queued()) peer_.interface().pending().remove(*this, *pending);
}

bool UdEndpoint::is_connected(const RemoteAddress& remote) const {
    if (peer_.status() != UCS_OK) return false;
    const auto port = PortAddress::read(remote.device);
    const auto address = UdAddress::read(remote.interface);
    return port && address &&
           peer_.target() == PeerTarget{peer_.interface().find_address_handle(*port), *address};
}

}  // namespace uct::ib::ud

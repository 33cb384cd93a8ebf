// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucp/base/request.h"
#include "ucp/bulk/engine/engine.h"
#include "ucp/context/config.h"
#include "ucp/dt/buffer.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/mem/domain_set.h"
#include "ucp/proto/eager/eager.h"
#include "ucp/proto/eager/reassembly.h"
#include "ucp/proto/rndv/direct.h"
#include "ucp/proto/rndv/relay.h"
#include "ucp/proto/rndv/rndv_wire.h"

// Rendezvous: the data of a long message moves when the receiver has a buffer for it.
//
//   sender                       receiver
//   RTS (address, key)  ----->   matches; then one of
//                                  get: reads the data in chunks
//   done                <-----       ATS
//                                  put: offers its buffer
//   writes in chunks,   <-----       RTR (address, key)
//   flushes the lanes
//   done                ----->       ATP
//                                  copy: neither is possible (datatypes, lanes, configuration)
//   sends fragments     <-----       RTR (no key)
//   done                ----->       DATA ...
//
// Device memory within a host may be read by the receiver's device (kDirect, direct.h), or pass
// through memory of that device (relay.h); otherwise it goes by copy.
//
// RTS and DATA are messages among the application's, in its order; the others are control messages.
// Requests are named by slots with generations; each answer is checked against the endpoint that
// the request belongs to. When a peer fails, its requests end once: those that wait for an answer
// through their name, those that post through their queue.

namespace ucp {

// The user's header of an active message.
struct RndvHeader {
    const void* data;
    uint32_t length;
    void* copy = nullptr;  // malloc'd; the request's, once it has begun
};

// The rendezvous of a worker: both roles.
class Rendezvous final : private Relay::Owner {
  public:
    Rendezvous(RequestPool& pool, EndpointTable& table, DomainSet& set, bulk::Engine& engine,
               RndvScheme way)
        : requests(pool),
          endpoints(table),
          domains(set),
          bulk(engine),
          scheme(way),
          direct(pool, table),
          relay(pool, table, direct, *this) {}
    Rendezvous(const Rendezvous&) = delete;

    // For all messages but the announcements, which belong to tags and active messages.
    void add_handlers(InterfaceSet& interfaces);

    // Make a request a rendezvous send; the caller submits it. The request owns the opened buffer.
    //
    // @param protocol  the table's for that buffer: kDirect describes it to the peer's devices
    // @param am  null: kRndvRts with `envelope` as tag; else the user's header of an active message
    // @param user_memory  the handle that came with the buffer, or null
    // @param stamp  of a message that is timed, or 0
    void begin_send(Request& request, select::Protocol protocol, const Packer& buffer,
                    uint64_t envelope, const RndvHeader* am, Memory* user_memory,
                    uint64_t stamp = 0);
    // Announce such a send to a peer that reads the buffer by itself, within its call, if nothing
    // waits before it. @return false: it is to be submitted
    bool announce_at_once(Request& request, const DescribedBefore& where);
    // Fetch announced data into a request made by open_receive(); its end may come at once.
    void receive(Request& request, const Announcement& announcement);
    // The same of an announcement that was kept as it came.
    void receive(Request& request, std::span<const std::byte> bytes);
    // To fetch that announcement's data is this processor's own work.
    bool is_copied_here(std::span<const std::byte> announcement) const;
    // What the table of protocols is to be asked for: as ucp::buffer_class(), or kMapped.
    select::BufferClass buffer_class(Endpoint& endpoint, select::Operation operation,
                                     const Packer& buffer, const Memory* memory) {
        const select::BufferClass kind = ucp::buffer_class(buffer, memory);
        if (kind != select::BufferClass::kDevice) [[likely]]
            return kind;
        const auto is_direct = [&](select::BufferClass which) {
            return endpoint.protocols().find(operation, which, select::Situation::kAlone,
                                             buffer.length()) == select::Protocol::kDirect;
        };
        // What the peer has read is asked for only where it decides.
        return is_direct(select::BufferClass::kMapped) && !is_direct(kind) &&
                       direct.is_mapped(endpoint, buffer)
                   ? select::BufferClass::kMapped
                   : kind;
    }
    // Most messages between devices: whatever else is under way, they are announced to a peer that
    // has read the buffer's allocation by itself. @param where  for announce_at_once()
    bool is_read_by_peer(const Endpoint& endpoint, select::Operation operation,
                         const Packer& buffer, DescribedBefore* where) {
        const ucs::MemoryInfo* const memory = buffer.found();
        if (memory == nullptr) [[likely]]
            return false;
        constexpr auto kMapped = select::BufferClass::kMapped;
        const select::ProtocolTable& protocols = endpoint.protocols();
        const size_t length = buffer.length();
        return protocols.is_announced_anyway(operation, kMapped, length) &&
               protocols.find(operation, kMapped, select::Situation::kAlone, length) ==
                   select::Protocol::kDirect &&
               direct.refer(endpoint, buffer.device_bytes(), memory, where);
    }
    // Ends the receives that devices have filled.
    unsigned run_deferred();
    // Tell the sender that its data is not wanted (UCS_OK) or could not be taken.
    void refuse(const RndvRts& rts, ucs_status_t status);

    // What it works with.
    RequestPool& requests;
    EndpointTable& endpoints;
    DomainSet& domains;
    ucp::bulk::Engine& bulk;
    const RndvScheme scheme;
    DirectPath direct;
    Relay relay;

  private:
    void relayed(Request& receive, size_t arrived, ucs_status_t status) override;
    void add_send_handlers(InterfaceSet& interfaces);
};

// What protocols of whole messages, tagged and active ones, work with: each message goes eagerly or
// by rendezvous, in fragments or not.
class MessageProtocol {
  public:
    MessageProtocol(RequestPool& requests, EndpointTable& endpoints, Rendezvous& rndv,
                    Reassembly& reassembly)
        : requests_(requests), endpoints_(endpoints), rndv_(rndv), reassembly_(reassembly) {}
    MessageProtocol(const MessageProtocol&) = delete;

  protected:
    ~MessageProtocol() = default;

    RequestPool& requests_;
    EndpointTable& endpoints_;
    Rendezvous& rndv_;
    Reassembly& reassembly_;
};

}  // namespace ucp

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
#include "ucp/endpoint/rail_table.h"
#include "ucp/mem/domain_set.h"
#include "ucp/proto/rndv/direct.h"
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
// Device memory within a host may go directly (direct.h); otherwise it goes by copy.
//
// RTS and DATA are messages among the application's, in its order; the others are control messages.
// Requests are named by slots with generations; each answer is checked against the endpoint that
// the request belongs to. When a peer fails, its requests end once: those that wait for an answer
// through their name, those that post through their queue.
namespace ucp {

/** The user's header of an active message. */
struct RndvHeader {
    const void* data;
    uint32_t length;
    void* copy = nullptr;  //!< malloc'd; the request's, once it has begun
};

/** The rendezvous of a worker: both roles. */
class Rendezvous {
  public:
    Rendezvous(RequestPool& pool, EndpointTable& table, const RailTable& paths, DomainSet& set,
               bulk::Engine& engine, RndvScheme way, bool has_threshold)
        : requests(pool),
          endpoints(table),
          rails(paths),
          domains(set),
          bulk(engine),
          scheme(way),
          has_user_threshold(has_threshold),
          direct(pool.work(), table) {}
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    /** For all messages but the announcements, which belong to tags and active messages. */
    void add_handlers(InterfaceSet& interfaces);

    /**
     * Make a request a rendezvous send; the caller submits it. The request owns the opened buffer.
     *
     * @param am  null: kRndvRts with `envelope` as tag; else the user's header of an active message
     * @param user_memory  the handle that came with the buffer, or null
     */
    void begin_send(Request& request, const Packer& buffer, uint64_t envelope, const RndvHeader* am,
                    Memory* user_memory);
    /** Fetch announced data into a request made by open_receive(); its end may come at once. */
    void receive(Request& request, std::span<const std::byte> announcement);
    /** May a buffer be described to the peer, so that its devices read it? */
    bool can_be_direct(Endpoint& endpoint, const Buffer& buffer) const {
        return buffer.type_class() == DatatypeClass::kDevice &&
               (scheme == RndvScheme::kAuto || scheme == RndvScheme::kGet) &&
               DirectPath::is_near(endpoint, buffer);
    }
    /** Is that better than to send at once what the table of protocols does not announce? */
    bool is_direct(Endpoint& endpoint, const Buffer& buffer) {
        return !has_user_threshold && can_be_direct(endpoint, buffer) &&
               direct.pays(endpoint, buffer);
    }
    /** Ends the receives that devices have filled. */
    unsigned run_deferred();
    /** Tell the sender that its data is not wanted (UCS_OK) or could not be taken. */
    void refuse(const RndvRts& rts, ucs_status_t status);

    // What it works with.
    RequestPool& requests;
    EndpointTable& endpoints;
    const RailTable& rails;
    DomainSet& domains;
    ucp::bulk::Engine& bulk;
    const RndvScheme scheme;
    const bool has_user_threshold;  //!< UCX_RNDV_THRESH says what is announced
    DirectPath direct;

  private:
    void add_send_handlers(InterfaceSet& interfaces);
};

}  // namespace ucp

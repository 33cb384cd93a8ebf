// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucp/endpoint/endpoint_host.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/endpoint/rail_table.h"
#include "ucp/select/worker_address.h"
#include "ucp/wireup/guests.h"
#include "ucp/wireup/lane_planner.h"

namespace ucp {

// Makes endpoints from worker addresses, on the lanes that the planner chooses.
class Connector {
  public:
    Connector(InterfaceSet& interfaces, LanePlanner& planner, EndpointTable& endpoints,
              RailTable& rails, LaneEvents& lanes);

    void add_handlers();

    // An endpoint for a call of the program: a new one, or the internal one of that peer.
    // @return UCS_ERR_UNREACHABLE, which is logged with the reasons
    ucs_status_t create(const WorkerAddress& remote, Endpoint** endpoint);
    // The same for a client who has proved nothing.
    // @param is_near  he called from this host
    // @param address  what he is to be told of this worker
    // @return UCS_ERR_REJECTED, which is logged: he claims to be somebody else
    ucs_status_t create_for_guest(WorkerAddress remote, bool is_near, Endpoint** endpoint,
                                  std::vector<std::byte>* address);
    // What this worker tells peers.
    std::vector<std::byte> address() const { return planner_.address(0); }
    // What this worker tells a listener to which it cannot prove anything.
    std::vector<std::byte> address_for_host() const;
    // No key: is it the client who makes all connections?
    bool knows_guests() const { return guests_.can_host(); }
    bool is_guest(uint64_t worker) const { return guests_.contains(worker); }
    // Nothing is left of the peer.
    void forget_peer(uint64_t worker);
    // An endpoint is the program's from now on.
    void give_to_user(Endpoint& endpoint, const ucp_ep_params_t& params);
    // An endpoint whose peer is not known yet; what it is to send waits for connect_waiting().
    Endpoint& create_waiting();
    ucs_status_t connect_waiting(Endpoint& endpoint, const WorkerAddress& remote);

    // An endpoint that came to nothing: freed in the next progress.
    void discard(Endpoint& endpoint) { endpoints_.doom(endpoint); }

  private:
    static ucs_status_t on_hello(void* self, void* data, size_t length,
                                 uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_reset(void* self, void* data, size_t length,
                                 uct::ReceiveDescriptor* descriptor);
    std::vector<std::byte> address_for_guest(uint64_t worker) const;
    // The pair of transports that an endpoint is on.
    struct TransportPair {
        unsigned interface = 0;                // place in the InterfaceSet
        const AddressEntry* remote = nullptr;  // null: the endpoint was there before
    };
    // @param pair  for a guest, who has no further rails
    ucs_status_t connect(const WorkerAddress& remote, Endpoint** endpoint,
                         TransportPair* pair = nullptr);
    ucs_status_t find_or_connect(const WorkerAddress& remote, Endpoint** endpoint,
                                 TransportPair* pair);
    // From now on these connections are that worker's. @return false: they are another's
    bool learn_names(const WorkerAddress& remote, bool overrules);
    // Does the address list the connection that the message at hand came over?
    bool lists_sender(const WorkerAddress& remote) const;
    uint64_t name_of(const AddressEntry& remote) const;
    void retire(Endpoint& endpoint);

    InterfaceSet& interfaces_;
    LanePlanner& planner_;
    EndpointTable& endpoints_;
    RailTable& rails_;
    LaneEvents& lanes_;
    wireup::Guests guests_;
    bool has_warned_ = false;  // that clients without a key are served as peers
};

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "ucp/context/context.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/endpoint/lane_events.h"
#include "ucp/endpoint/rail_table.h"
#include "ucp/select/selection.h"
#include "ucp/select/worker_address.h"

namespace ucp {

/**
 * Makes endpoints from worker addresses: packs the own address, which tells peers what there is to
 * be reached by, and chooses lanes and rails from theirs.
 */
class Connector {
  public:
    Connector(const Context& context, std::string name, EndpointHost& host,
              EndpointTable& endpoints, RailTable& rails, LaneEvents& lanes);

    /** The transports are open: what the worker's address says is settled. */
    ucs_status_t adopt_address();
    void add_handlers();
    /** The worker's address with the transports that `flags` (ucp_worker_address_flags_t) leaves.
     */
    std::vector<std::byte> address(uint32_t flags) const { return pack_own(flags, nullptr); }

    /**
     * An endpoint for a call of the program: a new one, or the internal one of that peer.
     * @return UCS_ERR_UNREACHABLE, which is logged with the reasons
     */
    ucs_status_t create(const WorkerAddress& remote, Endpoint** endpoint);
    /** An endpoint is the program's from now on. */
    void give_to_user(Endpoint& endpoint, const ucp_ep_params_t& params);
    /** An endpoint whose peer is not known yet; what it is to send waits for connect_waiting(). */
    Endpoint& create_waiting();
    ucs_status_t connect_waiting(Endpoint& endpoint, const WorkerAddress& remote);

    /** All candidates for lanes to a peer, and why each is what it is (ucpx_worker_explain()). */
    void explain(const WorkerAddress& peer, FILE* stream);

    EndpointHost& host() const { return host_; }
    EndpointTable& endpoints() const { return endpoints_; }

  private:
    static ucs_status_t on_hello(void* self, void* data, size_t length,
                                 uct::ReceiveDescriptor* descriptor);
    std::vector<std::byte> pack_own(uint32_t flags, std::vector<uint8_t>* interfaces) const;
    bool reaches(uint8_t local, const AddressEntry& remote) const;
    select::Options selection_options() const;
    ucs_status_t connect(const WorkerAddress& remote, Endpoint** endpoint);
    /** The rails beside the first of these. */
    std::vector<Rail> find_rails(const WorkerAddress& remote,
                                 std::span<const select::Candidate> ranked) const;
    /** What an endpoint on that pair of transports has, as its configuration tells it. */
    EndpointLanes lanes_of(const WorkerAddress& remote, const select::Candidate& candidate,
                           std::span<const Rail> rails) const;
    std::string why_unreachable(const WorkerAddress& remote);
    void retire(Endpoint& endpoint);

    const Context& context_;
    const std::string name_;
    EndpointHost& host_;
    EndpointTable& endpoints_;
    RailTable& rails_;
    LaneEvents& lanes_;
    const SelectionRules rules_;
    WorkerAddress own_;                    //!< the worker's address, read: what peers choose by
    std::vector<uint8_t> own_interfaces_;  //!< interface of each entry of own_
};

}  // namespace ucp

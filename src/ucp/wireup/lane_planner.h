// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "ucp/context/context.h"
#include "ucp/endpoint/configuration.h"
#include "ucp/endpoint/rail_table.h"
#include "ucp/runtime/interface_set.h"
#include "ucp/select/cost_file.h"
#include "ucp/select/selection.h"
#include "ucp/select/worker_address.h"
#include "ucs/type/function_ref.h"

namespace ucp {

// Chooses the lanes and rails to a peer, from the addresses of both workers: packs the own one,
// which tells peers what there is to be reached by, and reads theirs.
class LanePlanner {
  public:
    LanePlanner(const Context& context, const InterfaceSet& interfaces, uint64_t uuid,
                std::string name);

    // The transports are open: what the worker's address says is settled. @return the address
    ucs_status_t adopt_address(std::vector<std::byte>* packed);
    // The worker's address with the transports that `flags` (ucp_worker_address_flags_t) leaves.
    std::vector<std::byte> address(uint32_t flags) const;
    // Changes the entry of an own interface, or says that it is left out.
    using Edit = ucs::FunctionRef<bool(unsigned interface, AddressEntry& entry,
                                       std::vector<std::byte>* storage)>;
    // The same with entries as they are edited.
    std::vector<std::byte> edited_address(Edit edit) const { return pack_own(0, nullptr, edit); }
    // Do the worker's messages bear checksums? Then those of its peers must.
    bool has_checksums() const { return context_.config().has_checksums(); }
    // Bytes of the longest message by am_short; SIZE_MAX: as many as the transport takes.
    size_t short_limit() const { return rules_.thresholds.short_limit; }

    // Candidates for the scalable lane, best first, that reach the peer.
    std::vector<select::Candidate> rank(const WorkerAddress& remote) const;
    // The own interface of a candidate: its place in the InterfaceSet.
    unsigned interface(const select::Candidate& candidate) const {
        return own_interfaces_[candidate.local];
    }
    uint64_t uuid() const { return uuid_; }
    const std::string& transport(const select::Candidate& candidate) const {
        return context_.resources()[interfaces_[interface(candidate)].resource].transport;
    }
    // The rails beside the first of these.
    std::vector<Rail> rails(const WorkerAddress& remote,
                            std::span<const select::Candidate> ranked) const;
    // What an endpoint on that candidate has.
    ConfigurationRef configure(const WorkerAddress& remote, const select::Candidate& candidate,
                               std::span<const Rail> rails);
    // The same for an endpoint whose peer is not known yet: good for the limits of messages.
    ConfigurationRef configure_waiting();

    // Each candidate and why it was refused, in one line.
    std::string why_unreachable(const WorkerAddress& remote) const;
    // All candidates for lanes to a peer, and why each is what it is (ucpx_worker_explain()).
    void explain(const WorkerAddress& peer, FILE* stream) const;

    // Does it learn what messages take?
    bool learns() const { return learns_; }
    // What was learned is brought together with what other processes have, if it is time.
    void share_learned(ucs::Time now) {
        if (learns_ && sharing_.is_due(now)) sharing_.exchange(learned_, now);
    }
    // The same, whatever time it is: the worker ends.
    void keep_learned();

  private:
    std::vector<std::byte> pack_own(uint32_t flags, std::vector<uint8_t>* interfaces,
                                    Edit edit) const;
    bool reaches(uint8_t local, const AddressEntry& remote) const;
    auto reach() const {
        return [this](uint8_t local, const AddressEntry& remote) { return reaches(local, remote); };
    }
    select::Options options() const;
    EndpointLanes lanes(const WorkerAddress& remote, select::Candidate candidate,
                        std::span<const Rail> rails) const;
    ConfigurationRef intern(const EndpointLanes& lanes) {
        return configurations_.intern(interfaces_, context_.domains(), rules_, lanes);
    }

    const Context& context_;
    const InterfaceSet& interfaces_;
    const uint64_t uuid_;
    const std::string name_;
    select::LearnedBook learned_;
    select::OneSidedTimes one_sided_times_;
    select::CostSharing sharing_;
    const bool learns_;
    const SelectionRules rules_;
    ConfigurationSet configurations_;
    WorkerAddress own_;                    // the worker's address, read: what peers choose by
    std::vector<uint8_t> own_interfaces_;  // interface of each entry of own_
};

}  // namespace ucp

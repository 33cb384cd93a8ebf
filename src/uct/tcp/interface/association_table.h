// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "uct/tcp/association/association.h"

namespace uct::tcp {

// The associations of an interface, one for each peer's interface, and which of their connections
// it takes, once their handshake is whole and known to be of this job.
//
// They are freed by reap() only, so that completions and handlers may do what they like.
class AssociationTable final : public AssociationOwner {
    using List = boost::intrusive::list<Association, boost::intrusive::base_hook<AssociationHook>,
                                        boost::intrusive::constant_time_size<false>>;

  public:
    AssociationTable(Rail& rail, EventLoop& events, Buffers& buffers, Attention& attention)
        : context_{rail, events, buffers, attention, *this} {}
    ~AssociationTable() { clear(); }
    AssociationTable(const AssociationTable&) = delete;

    // The one with that peer, made if there is none.
    Association& to(uint64_t peer);
    bool empty() const { return associations_.empty(); }
    List::iterator begin() { return associations_.begin(); }
    List::iterator end() { return associations_.end(); }
    List::const_iterator begin() const { return associations_.begin(); }
    List::const_iterator end() const { return associations_.end(); }

    // Somebody is of the job: the connection goes to the association that its Hello names.
    void welcome(const AuthenticatedPeer& peer, SocketStream stream, bool is_new);
    // As Rail::key_for().
    std::optional<wire::Key> key_for(const wire::Hello& hello) const;
    // As GuestHost::invite(). @return UCS_OK: `secret` is what lets the guest in
    ucs_status_t invite(uint64_t guest, wire::Secret* secret);
    void end_invitation(uint64_t guest);
    // As Interface::cut_off().
    void cut_off(uint64_t peer);
    ucs_status_t flush(Completion* completion);
    // Free those that nobody needs; between batches of events.
    void reap();
    void clear();

    void unmap(Association& association) override;
    void look_at_associations() override { has_changed_ = true; }
    uint32_t new_association_number() override;

  private:
    Association& make(uint64_t peer, bool mapped);
    wire::Answer answer_to(const wire::Hello& hello);
    Association* resumed_by(const wire::Hello& hello) const;
    void resume(const AuthenticatedPeer& peer, SocketStream stream, bool is_new);

    const AssociationContext context_;
    List associations_;
    std::unordered_map<uint64_t, Association*> by_peer_;
    std::unordered_map<uint64_t, wire::Secret> guests_;  // by name: what lets them in
    std::unordered_map<uint64_t, uint32_t> cut_off_;     // by peer: its last one that was cut
    uint32_t last_number_ = ucs::first_number();
    bool has_changed_ = false;
};

}  // namespace uct::tcp

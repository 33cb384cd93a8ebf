// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ucp/lanes/kept_lanes.h"
#include "ucp/lanes/negotiator_state.h"
#include "ucp/lanes/scoreboard.h"

namespace ucp::lanes {

// Takes one link at a time through the states of a round: from Committed up to Established and down
// again, or out of it. docs/design/lanes.md, rules 8 and 14 to 22. Which links those are is not
// decided here.
//
// A call for an event that does not concern the link in its state does nothing. After
// lane_created() and lane_destroyed() the record of a link that is_over() is to be erased.
class Rounds {
  public:
    Rounds(NegotiatorState& state, Scoreboard& scoreboard, KeptLanes& kept)
        : state_(state), scoreboard_(scoreboard), kept_(kept) {}

    // Links with a dedicated lane, from its creation to its destruction, but for parked ones.
    std::uint32_t held(Pool pool) const { return held_[static_cast<std::size_t>(pool)]; }
    // Agreed links that wait for a slot to make their lane in.
    std::uint32_t committed() const { return committed_; }
    // Those whose lane waits for a peer that does not answer, beside the slots.
    std::uint32_t parked() const { return parked_; }

    void set_state(Link& link, LinkState state, Reason reason);
    void start(Link& link, Epoch epoch);
    void restart_timer(Link& link);
    // The time that the peer was given is over.
    void lose_patience(Link& link);

    // Up. `kept`: the lane that both ends kept of that round serves this one as well; 0: none does.
    void commit(Link& link, Epoch kept, Reason reason);
    // The slot must be free.
    void create(Link& link);
    void lane_created(Link& link, ucs_status_t status, std::span<const std::uint8_t> address);
    void lane_ready(Link& link, ucs_status_t status);

    // Down. Its own direction has moved. The peer's may be still to come: it has sent READY, and
    // moves as soon as it makes progress, to follow this end back at once.
    static bool may_demote(const Link& link);
    void demote(Link& link, Reason reason);
    // The link, an incumbent of the ranking, gives its slot up, in whatever state it is.
    void give_up(Link& link, Reason reason);
    // Its slot is free from now on, its lane is ended when the peer lets it.
    static bool may_park(const Link& link) { return link.is_leaving() && link.is_overdue(); }
    // Makes room for one more beside the slots, where `next` is the one that gets the slot.
    // @return false if there is none
    bool make_room_beside(const Link& next);
    void park(Link& link);
    void marker_posted(Link& link);
    void flushed(Link& link);
    void lane_destroyed(Link& link);

    // LANE to FLUSHED, of the link's round. UCS_ERR_INVALID_PARAM: no correct peer sends this now.
    ucs_status_t on_message(Link& link, const Message& message);

    // Out. withdraw() is for rounds in which this end has not sent READY, on_withdrawn() for those
    // in which the peer has not.
    void withdraw(Link& link, WithdrawReason reason);
    void on_withdrawn(Link& link);
    // The peer has lost the round, and with it what was under way to or from it.
    void on_lost(Link& link);
    void lane_failed(Link& link, ucs_status_t status);
    // Nothing of the link counts any more: its lane goes.
    void release(Link& link, Reason reason);
    static bool is_over(const Link& link) {
        return link.life == Link::Life::kGone && link.state == LinkState::kIdle;
    }

    // The link is not asked for again before a time that doubles with each call.
    void back_off(Link& link, Time base, Time most);

  private:
    void connect(Link& link);
    void try_switch(Link& link);
    void try_established(Link& link);
    void finish_demotion(Link& link);
    void destroy(Link& link);
    void keep(Link& link, Epoch epoch);
    void released(Link& link, Reason reason);
    void fail(Link& link, ucs_status_t status);

    NegotiatorState& state_;
    Scoreboard& scoreboard_;
    KeptLanes& kept_;
    std::uint32_t& lanes_of(Pool pool) { return held_[static_cast<std::size_t>(pool)]; }

    std::array<std::uint32_t, kPools.size()> held_{};
    std::uint32_t parked_ = 0;
    std::uint32_t committed_ = 0;
};

}  // namespace ucp::lanes

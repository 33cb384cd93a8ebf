// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>

#include "ucp/lanes/link.h"
#include "ucp/lanes/negotiator_state.h"

namespace ucp::lanes {

// The scores of all links and the ranking that follows from them. docs/design/lanes.md, rules 1
// to 5.
//
// Both ends rank by the agreed score: what each has advertised to the other. So whatever changes
// what a link's rank or role follows from goes through here, or ends in place().
class Scoreboard {
  public:
    explicit Scoreboard(NegotiatorState& state);

    // Of the links that share slots.
    Ranking& ranking(Pool pool) { return rankings_[static_cast<std::size_t>(pool)]; }
    const Ranking& ranking(Pool pool) const { return rankings_[static_cast<std::size_t>(pool)]; }

    // Enters the link, or moves it to where its state and scores put it now.
    void place(Link& link);
    void remove(Link& link) { ranking(link.pool).remove(link); }
    // The role that its state gives it now.
    Role role_of(const Link& link) const;

    // Whether a measured score is worth a record.
    bool counts(Score measured) const { return measured >= (state_.config.min_score + 1) / 2; }

    // What this end measured, or is told to want, has changed: a SCORE goes out if it moved enough.
    void update_local(Link& link);
    // The caller sends a message that carries Link::advertised.
    void advertise(Link& link);
    // A message of the peer came: what was held back from it is said.
    void heard(Link& link);
    // The peer advertised `score`.
    void set_remote(Link& link, Score score);

    // Repeats what was advertised, halves what the peer did not repeat, gives a link that has
    // reached its residence its role.
    void age(Link& link);
    // When age() has something to do next.
    Time deadline_of(const Link& link) const;

  private:
    Score local_of(const Link& link) const;
    static Score chance_of(const Link& link);
    bool is_far(const Link& link, Score local);
    bool is_denied(const Link& link, Score local) const;
    bool has_grown(const Link& link, Score score) const;
    void say(Link& link);
    void send_score(const Link& link);
    void reconsider(Link& link);

    NegotiatorState& state_;
    std::array<Ranking, kPools.size()> rankings_;
};

}  // namespace ucp::lanes

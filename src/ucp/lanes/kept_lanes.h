// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "ucp/lanes/link.h"
#include "ucp/lanes/negotiator_state.h"
#include "ucp/lanes/sink.h"

namespace ucp::lanes {

// Lanes whose round has ended as agreed: still connected, nothing under way on them, in nobody's
// slot. The next round of the link may take its lane back, whatever endpoint the link has by then.
// docs/design/lanes.md, rules 32 to 34.
//
// A kept lane is known by the epoch of the round that it served last, the same at both ends. Each
// end may drop its own at any time but while it is pinned; the sink destroys it.
class KeptLanes {
  public:
    KeptLanes(NegotiatorState& state, Sink& sink) : state_(state), sink_(sink) {}

    // False: no lane is worth keeping, it would be dropped at once.
    bool is_on() const;
    std::size_t size() const { return lanes_.size(); }
    // Of the round that the lane kept of this link served last; 0: none is kept.
    Epoch epoch_of(const LinkId& link) const;

    // The sink has put the link's lane aside. Without memory it is dropped.
    void add(const LinkId& link, Epoch epoch);
    // A lane that a request or an agreement names stays until that is answered, or carried out.
    void pin(const LinkId& link);
    void unpin(const LinkId& link);
    // The lane is the link's again. @return false if it is not there any more
    bool take(const LinkId& link, Epoch epoch);

    // No effect if there is none.
    void drop(const LinkId& link);
    void drop_unless_pinned(const LinkId& link);
    // @return false if all that are kept, if any, are pinned
    bool drop_oldest();
    // The oldest of those that make room for a lane to that peer.
    // @return false if there is none
    bool drop_oldest_for(Peer peer);
    // The oldest, if it has been kept for long enough.
    void drop_expired();
    // From now on none is kept.
    void close();
    // The sink has lost it, and has nothing to destroy.
    void lose(const LinkId& link);
    // When drop_expired() has something to do next.
    Time deadline() const;

  private:
    using ByAge = std::set<std::pair<Time, LinkId>>;
    struct Lane {
        Epoch epoch = 0;
        Time since = 0;
        ByAge::node_type pinned{};  // its place in by_age_, while it is pinned
    };
    using Lanes = std::map<LinkId, Lane>;

    Time end_of(Time since) const;
    void erase(Lanes::iterator lane);
    PeerId peer_of(const LinkId& link) const;
    void drop_at_sink(const LinkId& link);

    NegotiatorState& state_;
    Sink& sink_;
    Lanes lanes_;
    ByAge by_age_;  // without the pinned
    bool is_closed_ = false;
};

}  // namespace ucp::lanes

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <boost/intrusive/set_hook.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "ucp/lanes/messages.h"
#include "ucp/lanes/score.h"
#include "ucp/lanes/switch.h"

namespace ucp::lanes {

// The embedding code's name for one endpoint; any number that no other live endpoint has.
using Peer = std::uint64_t;

// Nanoseconds of any clock that does not go back.
using Time = std::uint64_t;
inline constexpr Time kNever = ~Time{0};

// docs/design/lanes.md describes the states. The order matters: see holds_slot() and books_slot().
enum class LinkState : std::uint8_t {
    kIdle,
    kRequested,
    kWithdrawing,
    kCommitted,
    kCreating,
    kConnecting,
    kReady,
    kSwitching,
    kEstablished,
    kDemoting,
    kReleasing,
};
inline constexpr std::size_t kLinkStates = 11;

// A dedicated lane exists, or its creation or destruction is under way.
constexpr bool holds_slot(LinkState state) {
    return state >= LinkState::kCreating;
}

// The slot is agreed on: not free, and not about to be.
constexpr bool books_slot(LinkState state) {
    return state >= LinkState::kCommitted && state <= LinkState::kEstablished;
}

// In the round that the epoch names.
constexpr bool in_round(LinkState state) {
    return state != LinkState::kIdle && state != LinkState::kReleasing;
}

// A kept lane that the round names must not go. Of a request that was taken back nothing comes.
constexpr bool pins_kept(LinkState state) {
    return state == LinkState::kRequested || state == LinkState::kCommitted;
}

// A transition that only the peer can bring about.
constexpr bool waits_for_peer(LinkState state) {
    return in_round(state) && state != LinkState::kCreating && state != LinkState::kEstablished;
}

// Dedicated lanes take what is limited in different ways, so each kind has slots of its own.
enum class Pool : std::uint8_t {
    kDevice,  // queue pairs of an adapter
    kHost,    // memory that two processes of a host share
};
inline constexpr std::array kPools{Pool::kDevice, Pool::kHost};

enum class Policy : std::uint8_t { kAuto, kDedicated, kScalable };

// Why a link is what it is.
enum class Reason : std::uint8_t {
    kNone,
    kHot,        // its rank earns a slot
    kAsked,      // the peer asked and both floors were beaten
    kOutranked,  // another link took, or kept, the slot
    kBusy,       // denied: the peer had no slot to decide about
    kRefused,    // denied: the peer never takes it as things stand
    kCold,       // its score fell below what a slot is worth
    kPeer,       // the peer demoted or withdrew
    kPolicy,     // told to by the interface
    kClosing,    // endpoint or worker closes
    kNoLane,     // a dedicated lane could not be made or connected
    kNoAnswer,   // the peer did not answer a request
    kFailed,     // the dedicated lane failed
    kDied,       // the peer died, or the endpoint was forgotten
    kProgress,   // the next step of what was agreed
    kFull,       // its lane had no room for long: the peer makes no progress
};

const char* name(LinkState state);
const char* name(Reason reason);

// What one end has of the dedicated lane of a link, from the agreement on it to its destruction.
// Three orders of steps run beside each other: of this end's lane, of the peer, and of what the
// peer acknowledged to this end.
struct Round {
    enum class Lane : std::uint8_t {
        kNone,
        kCreating,
        kCreated,     // the peer's address is still to come
        kConnecting,  // to that address
        kConnected,
        kKeeping,  // it leaves its slot, and is kept
        kDestroying,
    };
    enum class Slot : std::uint8_t {
        kOwn,      // one of those that cap limits
        kYielded,  // taken away on the way up: given back as soon as the peer lets it
        kParked,   // none of those that cap limits any more
    };
    // The last of the peer's messages that was processed; each comes after the one before.
    enum class PeerStep : std::uint8_t { kNone, kLane, kReady, kMark, kDmark, kFlushed };
    // The last of this end's markers that the peer has processed.
    enum class Acknowledged : std::uint8_t { kNone, kMark, kDmark };

    Lane lane = Lane::kNone;
    PeerStep peer = PeerStep::kNone;
    Acknowledged acknowledged = Acknowledged::kNone;
    Slot slot = Slot::kOwn;
    bool flushed = false;  // all that this end posted on the lane is done remotely
    bool broken = false;   // the lane failed when nothing could be lost any more
    // The round whose lane this one takes back; 0: it makes its own. A request offers it.
    Epoch kept = 0;
    std::uint32_t window = 0;
    std::vector<std::uint8_t> address;  // the peer's, until it is connected to
    Switch direction;

    // This end needs the lane no more, and says so: FLUSHED was sent.
    bool is_drained() const { return acknowledged == Acknowledged::kDmark && flushed; }
    // Nothing of it can be lost any more.
    bool is_done() const { return is_drained() && peer >= PeerStep::kDmark; }
    // Neither end uses the lane any more.
    bool may_release() const { return is_drained() && peer == PeerStep::kFlushed; }
    // The steps fit together, and to the state of the link.
    bool fits(LinkState state) const;
};

// What one end knows of a link. The negotiator owns it; others read it.
struct Link : Ranking::Member {
    enum class Life : std::uint8_t {
        kOpen,
        kClosing,  // the endpoint waits until the link holds nothing
        kGone,     // no endpoint any more: the record goes with the lane
    };

    Peer peer = 0;
    bool low_end = false;  // this end has the lower worker id
    Pool pool = Pool::kDevice;
    LinkState state = LinkState::kIdle;
    Reason reason = Reason::kNone;
    Policy policy = Policy::kAuto;
    Life life = Life::kOpen;
    Time since = 0;  // of the state

    // Scores of this end, as measured and as the peer knows it, and of the peer as it says.
    Score local = 0;
    Score doubt = 0;  // so far what was measured may be off
    Score advertised = 0;
    Score remote = 0;
    Time advertised_at = 0;
    // SCOREs that were due since the peer was last heard of. Beyond kMostUnheard they are held
    // back.
    std::uint32_t unheard = 0;
    bool owes_score = false;  // one was: what is advertised is still to be said
    Time remote_due = 0;      // when the remote score is halved if it has not been repeated

    // Asking.
    Epoch epoch = 0;  // of the current round, or of the last
    Score estimate = 0;
    std::uint32_t denials = 0;
    Score denied_score = 0;
    Time asked_at = 0;
    Time retry_at = 0;
    std::optional<Rank> denied_floor;  // what the peer said must be beaten

    // A request of the peer that is answered when this end's own is.
    struct Deferred {
        Epoch epoch;
        Score estimate;
        Rank floor;
        Epoch kept;
    };
    std::optional<Deferred> deferred;
    bool waits_long = false;  // it was kept waiting for the answer to the own request

    // When the negotiator looks at it next, and its place among the others by that time.
    Time deadline = kNever;
    boost::intrusive::set_member_hook<> by_deadline;
    bool is_touched = false;  // in the event that is under way

    // Waiting.
    Time timer = kNever;
    std::uint32_t pings = 0;
    Time pinged_at = 0;  // the first of them
    Time heard_at = 0;   // a message of the peer came
    // How long the peer may take before the link stands back for others. This end may have slept
    // itself: it looks at what has come meanwhile before it holds the silence against the peer.
    enum class Patience : std::uint8_t { kNone, kFirst, kLast, kOver };
    Patience patience = Patience::kNone;
    Time patience_ends = kNever;

    Round round;

    std::uint32_t promotions = 0;
    std::uint32_t demotions = 0;

    static constexpr std::uint32_t kMostUnheard = 4;
    // Was asked more than once since it was last heard of: it may not know this end any more.
    bool is_unanswered() const { return pings > 1 || unheard > kMostUnheard; }
    // The peer has not answered for longer than others should have to wait for it.
    bool is_overdue() const { return patience == Patience::kOver; }
    // Has a slot, and keeps it.
    bool has_booked() const { return books_slot(state) && round.slot == Round::Slot::kOwn; }
    // Its slot is on its way to others, and only the peer can make it free.
    bool is_leaving() const {
        return round.slot == Round::Slot::kYielded ||
               (round.slot == Round::Slot::kOwn && state == LinkState::kDemoting);
    }
    // This end is in that round, or owes the answer that may begin it.
    bool knows(Epoch round_epoch) const {
        return (in_round(state) && epoch == round_epoch) ||
               (deferred && deferred->epoch == round_epoch);
    }
    // The agreed score: the same at both ends once the messages of both have landed.
    Score score() const { return advertised + remote; }
    const LinkId& id() const { return standing.rank.id; }
    Rank rank() const { return {score(), id()}; }
};

}  // namespace ucp::lanes

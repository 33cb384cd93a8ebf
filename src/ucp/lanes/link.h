// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
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

// docs/lanes.md describes the states. The order matters: see holds_slot() and books_slot().
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

// The slot is spoken for: not free, and not about to be.
constexpr bool books_slot(LinkState state) {
    return state >= LinkState::kCommitted && state <= LinkState::kEstablished;
}

// In the round that the epoch names.
constexpr bool in_round(LinkState state) {
    return state != LinkState::kIdle && state != LinkState::kReleasing;
}

// A transition that only the peer can bring about.
constexpr bool waits_for_peer(LinkState state) {
    return in_round(state) && state != LinkState::kCreating && state != LinkState::kEstablished;
}

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
};

const char* name(LinkState state);
const char* name(Reason reason);

// What one end knows of a link. The negotiator owns it; others read it.
struct Link {
    Peer peer = 0;
    LinkId id;
    bool low_end = false;  // this end has the lower worker id
    LinkState state = LinkState::kIdle;
    Reason reason = Reason::kNone;
    Policy policy = Policy::kAuto;
    bool closing = false;
    bool gone = false;  // no endpoint any more: the record goes with the lane
    Time since = 0;     // of the state

    // Scores. `local` is measured, `told` and `heard` are agreed.
    Score local = 0;
    Score told = 0;
    Score heard = 0;
    Time told_at = 0;
    Time heard_at = 0;

    // Asking.
    Epoch epoch = 0;  // of the current round, or of the last
    Score estimate = 0;
    std::uint32_t denials = 0;
    Score denied_score = 0;
    Time asked_at = 0;
    Time retry_at = 0;
    bool has_threshold = false;
    Rank threshold;

    // A deferred request of the peer.
    bool deferred = false;
    Epoch deferred_epoch = 0;
    Score deferred_estimate = 0;
    Rank deferred_floor;

    // Waiting.
    Time timer = kNever;
    std::uint32_t pings = 0;

    // The current round; start_round() clears it.
    struct Round {
        bool creation_pending = false;
        bool connecting = false;
        bool peer_lane = false;
        bool peer_ready = false;
        bool mark_received = false;
        bool mark_acked = false;
        bool dmark_received = false;
        bool dmark_acked = false;
        bool flushed = false;
        bool flushed_sent = false;
        bool flushed_received = false;
        std::uint32_t window = 0;
        std::vector<std::uint8_t> address;
        Switch direction;

        // Nothing of it can be lost any more.
        bool is_done() const { return flushed_sent && dmark_received; }
    } round;

    std::uint32_t promotions = 0;
    std::uint32_t demotions = 0;

    // This end is in that round, or owes the answer that may begin it.
    bool knows(Epoch round_epoch) const {
        return (in_round(state) && epoch == round_epoch) ||
               (deferred && deferred_epoch == round_epoch);
    }
    Score score() const { return told + heard; }
    Rank rank() const { return {score(), id}; }
};

}  // namespace ucp::lanes

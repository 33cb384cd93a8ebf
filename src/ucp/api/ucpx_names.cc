// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstddef>

#include "ucp/api/ucpx.h"
#include "ucp/lanes/link.h"

namespace {

using ucp::lanes::LinkState;
using ucp::lanes::Policy;
using ucp::lanes::Reason;

constexpr std::array<const char*, UCPX_LANE_STATE_LAST> kStates{
    "scalable", "requested", "withdrawing", "committed", "creating",  "connecting",
    "ready",    "switching", "established", "demoting",  "releasing",
};
constexpr std::array<const char*, UCPX_LANE_REASON_LAST> kReasons{
    "none",   "hot",     "asked",   "outranked", "busy",   "refused", "cold",     "peer",
    "policy", "closing", "no lane", "no answer", "failed", "died",    "progress", "full",
};
constexpr std::array<const char*, UCPX_LANE_POLICY_LAST> kPolicies{"auto", "dedicated", "scalable"};

static_assert(kStates.back() && kReasons.back() && kPolicies.back());

template <size_t N>
const char* look_up(const std::array<const char*, N>& names, size_t value) {
    return value < N ? names[value] : "unknown";
}

// The enumerations of the interface are those of the state machine, value for value.
template <class Public, class Internal>
constexpr bool same(Public a, Internal b) {
    return static_cast<int>(a) == static_cast<int>(b);
}
static_assert(UCPX_LANE_STATE_LAST == ucp::lanes::kLinkStates);
static_assert(same(UCPX_LANE_STATE_SCALABLE, LinkState::kIdle));
static_assert(same(UCPX_LANE_STATE_REQUESTED, LinkState::kRequested));
static_assert(same(UCPX_LANE_STATE_WITHDRAWING, LinkState::kWithdrawing));
static_assert(same(UCPX_LANE_STATE_COMMITTED, LinkState::kCommitted));
static_assert(same(UCPX_LANE_STATE_CREATING, LinkState::kCreating));
static_assert(same(UCPX_LANE_STATE_CONNECTING, LinkState::kConnecting));
static_assert(same(UCPX_LANE_STATE_READY, LinkState::kReady));
static_assert(same(UCPX_LANE_STATE_SWITCHING, LinkState::kSwitching));
static_assert(same(UCPX_LANE_STATE_ESTABLISHED, LinkState::kEstablished));
static_assert(same(UCPX_LANE_STATE_DEMOTING, LinkState::kDemoting));
static_assert(same(UCPX_LANE_STATE_RELEASING, LinkState::kReleasing));
static_assert(same(UCPX_LANE_REASON_NONE, Reason::kNone));
static_assert(same(UCPX_LANE_REASON_HOT, Reason::kHot));
static_assert(same(UCPX_LANE_REASON_ASKED, Reason::kAsked));
static_assert(same(UCPX_LANE_REASON_OUTRANKED, Reason::kOutranked));
static_assert(same(UCPX_LANE_REASON_BUSY, Reason::kBusy));
static_assert(same(UCPX_LANE_REASON_REFUSED, Reason::kRefused));
static_assert(same(UCPX_LANE_REASON_COLD, Reason::kCold));
static_assert(same(UCPX_LANE_REASON_PEER, Reason::kPeer));
static_assert(same(UCPX_LANE_REASON_POLICY, Reason::kPolicy));
static_assert(same(UCPX_LANE_REASON_CLOSING, Reason::kClosing));
static_assert(same(UCPX_LANE_REASON_NO_LANE, Reason::kNoLane));
static_assert(same(UCPX_LANE_REASON_NO_ANSWER, Reason::kNoAnswer));
static_assert(same(UCPX_LANE_REASON_FAILED, Reason::kFailed));
static_assert(same(UCPX_LANE_REASON_DIED, Reason::kDied));
static_assert(same(UCPX_LANE_REASON_PROGRESS, Reason::kProgress));
static_assert(same(UCPX_LANE_REASON_FULL, Reason::kFull));
static_assert(same(UCPX_LANE_POLICY_AUTO, Policy::kAuto));
static_assert(same(UCPX_LANE_POLICY_DEDICATED, Policy::kDedicated));
static_assert(same(UCPX_LANE_POLICY_SCALABLE, Policy::kScalable));

}  // namespace

extern "C" {

unsigned ucpx_get_api_version() {
    return UCPX_API_VERSION;
}

const char* ucpx_lane_state_string(ucpx_lane_state_t state) {
    return look_up(kStates, state);
}

const char* ucpx_lane_reason_string(ucpx_lane_reason_t reason) {
    return look_up(kReasons, reason);
}

const char* ucpx_lane_policy_string(ucpx_lane_policy_t policy) {
    return look_up(kPolicies, policy);
}

}  // extern "C"

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/link.h"

#include <iterator>

namespace ucp::lanes {

const char* name(LinkState state) {
    static constexpr const char* kNames[] = {
        "idle",  "requested", "withdrawing", "committed", "creating", "connecting",
        "ready", "switching", "established", "demoting",  "releasing"};
    static_assert(std::size(kNames) == kLinkStates);
    const auto index = static_cast<std::size_t>(state);
    return index < kLinkStates ? kNames[index] : "unknown";
}

const char* name(Reason reason) {
    switch (reason) {
        case Reason::kNone:
            return "never negotiated";
        case Reason::kHot:
            return "hot";
        case Reason::kAsked:
            return "the peer asked";
        case Reason::kOutranked:
            return "outranked";
        case Reason::kBusy:
            return "the peer was busy";
        case Reason::kRefused:
            return "the peer refused";
        case Reason::kCold:
            return "cold";
        case Reason::kPeer:
            return "the peer gave it back";
        case Reason::kPolicy:
            return "as told";
        case Reason::kClosing:
            return "closing";
        case Reason::kNoLane:
            return "no lane could be made";
        case Reason::kNoAnswer:
            return "the peer did not answer";
        case Reason::kFailed:
            return "the lane failed";
        case Reason::kDied:
            return "the peer died";
        case Reason::kProgress:
            return "in progress";
    }
    return "unknown";
}

}  // namespace ucp::lanes

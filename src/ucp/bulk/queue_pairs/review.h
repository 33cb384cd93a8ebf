// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Which endpoints of a worker have bulk queue pairs, where there are not enough for all. Pure.

namespace ucp::bulk {

// What there is of one endpoint that has bulk transfers and a lane.
struct Claim {
    enum class State : uint8_t { kClosed, kMoving, kOpen };
    State state;
    double worth;     // what its transfers keep a device busy, in nanoseconds a second
    unsigned held;    // queue pairs
    unsigned full;    // queue pairs that it would have if there were enough
    bool is_settled;  // it may be changed: the last change was long enough ago
    bool can_grow;    // its devices have more than it holds: others have not taken all
};

// How many each claim is due, of so many in all: each goes to whoever brings most for each that it
// has then (the method of highest averages). Of equals to one that has it already.
std::vector<unsigned> share_out(std::span<const Claim> claims, unsigned total);

struct ReviewStep {
    enum class Kind : uint8_t {
        kNone,
        kOpen,    // it is due some, and there is room
        kGiveUp,  // it has more than it is due, or too few, which it will have when it opens again
    };
    Kind kind = Kind::kNone;
    size_t claim = 0;
};

// What brings the claims nearer to what they are due: one step, none while another is under way,
// nor one by which a claim would get no more. Nobody loses queue pairs for less than twice of what
// they bring.
ReviewStep next_step(std::span<const Claim> claims, unsigned total);

}  // namespace ucp::bulk

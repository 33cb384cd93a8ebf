// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/queue_pairs/review.h"

#include <algorithm>
#include <tuple>

namespace ucp::bulk {
namespace {

using Kind = ReviewStep::Kind;

// Measured rates are noisy, and to move queue pairs costs both ends messages and a pause.
constexpr double kMuchMore = 2;

// What one more would bring, and what the last one brings.
double next_value(const Claim& claim) {
    return claim.worth / (claim.held + 1);
}
double last_value(const Claim& claim) {
    return claim.worth / claim.held;
}

}  // namespace

std::vector<unsigned> share_out(std::span<const Claim> claims, unsigned total) {
    std::vector<unsigned> due(claims.size());
    for (; total != 0; --total) {
        size_t best = claims.size();
        const auto rank = [&](size_t index) {
            const Claim& claim = claims[index];
            return std::tuple(claim.worth / (due[index] + 1), claim.held > due[index],
                              -static_cast<int>(due[index]));
        };
        for (size_t index = 0; index < claims.size(); ++index) {
            if (due[index] == claims[index].full) continue;
            if (best == claims.size() || rank(index) > rank(best)) best = index;
        }
        if (best == claims.size()) break;
        ++due[best];
    }
    return due;
}

ReviewStep next_step(std::span<const Claim> claims, unsigned total) {
    unsigned held = 0;
    for (const Claim& claim : claims) {
        if (claim.state == Claim::State::kMoving) return {};
        held += claim.held;
    }
    const std::vector<unsigned> due = share_out(claims, total);
    const bool has_room = held < total;
    // Of those that lack some, and of those that have too many, the one that matters most.
    size_t opening = claims.size(), lacking = claims.size(), losing = claims.size();
    for (size_t index = 0; index < claims.size(); ++index) {
        const Claim& claim = claims[index];
        if (!claim.is_settled) continue;
        if (claim.held < due[index]) {
            if (has_room && !claim.can_grow) continue;
            if (lacking == claims.size() || next_value(claim) > next_value(claims[lacking]))
                lacking = index;
            const bool is_better = opening == claims.size() || claim.worth > claims[opening].worth;
            if (claim.state == Claim::State::kClosed && is_better) opening = index;
        } else if (claim.held > due[index]) {
            if (losing == claims.size() || last_value(claim) < last_value(claims[losing]))
                losing = index;
        }
    }
    if (has_room && opening != claims.size()) return {Kind::kOpen, opening};
    if (lacking == claims.size()) return {};
    if (has_room) return {Kind::kGiveUp, lacking};
    if (losing == claims.size()) return {};
    const bool is_worth_it = next_value(claims[lacking]) > kMuchMore * last_value(claims[losing]);
    return is_worth_it ? ReviewStep{Kind::kGiveUp, losing} : ReviewStep{};
}

}  // namespace ucp::bulk

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>

#include "ucs/datastruct/ranking.h"

namespace ucp::lanes {

// Names a link, the same at both of its ends: the worker ids and, for workers with several
// endpoints to one another, the number of the connection.
struct LinkId {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint32_t connection = 0;

    auto operator<=>(const LinkId&) const = default;
};

// All workers rank links alike: by the score that both ends agree on, by identity among equals.
using Ranking = ucs::Ranking<LinkId>;
using Rank = Ranking::Rank;
using Role = Ranking::Role;

// An absolute rate. What the two ends measure adds up to a link's score.
using Score = Ranking::Score;

using ucs::with_margin;

// What one end asks for through the interface rather than measures: above all that is measured.
inline constexpr Score kPinnedScore = Score{1} << 60;
inline constexpr Score kMaxMeasuredScore = (kPinnedScore >> 1) - 1;
// Of one end, and of both.
inline constexpr Score kMaxLocalScore = kPinnedScore;
inline constexpr Score kMaxScore = 2 * kMaxLocalScore;

// Floors carry the incumbent's margin on top of its score.
inline constexpr std::uint32_t kMaxMarginPermille = 4000;
inline constexpr Score kMaxFloor = kMaxScore * (1 + kMaxMarginPermille / 1000);

constexpr bool is_pinned(Score score) {
    return score >= kPinnedScore;
}

}  // namespace ucp::lanes

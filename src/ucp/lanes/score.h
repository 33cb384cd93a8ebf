// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <compare>
#include <cstdint>

namespace ucp::lanes {

// An absolute rate. Two halves make a link's score.
using Score = std::uint64_t;

// A half asked for through the interface rather than measured: above every measured one.
inline constexpr Score kPinnedHalf = Score{1} << 60;
inline constexpr Score kMaxMeasuredHalf = (kPinnedHalf >> 1) - 1;
inline constexpr Score kMaxHalf = kPinnedHalf;
inline constexpr Score kMaxScore = 2 * kMaxHalf;

// Floors carry the incumbent's margin on top of its score.
inline constexpr std::uint32_t kMaxMarginPermille = 4000;
inline constexpr Score kMaxFloor = kMaxScore * (1 + kMaxMarginPermille / 1000);

constexpr bool is_pinned(Score sum) {
    return sum >= kPinnedHalf;
}

// Names a link, the same at both of its ends: the worker ids and, for workers with several
// endpoints to one another, the number of the connection.
struct LinkId {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint32_t connection = 0;

    auto operator<=>(const LinkId&) const = default;
};

// The strict total order that all workers share: agreed score first, identity among equals.
struct Rank {
    Score score = 0;
    LinkId id;

    auto operator<=>(const Rank&) const = default;
};

constexpr Score with_margin(Score score, std::uint32_t margin_permille) {
    return score + score / 1000 * margin_permille + score % 1000 * margin_permille / 1000;
}

// A share of `delay` in [0, 1/2) that depends only on the link and the attempt: links denied
// together do not ask again together.
constexpr std::uint64_t spread(const LinkId& id, std::uint64_t own, std::uint32_t attempt,
                               std::uint64_t delay) {
    std::uint64_t hash = id.low ^ (id.high * 0x9e3779b97f4a7c15u) ^ (own << 1) ^
                         (std::uint64_t{id.connection} << 32 | attempt);
    hash = (hash ^ (hash >> 31)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 29)) * 0x94d049bb133111ebu;
    return delay / 1024 * ((hash >> 40) % 512);
}

}  // namespace ucp::lanes

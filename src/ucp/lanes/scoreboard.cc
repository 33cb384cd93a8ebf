// SPDX-License-Identifier: BSD-3-Clause
// Halves, and the thresholds that follow from scores alone.
#include <algorithm>
#include <utility>

#include "ucp/lanes/negotiator.h"

namespace ucp::lanes {

// The half that this end stands for now, whatever it told.
Score Negotiator::half_of(const Link& link) const {
    if (link.closing || link.policy == Policy::kScalable) return 0;
    if (link.policy == Policy::kDedicated) return kPinnedHalf;
    return link.local >= (config_.min_score + 1) / 2 ? link.local : 0;
}

// Brings `told` up to date. `always`: the caller sends a message that carries it; otherwise a SCORE
// goes out, if the half moved enough.
void Negotiator::tell(Link& link, bool always) {
    const Score half = half_of(link);
    if (!always) {
        const Score moved = half > link.told ? half - link.told : link.told - half;
        const Score allowed = with_margin(link.told, config_.tolerance_permille) - link.told;
        const bool appeared = (half == 0) != (link.told == 0);
        if (!appeared && moved <= allowed) return;
        Message score;
        score.type = MessageType::kScore;
        score.half = half;
        send(link.peer, std::move(score));
    }
    link.told = half;
    link.told_at = now_;
    reconsider(link);
}

void Negotiator::hear(Link& link, Score half) {
    link.heard = half;
    link.heard_at = now_;
    reconsider(link);
}

// A link that has grown by more than the margin since it was denied starts its back-off anew: the
// denial was about another link, and the floor may have changed as well.
void Negotiator::reconsider(Link& link) {
    if (link.denials == 0 ||
        link.score() <= with_margin(link.denied_score, config_.margin_permille)) {
        return;
    }
    link.denials = 0;
    link.retry_at = std::min(link.retry_at, link.asked_at + config_.retry_after);
}

Score Negotiator::admission() const {
    if (config_.trickle_ratio == 0) return config_.min_score;
    Score hottest = 0;
    for (const auto& [peer, link] : links_) {
        if (!is_pinned(link.score())) hottest = std::max(hottest, link.score());
    }
    return std::max(config_.min_score, hottest / config_.trickle_ratio);
}

// Repeats what was told, forgets what was not repeated.
void Negotiator::age(Link& link) {
    if (link.told != 0 && now_ >= link.told_at + config_.refresh) {
        Message score;
        score.type = MessageType::kScore;
        score.half = half_of(link);
        link.told = score.half;
        link.told_at = now_;
        send(link.peer, std::move(score));
    }
    if (link.heard != 0 && now_ >= link.heard_at + config_.stale_after) {
        link.heard = is_pinned(link.heard) ? 0 : link.heard / 2;
        link.heard_at = now_;
    }
}

}  // namespace ucp::lanes

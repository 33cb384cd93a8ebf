// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/scoreboard.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ucp::lanes {
namespace {

Ranking::Options ranking_options(const Config& config, Pool pool) {
    return {.places = config.cap_of(pool),
            .margin_permille = config.margin_permille,
            .min_score = config.min_score,
            .trickle_ratio = config.trickle_ratio,
            .pinned = kPinnedScore};
}

// Of a link that is far from a slot: with half as much more at either end it is still below.
constexpr std::uint32_t kFarTolerance = 500;

Score tolerance(const Link& link, std::uint32_t permille) {
    return with_margin(link.advertised, permille) - link.advertised;
}

}  // namespace

Scoreboard::Scoreboard(NegotiatorState& state)
    : state_(state),
      rankings_{Ranking(ranking_options(state.config, Pool::kDevice)),
                Ranking(ranking_options(state.config, Pool::kHost))} {}

Role Scoreboard::role_of(const Link& link) const {
    if (link.state == LinkState::kIdle) return Role::kCandidate;
    if (link.state == LinkState::kRequested) return Role::kReserving;
    if (!link.has_booked()) return Role::kNone;
    const bool may_go = link.state == LinkState::kEstablished
                            ? state_.now >= link.since + state_.config.min_residence
                            : link.is_overdue();
    return may_go ? Role::kIncumbent : Role::kEntering;
}

void Scoreboard::place(Link& link) {
    ranking(link.pool).place(link, link.score(), role_of(link));
}

// What this end stands for now, whatever it has advertised.
Score Scoreboard::local_of(const Link& link) const {
    if (link.life == Link::Life::kClosing || link.policy == Policy::kScalable) return 0;
    if (link.policy == Policy::kDedicated) return kPinnedScore;
    // One that has been said is heard of until it is half of that.
    const bool stays = link.advertised != 0 && counts(2 * link.local);
    return stays || counts(link.local) ? link.local : 0;
}

void Scoreboard::update_local(Link& link) {
    const Score local = local_of(link);
    const Score moved = local > link.advertised ? local - link.advertised : link.advertised - local;
    const bool appeared = (local == 0) != (link.advertised == 0);
    const Score chance = chance_of(link);
    const Score least = tolerance(link, state_.config.tolerance_permille) + chance;
    if (moved <= least && (chance != 0 || !appeared)) return;
    const bool is_hopeless = is_denied(link, local) || is_far(link, local);
    if (!appeared && moved <= tolerance(link, kFarTolerance) && is_hopeless) return;
    advertise(link);
    say(link);
}

// By so much the score of a link without a lane moves all the time, which is no news once something
// was said of it.
Score Scoreboard::chance_of(const Link& link) {
    const bool is_measured = link.policy == Policy::kAuto && link.life == Link::Life::kOpen;
    const bool may_wait = link.state == LinkState::kIdle && link.advertised != 0;
    return is_measured && may_wait ? link.doubt / 2 : 0;
}

// The peer has said what the link must beat, and it does not, nor has it grown so much that it
// would ask again before its back-off is over.
bool Scoreboard::is_denied(const Link& link, Score local) const {
    if (link.state != LinkState::kIdle || !link.denied_floor || state_.now >= link.retry_at)
        return false;
    const Score most = std::max(local, link.advertised) + link.remote;
    return most < link.denied_floor->score && !has_grown(link, most);
}

// Since it was denied, by more than chance makes of what is measured.
bool Scoreboard::has_grown(const Link& link, Score score) const {
    return score > with_margin(link.denied_score, state_.config.margin_permille) + link.doubt;
}

// By twice what the link has it would still have no slot at this end, whatever the peer thinks.
bool Scoreboard::is_far(const Link& link, Score local) {
    if (link.state != LinkState::kIdle) return false;
    Ranking& own = ranking(link.pool);
    const Ranking::Member* victim = nullptr;
    if (own.free_places() == 0) {
        victim = own.worst_incumbent();
        if (victim == nullptr) return false;
    }
    const Score most = std::max(local, link.advertised) + link.remote;
    return most < own.floor_of(victim).score / 2;
}

// What a peer does not read stays in its queue, where others' messages find no room: after a few
// SCOREs it is asked to answer, ever more seldom, and gets the next one when it does.
void Scoreboard::say(Link& link) {
    const std::uint32_t unheard = ++link.unheard;
    link.owes_score = unheard > Link::kMostUnheard && link.life == Link::Life::kOpen;
    if (!link.owes_score) send_score(link);
    if (unheard < Link::kMostUnheard) return;
    const std::uint32_t held_back = unheard - Link::kMostUnheard;
    if (held_back != 0 && !std::has_single_bit(held_back)) return;
    ++state_.counters.pings;
    Message ping;
    ping.type = MessageType::kPing;
    ping.epoch = kNoRound;
    state_.actions.send(link.peer, std::move(ping));
}

void Scoreboard::send_score(const Link& link) {
    Message score;
    score.type = MessageType::kScore;
    score.local = link.advertised;
    state_.actions.send(link.peer, std::move(score));
}

void Scoreboard::heard(Link& link) {
    link.unheard = 0;
    if (!link.owes_score) return;
    link.owes_score = false;
    send_score(link);
}

void Scoreboard::advertise(Link& link) {
    link.advertised = local_of(link);
    link.advertised_at = state_.now;
    link.owes_score = false;
    reconsider(link);
    place(link);
}

void Scoreboard::set_remote(Link& link, Score score) {
    link.remote = score;
    link.remote_due = state_.now + std::max(state_.config.hold, state_.config.stale_after);
    reconsider(link);
    place(link);
}

// A link that has grown by more than the margin since it was denied starts its back-off anew: the
// denial was about another link, and the floor may have changed as well.
void Scoreboard::reconsider(Link& link) {
    const Config& config = state_.config;
    if (link.denials == 0 || !has_grown(link, link.score())) return;
    link.denials = 0;
    link.retry_at = std::min(link.retry_at, link.asked_at + config.retry_after);
}

void Scoreboard::age(Link& link) {
    const Time now = state_.now;
    if (link.advertised != 0 && now >= link.advertised_at + state_.config.refresh) {
        link.advertised = local_of(link);
        link.advertised_at = now;
        say(link);
    }
    if (link.remote != 0 && now >= link.remote_due) {
        const Config& config = state_.config;
        if (now >= link.remote_due + config.refresh) {
            // Nobody looked here when it was due: what the peer sent meanwhile is still to be read.
            link.remote_due = now + config.refresh;
        } else {
            link.remote = is_pinned(link.remote) ? 0 : link.remote / 2;
            link.remote_due = now + config.stale_after;
        }
    }
    place(link);
}

Time Scoreboard::deadline_of(const Link& link) const {
    const Config& config = state_.config;
    Time deadline = kNever;
    if (link.advertised != 0) deadline = link.advertised_at + config.refresh;
    if (link.remote != 0) deadline = std::min(deadline, link.remote_due);
    if (link.state == LinkState::kEstablished && link.standing.role == Role::kEntering) {
        deadline = std::min(deadline, link.since + config.min_residence);
    }
    return deadline;
}

}  // namespace ucp::lanes

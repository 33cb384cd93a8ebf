// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/kept_lanes.h"

#include <cassert>
#include <new>
#include <utility>

namespace ucp::lanes {

bool KeptLanes::is_on() const {
    return !is_closed_ && state_.config.keep != 0 && state_.config.max_parked != 0;
}

Epoch KeptLanes::epoch_of(const LinkId& link) const {
    const auto found = lanes_.find(link);
    return found == lanes_.end() ? 0 : found->second.epoch;
}

void KeptLanes::add(const LinkId& link, Epoch epoch) {
    assert(!lanes_.contains(link));
    try {
        by_age_.insert({state_.now, link});
        lanes_.insert({link, Lane{epoch, state_.now}});
    } catch (const std::bad_alloc&) {
        by_age_.erase({state_.now, link});
        drop_at_sink(link);
    }
}

void KeptLanes::pin(const LinkId& link) {
    const auto found = lanes_.find(link);
    if (found == lanes_.end() || found->second.pinned) return;
    found->second.pinned = by_age_.extract({found->second.since, link});
}

void KeptLanes::unpin(const LinkId& link) {
    const auto found = lanes_.find(link);
    if (found == lanes_.end() || !found->second.pinned) return;
    by_age_.insert(std::move(found->second.pinned));
}

bool KeptLanes::take(const LinkId& link, Epoch epoch) {
    const auto found = lanes_.find(link);
    if (found == lanes_.end() || found->second.epoch != epoch) return false;
    erase(found);
    return true;
}

void KeptLanes::drop(const LinkId& link) {
    const auto found = lanes_.find(link);
    if (found == lanes_.end()) return;
    erase(found);
    drop_at_sink(link);
}

void KeptLanes::drop_unless_pinned(const LinkId& link) {
    const auto found = lanes_.find(link);
    if (found != lanes_.end() && !found->second.pinned) drop(link);
}

PeerId KeptLanes::peer_of(const LinkId& link) const {
    return {link.low == state_.worker ? link.high : link.low, link.connection};
}

void KeptLanes::drop_at_sink(const LinkId& link) {
    state_.actions.drop_kept(peer_of(link));
}

bool KeptLanes::drop_oldest() {
    if (by_age_.empty()) return false;
    const LinkId oldest = by_age_.begin()->second;
    drop(oldest);
    return true;
}

bool KeptLanes::drop_oldest_for(Peer peer) {
    for (const auto& [since, link] : by_age_) {
        if (!sink_.makes_room(peer_of(link), peer)) continue;
        const LinkId found = link;
        drop(found);
        return true;
    }
    return false;
}

void KeptLanes::drop_expired() {
    if (deadline() <= state_.now) drop_oldest();
}

void KeptLanes::close() {
    is_closed_ = true;
    while (!lanes_.empty()) {
        const LinkId link = lanes_.begin()->first;
        drop(link);
    }
}

void KeptLanes::lose(const LinkId& link) {
    const auto found = lanes_.find(link);
    if (found != lanes_.end()) erase(found);
}

Time KeptLanes::deadline() const {
    return by_age_.empty() ? kNever : end_of(by_age_.begin()->first);
}

Time KeptLanes::end_of(Time since) const {
    const Time keep = state_.config.keep;
    return keep < kNever - since ? since + keep : kNever;
}

void KeptLanes::erase(Lanes::iterator lane) {
    by_age_.erase({lane->second.since, lane->first});
    lanes_.erase(lane);
}

}  // namespace ucp::lanes

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/runtime/peer_names.h"

#include <algorithm>

namespace ucp {

bool PeerNames::learn(uint64_t name, uint64_t worker, bool overrules) {
    const auto known = workers_.find(name);
    if (known != workers_.end()) {
        if (known->second == worker) return true;
        if (!overrules) return false;
        drop(name, known->second);
    }
    names_.emplace(worker, name);
    workers_[name] = worker;
    ++generation_;
    return true;
}

void PeerNames::drop(uint64_t name, uint64_t worker) {
    const auto [first, last] = names_.equal_range(worker);
    const auto found = std::find_if(first, last, [&](const auto& it) { return it.second == name; });
    if (found != last) names_.erase(found);
    workers_.erase(name);
}

void PeerNames::forget(uint64_t worker) {
    const auto [first, last] = names_.equal_range(worker);
    if (first == last) return;
    for (auto next = first; next != last; ++next) {
        workers_.erase(next->second);
        guests_.erase(next->second);
    }
    names_.erase(first, last);
    ++generation_;
}

bool PeerNames::is_from(uct::PeerIdentity& peer, uint64_t worker) {
    if (peer.worker == worker && peer.generation == generation_) return true;
    const auto known = workers_.find(peer.name);
    const bool is_free = peer.worker == 0 || peer.worker == worker;
    const bool is_his =
        known != workers_.end() ? known->second == worker : is_free && !names_.contains(worker);
    if (is_his) {
        peer.worker = worker;
        peer.generation = generation_;
    }
    return is_his;
}

}  // namespace ucp

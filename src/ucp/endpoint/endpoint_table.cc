// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/endpoint_table.h"

#include <algorithm>
#include <new>
#include <utility>

#include "ucp/endpoint/extras.h"
#include "ucp/endpoint/lane_state.h"
#include "ucs/log/log.h"

namespace ucp {

EndpointTable::EndpointTable(EndpointHost& host)
    : host_(host),
      buckets_(std::make_unique<ByUuid::bucket_type[]>(bucket_count_)),
      by_uuid_(ByUuid::bucket_traits(buckets_.get(), bucket_count_)) {}

void EndpointTable::clear() {
    by_uuid_.clear();
    while (!endpoints_.empty()) destroy(endpoints_.front());
}

Endpoint& EndpointTable::make(uint64_t remote_uuid, ConfigurationRef configuration,
                              std::unique_ptr<uct::Endpoint> scalable) {
    auto& made = *new Endpoint(host_, remote_uuid, std::move(configuration), std::move(scalable));
    endpoints_.push_back(made);
    ++count_;
    // One that waits for its peer's address has no peer yet.
    if (!made.is_waiting() && find(remote_uuid) == nullptr) make_primary(made);
    return made;
}

void EndpointTable::pair(Endpoint& endpoint) {
    EndpointExtras& extras = endpoint.make_extras();
    if (extras.partner == 0) extras.partner = loopbacks_.add(endpoint);
}

void EndpointTable::destroy(Endpoint& endpoint) {
    const EndpointExtras* const extras = endpoint.extras();
    if (extras != nullptr && extras->partner != 0) loopbacks_.remove(extras->partner);
    endpoints_.erase(endpoints_.iterator_to(endpoint));
    --count_;
    ++freed_;
    delete &endpoint;
}

void EndpointTable::answer(uint64_t uuid, AmId id, std::span<const std::byte> message) {
    if (Endpoint* const endpoint = find(uuid)) return endpoint->send_control(id, message);
    if (message.size() > LateAnswer::kMostBytes) return;
    LateAnswer late{uuid, id, static_cast<uint8_t>(message.size()), {}};
    std::ranges::copy(message, late.bytes.begin());
    try {
        if (late_answers_.size() == kMostLateAnswers) late_answers_.pop_front();
        late_answers_.push_back(late);
    } catch (const std::bad_alloc&) {
        ucs::log_debug("no memory to remember what worker {:016x} waits for", uuid);
    }
}

void EndpointTable::answer_late(Endpoint& endpoint) {
    if (late_answers_.empty()) [[likely]]
        return;
    const auto is_of_peer = [uuid = endpoint.remote_uuid()](const LateAnswer& late) {
        return late.uuid == uuid;
    };
    for (const LateAnswer& late : late_answers_) {
        if (is_of_peer(late))
            endpoint.send_control(late.id, std::span(late.bytes).first(late.length));
    }
    std::erase_if(late_answers_, is_of_peer);
}

Endpoint* EndpointTable::find_owner(const uct::Endpoint* lane) {
    for (Endpoint& endpoint : endpoints_) {
        ++looks_;
        if (endpoint.owns(lane)) return &endpoint;
    }
    return nullptr;
}

std::vector<Endpoint*> EndpointTable::find_owners(std::span<const uct::Endpoint* const> lanes) {
    std::vector<Endpoint*> owners(lanes.size());
    if (lanes.size() == 1) {
        owners.front() = find_owner(lanes.front());
        return owners;
    }
    std::unordered_multimap<const uct::Endpoint*, size_t> places;
    for (size_t place = 0; place < lanes.size(); ++place) places.emplace(lanes[place], place);
    for (Endpoint& endpoint : endpoints_) {
        ++looks_;
        const LaneState* const state = endpoint.lane_state();
        const uct::Endpoint* const dedicated = state == nullptr ? nullptr : state->dedicated.get();
        for (const uct::Endpoint* lane :
             {static_cast<const uct::Endpoint*>(endpoint.scalable()), dedicated}) {
            if (lane == nullptr) continue;
            const auto [first, last] = places.equal_range(lane);
            for (auto at = first; at != last; ++at) owners[at->second] = &endpoint;
        }
    }
    return owners;
}

bool EndpointTable::contains(const Endpoint* wanted) const {
    return std::ranges::any_of(endpoints_,
                               [&](const Endpoint& endpoint) { return &endpoint == wanted; });
}

void EndpointTable::grow() {
    if (by_uuid_.size() < bucket_count_) return;
    const size_t count = bucket_count_ * 4;
    std::unique_ptr<ByUuid::bucket_type[]> buckets(new (std::nothrow) ByUuid::bucket_type[count]);
    if (buckets == nullptr) return;  // longer lists are slower, not wrong
    by_uuid_.rehash(ByUuid::bucket_traits(buckets.get(), count));
    buckets_ = std::move(buckets);
    bucket_count_ = count;
}

void EndpointTable::make_primary(Endpoint& endpoint) {
    grow();
    by_uuid_.insert(endpoint);
    endpoint.set_primary(true);
}

void EndpointTable::resign_primary(Endpoint& endpoint) {
    if (!endpoint.is_primary()) return;
    by_uuid_.erase(by_uuid_.iterator_to(endpoint));
    endpoint.set_primary(false);
    // Most peers have one endpoint: there is nothing to look for then.
    if (by_uuid_.size() + doomed_.size() + 1 >= count_) return;
    for (Endpoint& other : endpoints_) {
        if (&other == &endpoint || other.remote_uuid() != endpoint.remote_uuid()) continue;
        if (other.is_failed() || other.is_closing()) continue;
        if (endpoint.peer_has_greeted()) other.set_peer_has_greeted();
        make_primary(other);
        return;
    }
}

void EndpointTable::replace_primary(Endpoint& known, Endpoint& endpoint) {
    if (known.peer_has_greeted()) endpoint.set_peer_has_greeted();
    by_uuid_.erase(by_uuid_.iterator_to(known));
    known.set_primary(false);
    make_primary(endpoint);
}

void EndpointTable::doom(Endpoint& endpoint) {
    if (endpoint.is_doomed()) return;
    endpoint.set_doomed();
    endpoint.hang_up();
    resign_primary(endpoint);
    doom_again(endpoint);
}

std::vector<Endpoint*> EndpointTable::take_doomed() {
    std::vector<Endpoint*> taken = std::exchange(doomed_, {});
    if (!has_unlisted_) return taken;
    try {
        for (Endpoint& endpoint : endpoints_) {
            if (endpoint.is_doomed() && std::ranges::find(taken, &endpoint) == taken.end())
                taken.push_back(&endpoint);
        }
        has_unlisted_ = false;
    } catch (const std::bad_alloc&) {
        host_.work.notify();
    }
    return taken;
}

void EndpointTable::doom_again(Endpoint& endpoint) {
    try {
        doomed_.push_back(&endpoint);
    } catch (const std::bad_alloc&) {
        has_unlisted_ = true;
    }
    host_.work.notify();
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/unordered_set.hpp>

#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/loopbacks.h"
#include "ucs/sys/random.h"

namespace ucp {

// The endpoints of a worker. Owns them.
//
// A peer has one primary endpoint here: messages of the peer are answered on it, and it takes part
// in the selection of lanes. Endpoints that are to go wait in a list, until the worker frees them.
class EndpointTable {
  public:
    explicit EndpointTable(EndpointHost& host);
    ~EndpointTable() { clear(); }
    EndpointTable(const EndpointTable&) = delete;

    // A new endpoint; it becomes the primary one of its peer if there is none.
    // @param remote_uuid  0: the peer is not known yet
    Endpoint& make(uint64_t remote_uuid, ConfigurationRef configuration,
                   std::unique_ptr<uct::Endpoint> scalable);
    // Frees it. Nothing knows it any more.
    void destroy(Endpoint& endpoint);
    size_t size() const { return count_; }
    // The worker's own name.
    uint64_t local_uuid() const { return host_.uuid; }

    // The primary endpoint of a peer; null if there is none. Failed ones are not found.
    Endpoint* find(uint64_t uuid) {
        const auto found = by_uuid_.find(uuid);
        return found == by_uuid_.end() ? nullptr : &*found;
    }
    // It is to the own worker, and the other end of another one.
    void pair(Endpoint& endpoint);
    Loopbacks& loopbacks() { return loopbacks_; }
    // The endpoint that owns a transport endpoint; slow, for errors.
    Endpoint* find_owner(const uct::Endpoint* lane);
    // The same for many: each endpoint is looked at once. Null where there is none.
    std::vector<Endpoint*> find_owners(std::span<const uct::Endpoint* const> lanes);
    // Endpoints that these two have looked at so far.
    uint64_t looks() const { return looks_; }
    // Is it still there? Slow, for what may have outlived its endpoint.
    bool contains(const Endpoint* endpoint) const;
    // How many have been freed: one that was there at the same count still is.
    uint64_t freed() const { return freed_; }
    template <typename Visitor>
    void for_each(Visitor visit) {
        for (Endpoint& endpoint : endpoints_) visit(endpoint);
    }

    template <typename Predicate>
    bool all_of(Predicate predicate) const {
        return std::ranges::all_of(endpoints_, predicate);
    }

    // The same for `count` of them at most, the oldest.
    template <typename Visitor>
    void for_first(size_t count, Visitor visit) {
        for (auto at = endpoints_.begin(); count > 0 && at != endpoints_.end(); ++at, --count) {
            visit(*at);
        }
    }

    // Say it to that peer, which waits for it. Where there is no endpoint to the peer (the program
    // has closed it by force), it is said when there is one again, at the latest when the peer asks
    // for that (Keepalive); of too many, the oldest are never said.
    void answer(uint64_t uuid, AmId id, std::span<const std::byte> message);
    // What the endpoint's peer has not been told before there was this endpoint.
    void answer_late(Endpoint& endpoint);

    // Another endpoint answers the peer from now on, if it has another.
    void resign_primary(Endpoint& endpoint);
    // `endpoint` takes the place of `known`, which is its peer's primary one.
    void replace_primary(Endpoint& known, Endpoint& endpoint);
    // Frees all.
    void clear();

    // Free the endpoint in the next progress.
    void doom(Endpoint& endpoint);
    // Those that are to be freed; what cannot be yet is doomed again by doom_again().
    std::vector<Endpoint*> take_doomed();
    void doom_again(Endpoint& endpoint);
    // One that was doomed, and not again, may be freed now.
    void look_for_doomed() {
        has_unlisted_ = true;
        host_.work.notify();
    }

  private:
    struct Key {
        using type = uint64_t;
        uint64_t operator()(const Endpoint& endpoint) const { return endpoint.remote_uuid(); }
    };
    struct Hash {
        size_t operator()(uint64_t uuid) const { return ucs::mix64(uuid); }
    };
    struct LateAnswer {
        static constexpr size_t kMostBytes = 24;
        uint64_t uuid;
        AmId id;
        uint8_t length;
        std::array<std::byte, kMostBytes> bytes;
    };
    static constexpr size_t kMostLateAnswers = 1024;

    using List = boost::intrusive::list<Endpoint, boost::intrusive::constant_time_size<false>>;
    using ByUuid = boost::intrusive::unordered_set<Endpoint, boost::intrusive::key_of_value<Key>,
                                                   boost::intrusive::hash<Hash>,
                                                   boost::intrusive::power_2_buckets<true>>;

    void make_primary(Endpoint& endpoint);
    void grow();

    EndpointHost& host_;
    size_t bucket_count_ = 16;
    std::unique_ptr<ByUuid::bucket_type[]> buckets_;
    ByUuid by_uuid_;
    List endpoints_;
    Loopbacks loopbacks_;
    size_t count_ = 0;
    uint64_t looks_ = 0;
    uint64_t freed_ = 0;
    std::deque<LateAnswer> late_answers_;
    std::vector<Endpoint*> doomed_;
    bool has_unlisted_ = false;  // one that is doomed may not be noted
};

}  // namespace ucp

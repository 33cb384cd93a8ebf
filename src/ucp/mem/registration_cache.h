// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/set.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ucp/mem/memory_events.h"
#include "ucs/memory/detector.h"
#include "uct/api/memory_domain.h"

namespace ucp {

struct Domain;

// Whole pages, as far as they belong to one allocation where that is a device's, that are
// registered with the domains that asked for it.
struct CachedRegion {
    boost::intrusive::set_member_hook<> by_address;
    boost::intrusive::list_member_hook<> by_age;
    uintptr_t begin = 0, end = 0;
    uint32_t users = 0;
    bool is_current = false;  // can be found
    // Of a device's memory: whose it is, and in which allocation; else null and 0.
    ucs::MemoryDetector* device = nullptr;
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    uint64_t allocation = 0;
    // Of each domain two: for this process alone, and such that peers may read.
    std::unique_ptr<uct::MemoryHandle*[]> handles;

    // One that is fit for use with those rights, if there is one.
    uct::MemoryHandle* find(unsigned domain, uct::PeerRights rights) const {
        uct::MemoryHandle* const own = handles[size_t{2} * domain];
        return own != nullptr && rights == uct::PeerRights::kNone ? own : handles[2 * domain + 1];
    }
    uint64_t key() const { return begin; }
    size_t size() const { return end - begin; }
    bool covers(uintptr_t first, uintptr_t last) const { return begin <= first && last <= end; }
};

// The registrations of a context that outlive the operation that they were made for.
//
// It is for what this process does with its memory, and for peers that read; see Memory about the
// latter. What peers may write is never kept here: a key would outlive what it was given for.
//
// Regions that can be found do not overlap: a range that overlaps some takes their place, as one
// region around all. What invalidations name cannot be found from then on; it stays registered
// until its last user lets go. Unused regions wait in the order of their last use, and the oldest
// go when there are more, in number or bytes, than the limits say. A region that finds no room
// below the limits lives as long as its users.
//
// Nobody tells when memory of a device is freed. Its allocation's number does, which each lookup
// brings along: a region of another number is stale. What nobody looks up any more is asked for
// from time to time (collect_freed()), as the device has the memory back only then.
//
// Correct programs use no memory while they unmap it. So a range whose users say that it is there
// is registered for what it is then; and what a region holds beyond their ranges comes from
// regions that were current when the invalidations were last taken, so that whatever has happened
// to it since is still to be taken.
//
// Thread rule: under the context's lock; invalidations().push() from anywhere.
class RegistrationCache {
  public:
    struct Limits {
        size_t regions = SIZE_MAX;
        size_t bytes = SIZE_MAX;
    };
    struct Statistics {
        uint64_t found = 0;
        uint64_t made = 0;
        uint64_t invalidated = 0;  // unmapped, or freed
        uint64_t evicted = 0;
    };

    RegistrationCache(std::span<Domain> domains, const Limits& limits);
    ~RegistrationCache();
    RegistrationCache(const RegistrationCache&) = delete;

    // A region around the range, for one more user. @return null if there is no memory
    // @param memory  what the range was found to be; of a device's the allocation is known
    CachedRegion* get(const void* address, size_t length, const ucs::MemoryInfo& memory = {});
    void put(CachedRegion& region);
    // As put(); nobody may find it any more, as a peer may still read there.
    void put_for_good(CachedRegion& region);
    // The registration with a domain, made at need; null if it refuses: then nobody else finds it.
    // @param rights  none, or to read: what peers may write is registered for its user alone
    uct::MemoryHandle* handle(CachedRegion& region, unsigned domain,
                              uct::PeerRights rights = uct::PeerRights::kNone);

    // Deregisters what was unmapped meanwhile and has no user; next to nothing if none was.
    void collect() {
        if (has_invalidations()) [[unlikely]]
            take_invalidations();
    }
    // Is there anything to collect()? Any thread may ask, without the lock.
    bool has_invalidations() const { return !invalidations_.is_empty(); }

    // Deregisters memory of devices that has been freed and has no user. Asks for a few regions,
    // the next time for others.
    void collect_freed();

    Invalidations& invalidations() { return invalidations_; }
    const Statistics& statistics() const { return statistics_; }
    size_t regions() const { return current_.size(); }
    size_t bytes() const { return bytes_; }

  private:
    static constexpr unsigned kLooks = 64;  // of collect_freed()

    struct ByBegin {
        using type = uint64_t;
        type operator()(const CachedRegion& region) const { return region.begin; }
    };
    using Current = boost::intrusive::set<
        CachedRegion,
        boost::intrusive::member_hook<CachedRegion, boost::intrusive::set_member_hook<>,
                                      &CachedRegion::by_address>,
        boost::intrusive::key_of_value<ByBegin>>;
    using Unused = boost::intrusive::list<
        CachedRegion,
        boost::intrusive::member_hook<CachedRegion, boost::intrusive::list_member_hook<>,
                                      &CachedRegion::by_age>>;

    CachedRegion* make(uintptr_t begin, uintptr_t end, const ucs::MemoryInfo& memory);
    // The first region that ends behind an address.
    Current::iterator first_behind(uintptr_t address);
    void take_invalidations();
    // Out of reach; deregistered if unused.
    void forget(CachedRegion& region);
    void destroy(CachedRegion& region);
    // Make room for one of so many bytes. @return false if what is in use leaves none
    bool evict_for(size_t bytes);
    bool evict_oldest();

    std::span<Domain> domains_;
    const Limits limits_;
    Current current_;
    Unused unused_;
    size_t bytes_ = 0;            // of the current ones
    size_t of_devices_ = 0;       // of the current ones
    uintptr_t looked_until_ = 0;  // by collect_freed()
    Statistics statistics_;
    Invalidations invalidations_;
};

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "ucp/mem/domain.h"
#include "ucp/mem/memory_events.h"
#include "ucp/mem/registration_cache.h"
#include "ucs/datastruct/slot_table.h"
#include "ucs/sys/time.h"
#include "ucs/type/status.h"

namespace ucp {

class Memory;

// Who reads or writes memory of an AccessTable, on behalf of peers, beyond the call that found it
// there.
class RegionUser {
  public:
    // The memory of that name goes: when this returns, nobody touches it any more on this user's
    // behalf.
    virtual void let_go(uint64_t region) = 0;

  protected:
    ~RegionUser() = default;
};

// The mapped memory of a context, by names that remote keys carry.
//
// Transports without remote access have the target's processor do it on behalf of the peer; there
// is no device then to hold the peer to what was mapped. So each emulated access presents the name
// and the context's identity, a random number, and the target checks them, the range and the access
// right here.
//
// A key may also name no memory at all (a PackedKey that was not parsed). Its accesses have only an
// address, and reach memory that the program has published: that it mapped, for remote access, and
// packed a key of.
class AccessTable {
  public:
    explicit AccessTable(uint64_t identity = 0) : identity_(identity) {}

    uint64_t identity() const { return identity_; }
    // @return a name; never 0
    uint64_t add(Memory& memory);
    size_t size() const { return slots_.size(); }
    // Of all that is in it.
    size_t bytes() const { return bytes_; }
    // All users have let go of it then. No effect for names that are not in use.
    void remove(uint64_t region);
    // Users hear of each name that goes. Not owned.
    void add_user(RegionUser& user) { users_.push_back(&user); }
    void remove_user(RegionUser& user) { std::erase(users_, &user); }
    // Accesses without a name may go to this memory from now on. @return UCS_ERR_NO_MEMORY
    ucs_status_t publish(const Memory& memory);
    // Where a peer may access; null if it may not.
    // @param identity, region  both 0: any published memory that holds the whole range
    // @param prot  bits UCP_MEM_MAP_PROT_REMOTE_*
    void* access(uint64_t identity, uint64_t region, uint64_t address, size_t length,
                 unsigned prot) const;

  private:
    using Slots = ucs::SlotTable<Memory>;

    const Memory* find(uint64_t identity, uint64_t region, uint64_t address, size_t length,
                       unsigned prot) const;

    Slots slots_;
    // By address. A program may publish memory that overlaps, or the same twice.
    std::set<std::pair<uintptr_t, const Memory*>> published_;
    size_t longest_ = 0;  // bytes of the longest that was ever published
    std::vector<RegionUser*> users_;
    uint64_t identity_;
    size_t bytes_ = 0;
};

// The memory domains of a context, and what is registered with them.
//
// Thread rule: under a DomainLock, if several threads use the context; the list of domains is
// constant once the context is made.
class DomainSet {
  public:
    struct Options {
        bool is_shared = false;       // workers of several threads use the context
        bool exports_memory = false;  // UCP_FEATURE_EXPORTED_MEMH
        uint64_t identity = 0;        // of the context, in remote keys
    };

    DomainSet() = default;
    DomainSet(const DomainSet&) = delete;

    void set_options(const Options& options);
    bool is_shared() const { return options_.is_shared; }
    bool exports_memory() const { return options_.exports_memory; }

    std::vector<Domain>& list() { return domains_; }
    const std::vector<Domain>& list() const { return domains_; }
    size_t size() const { return domains_.size(); }
    Domain& operator[](size_t index) { return domains_[index]; }
    const Domain& operator[](size_t index) const { return domains_[index]; }

    // Serialises the domains; null if one thread alone uses the context. Recursive.
    std::recursive_mutex* mutex() { return options_.is_shared ? &mutex_ : nullptr; }

    AccessTable& regions() { return regions_; }
    // Null: every operation registers for itself.
    RegistrationCache* registrations() { return registrations_.get(); }
    // Keep registrations for later operations, as far as memory events keep them honest.
    // @return false if nothing tells when memory is unmapped; there is no cache then
    bool open_cache(const RegistrationCache::Limits& limits, bool use_events);
    // From time to time: what was unmapped, or freed on a device, does not stay registered until
    // the next lookup.
    void collect(ucs::Time now);

  private:
    static constexpr ucs::Duration kFreedInterval{20'000'000};  // between looks for what was freed

    Options options_;
    std::vector<Domain> domains_;
    std::recursive_mutex mutex_;
    AccessTable regions_;
    std::unique_ptr<RegistrationCache> registrations_;
    std::atomic<ucs::Time> next_look_{};  // for what was freed
    MemoryEvents memory_events_;
};

// Takes the domains' lock for a scope, if there is one.
class DomainLock {
  public:
    explicit DomainLock(DomainSet& domains) : mutex_(domains.mutex()) {
        if (mutex_ != nullptr) mutex_->lock();
    }
    ~DomainLock() {
        if (mutex_ != nullptr) mutex_->unlock();
    }
    DomainLock(DomainLock&&) = delete;

  private:
    std::recursive_mutex* mutex_;
};

}  // namespace ucp

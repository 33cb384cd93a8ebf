// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ucp/mem/domain.h"
#include "ucp/mem/memory_events.h"
#include "ucp/mem/region_table.h"
#include "ucp/mem/registration_cache.h"

namespace ucp {

/**
 * The memory domains of a context, and what is registered with them.
 *
 * Thread rule: under a DomainLock, if several threads use the context; the list of domains is
 * constant once the context is made.
 */
class DomainSet {
  public:
    struct Options {
        bool is_shared = false;       //!< workers of several threads use the context
        bool exports_memory = false;  //!< UCP_FEATURE_EXPORTED_MEMH
        uint64_t identity = 0;        //!< of the context, in remote keys
    };

    DomainSet() = default;
    DomainSet(const DomainSet&) = delete;
    DomainSet& operator=(const DomainSet&) = delete;

    void set_options(const Options& options);
    bool is_shared() const { return options_.is_shared; }
    bool exports_memory() const { return options_.exports_memory; }

    std::vector<Domain>& list() { return domains_; }
    const std::vector<Domain>& list() const { return domains_; }
    size_t size() const { return domains_.size(); }
    Domain& operator[](size_t index) { return domains_[index]; }
    const Domain& operator[](size_t index) const { return domains_[index]; }

    /** Serialises the domains; null if one thread alone uses the context. Recursive. */
    std::recursive_mutex* mutex() { return options_.is_shared ? &mutex_ : nullptr; }

    RegionTable& regions() { return regions_; }
    /** Null: every operation registers for itself. */
    RegistrationCache* registrations() { return registrations_.get(); }
    /**
     * Keep registrations for later operations, as far as memory events keep them honest.
     * @return false if nothing tells when memory is unmapped; there is no cache then
     */
    bool open_cache(const RegistrationCache::Limits& limits, bool use_events);
    /** From time to time: what was unmapped does not stay pinned until the next lookup. */
    void collect();

  private:
    Options options_;
    std::vector<Domain> domains_;
    std::recursive_mutex mutex_;
    RegionTable regions_;
    std::unique_ptr<RegistrationCache> registrations_;
    MemoryEvents memory_events_;
};

/** Takes the domains' lock for a scope, if there is one. */
class DomainLock {
  public:
    explicit DomainLock(DomainSet& domains) : mutex_(domains.mutex()) {
        if (mutex_ != nullptr) mutex_->lock();
    }
    ~DomainLock() {
        if (mutex_ != nullptr) mutex_->unlock();
    }
    DomainLock(const DomainLock&) = delete;
    DomainLock& operator=(const DomainLock&) = delete;

  private:
    std::recursive_mutex* mutex_;
};

}  // namespace ucp

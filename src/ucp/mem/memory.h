// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/mem/exported.h"
#include "ucs/memory/detector.h"
#include "uct/api/memory_domain.h"

namespace ucp {

class DomainSet;
class RegistrationCache;
struct CachedRegion;

// Memory known to domains of a context: what ucp_mem_h points to, which all of them know, or the
// buffer of an operation that came without a handle.
//
// What peers may do with it is said when it is made, and registered exactly: no byte beside the
// range (but with both rights it grows to whole 8-byte words, for atomics on smaller ones), no
// access beyond the rights, none after its end. So such a registration is its own, with two
// exceptions. What no peer may access uses the context's registration cache, if there is one: whole
// pages, which stay registered for the next operation or handle. And so does what peers may only
// read for the length of an operation, where registering pins pages and takes long; there the key
// is good for reading the pages until they leave the cache. While memory with rights lives, the
// context's AccessTable names it, so that emulated remote accesses are checked against it; not what
// is registered on demand to be read, since no key with a name goes to anybody.
//
// Thread rule: what registers takes the context's lock; one thread at a time asks a buffer for
// handles; the rest is constant.
class Memory {
  public:
    // As ucp_mem_map.
    static ucs_status_t map(DomainSet& domains, const ucp_mem_map_params_t& params,
                            Memory** memory);
    // A buffer of an operation that came without a handle, registered with all domains for every
    // access of peers.
    // @return the status of the domain that refused; UCS_ERR_NO_MEMORY
    static ucs_status_t create(DomainSet& domains, void* address, size_t length, Memory** memory);
    // The same, registered with a domain when handle() first asks for it.
    // @param found  what the buffer was found to be: memory of a device is registered by the
    //               domains that can, and kept where its allocation is known
    static ucs_status_t create_on_demand(DomainSet& domains, void* address, size_t length,
                                         uct::PeerRights rights, Memory** memory,
                                         const ucs::MemoryInfo& found = {});
    // Does any of the domains take memory of that type?
    static bool can_register(DomainSet& domains, ucs_memory_type_t type);
    static void destroy(Memory* memory);

    // The buffer's registration is for nobody else: a peer that failed may still read there.
    void distrust() { is_distrusted_ = true; }

    DomainSet& domains() const { return domains_; }
    void* address() const { return address_; }
    size_t length() const { return length_; }
    ucs_memory_type_t type() const { return type_; }
    uint64_t region() const { return region_; }

    // The registration with a domain; null if that domain cannot register memory, or refuses.
    uct::MemoryHandle* handle(unsigned domain) const {
        uct::MemoryHandle* const known = registered(domain);
        return known != nullptr || !is_on_demand_ ? known : register_with(domain);
    }
    // The same, of what has been registered so far.
    uct::MemoryHandle* registered(unsigned domain) const;

    bool covers(uint64_t address, size_t length) const {
        const auto start = reinterpret_cast<uintptr_t>(address_);
        return address >= start && address - start <= length_ &&
               length <= length_ - (address - start);
    }
    // Pages that can be exported; not mapped for memory of another kind.
    const SharedPages& pages() const { return pages_; }
    // @param prot  bits UCP_MEM_MAP_PROT_REMOTE_*
    bool allows(unsigned prot) const { return (prot_ & prot) == prot; }
    // What peers may do with it.
    uct::PeerRights rights() const;

    ucs_status_t advise(const ucp_mem_advise_params_t& params) const;

  private:
    static ucs_status_t import(DomainSet& domains, const void* packed, Memory** memory);
    explicit Memory(DomainSet& domains) : domains_(domains) {}
    ~Memory() = default;
    ucs_status_t allocate(const ucp_mem_map_params_t& params, void* hint, size_t length);
    ucs_status_t allocate_on_device(ucs_memory_type_t type, size_t length);
    // @param cache  may have it registered already; null: registered for this handle alone
    ucs_status_t register_everywhere(RegistrationCache* cache);
    uct::MemoryHandle* register_with(unsigned domain) const;
    uct::MemoryHandle* register_alone(unsigned domain) const;
    bool may_be_cached(unsigned domain) const;
    void release();

    DomainSet& domains_;
    void* address_ = nullptr;
    size_t length_ = 0;
    size_t allocated_ = 0;  // bytes of a mapping that is ours; 0: the user's memory
    uct::MemoryDomain* allocator_ = nullptr;  // whose it is, if a domain's
    ucs::MemoryDetector* device_ = nullptr;   // or a device's
    SharedPages pages_;                       // likewise ours, where others may map them too
    unsigned prot_ = ~0u;
    ucs_memory_type_t type_ = UCS_MEMORY_TYPE_HOST;
    uint64_t region_ = 0;
    CachedRegion* cached_ = nullptr;  // we are one of its users
    bool is_on_demand_ = false;
    bool is_distrusted_ = false;
    mutable unsigned refused_ = ~0u;  // a domain that is not asked again
    // Our own registrations: the first on demand, which is mostly the only one, and one for each
    // domain, or none.
    mutable unsigned first_domain_ = ~0u;
    mutable uct::MemoryHandle* first_handle_ = nullptr;
    mutable std::vector<uct::MemoryHandle*> handles_;
};

// A registration with one domain for the length of one operation. Of memory of the host.
struct Registration {
    uct::MemoryHandle* handle = nullptr;
    unsigned domain = 0;
    CachedRegion* cached = nullptr;  // holds the handle, if any does

    ucs_status_t open(DomainSet& domains, unsigned domain, void* address, size_t length);
    // Of these bytes alone, for a peer, and never kept: for domains that register without pinning
    // pages.
    ucs_status_t open_for_peer(DomainSet& domains, unsigned domain, void* address, size_t length,
                               uct::PeerRights rights);
    void close(DomainSet& domains);
    bool is_open() const { return handle != nullptr; }
};

}  // namespace ucp

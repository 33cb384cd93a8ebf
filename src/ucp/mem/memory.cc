// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "ucp/mem/domain_set.h"
#include "ucp/mem/registration_cache.h"
#include "ucs/log/log.h"
#include "ucs/memory/detector.h"
#include "ucs/memory/pages.h"
#include "ucs/type/bits.h"

namespace ucp {

namespace {

constexpr unsigned kAllAccesses = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE |
                                  UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE;
constexpr unsigned kMapFlags = UCP_MEM_MAP_NONBLOCK | UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED |
                               UCP_MEM_MAP_SYMMETRIC_RKEY | UCP_MEM_MAP_LOCK;
constexpr unsigned kLockNow = UCP_MEM_MAP_LOCK | UCP_MEM_MAP_NONBLOCK;  // each refuses the other

constexpr unsigned kRemoteAccesses = UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE;

unsigned prot_of(uct::PeerRights rights) {
    unsigned prot = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE;
    if (uct::allows(rights, uct::PeerRights::kRead)) prot |= UCP_MEM_MAP_PROT_REMOTE_READ;
    if (uct::allows(rights, uct::PeerRights::kWrite)) prot |= UCP_MEM_MAP_PROT_REMOTE_WRITE;
    return prot;
}

// Brings all pages in, writable if they may be written (UCP_MEM_MAP_LOCK). Kernels before 5.14
// cannot: there only what devices pin stays.
void bring_in(void* address, size_t length) {
#if defined(MADV_POPULATE_READ) && defined(MADV_POPULATE_WRITE)
    if (length == 0) return;
    const uintptr_t start = ucs::align_down(reinterpret_cast<uintptr_t>(address), ucs::page_size());
    const uintptr_t end =
        ucs::align_up(reinterpret_cast<uintptr_t>(address) + length, ucs::page_size());
    void* const pages = reinterpret_cast<void*>(start);
    if (madvise(pages, end - start, MADV_POPULATE_WRITE) != 0)
        (void)madvise(pages, end - start, MADV_POPULATE_READ);
#endif
}

// Does it take long to register memory with the domain?
bool pins_pages(const Domain& domain) {
    return domain.memory->attributes().register_per_byte > 0;
}

bool is_known(ucs_memory_type_t type) {
    return type == UCS_MEMORY_TYPE_HOST || type == UCS_MEMORY_TYPE_UNKNOWN ||
           (type < UCS_MEMORY_TYPE_LAST && ucs::MemoryDetectors::of_type(type) != nullptr);
}

}  // namespace

ucs_status_t Memory::map(DomainSet& domains, const ucp_mem_map_params_t& params, Memory** result) {
    const uint64_t fields = params.field_mask;
    if ((fields & UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER) != 0) {
        return import(domains, params.exported_memh_buffer, result);
    }
    if ((fields & UCP_MEM_MAP_PARAM_FIELD_LENGTH) == 0) return UCS_ERR_INVALID_PARAM;
    void* address = (fields & UCP_MEM_MAP_PARAM_FIELD_ADDRESS) ? params.address : nullptr;
    const unsigned flags = (fields & UCP_MEM_MAP_PARAM_FIELD_FLAGS) ? params.flags : 0;
    const unsigned prot = (fields & UCP_MEM_MAP_PARAM_FIELD_PROT) ? params.prot : kAllAccesses;
    const bool allocate = (flags & UCP_MEM_MAP_ALLOCATE) != 0;
    if ((flags & ~kMapFlags) != 0 || (prot & ~kAllAccesses) != 0 || (flags & kLockNow) == kLockNow)
        return UCS_ERR_INVALID_PARAM;
    if ((flags & UCP_MEM_MAP_FIXED) != 0 &&
        (!allocate || address == nullptr || !ucs::is_aligned(address, ucs::page_size())))
        return UCS_ERR_INVALID_PARAM;
    if (address == nullptr && !allocate && params.length > 0) return UCS_ERR_INVALID_PARAM;
    if (params.length > PTRDIFF_MAX) return UCS_ERR_INVALID_PARAM;
    const ucs_memory_type_t wanted = (fields & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE) != 0
                                         ? params.memory_type
                                         : UCS_MEMORY_TYPE_UNKNOWN;
    if (!is_known(wanted)) {
        ucs::log_error("{} memory is not supported here (modules: UCX_MODULE_DIR)",
                       wanted < UCS_MEMORY_TYPE_LAST ? ucs_memory_type_names[wanted] : "such");
        return UCS_ERR_UNSUPPORTED;
    }
    const bool on_device = wanted != UCS_MEMORY_TYPE_HOST && wanted != UCS_MEMORY_TYPE_UNKNOWN;
    if (on_device && allocate && (flags & UCP_MEM_MAP_FIXED) != 0) return UCS_ERR_UNSUPPORTED;

    auto* memory = new (std::nothrow) Memory(domains);
    if (memory == nullptr) return UCS_ERR_NO_MEMORY;
    memory->prot_ = prot;
    memory->address_ = params.length != 0 ? address : nullptr;
    memory->length_ = params.length;
    ucs_status_t status = UCS_OK;
    if (allocate && params.length > 0) {
        status = on_device ? memory->allocate_on_device(wanted, params.length)
                           : memory->allocate(params, address, params.length);
    } else {
        ucs::MemoryDetectors::prepare();
        memory->type_ = ucs::detect_memory(address, params.length).type;
    }
    if (status == UCS_OK && (flags & UCP_MEM_MAP_LOCK) != 0 &&
        memory->type_ == UCS_MEMORY_TYPE_HOST)
        bring_in(memory->address_, memory->length_);
    // Not kept in the cache: memory that is allocated here is freed with its handle, and peers'
    // rights must end with theirs.
    const bool is_kept = !allocate && (prot & kRemoteAccesses) == 0;
    if (status == UCS_OK)
        status = memory->register_everywhere(is_kept ? domains.registrations() : nullptr);
    if (status != UCS_OK) {
        destroy(memory);
        return status;
    }
    *result = memory;
    return UCS_OK;
}

ucs_status_t Memory::import(DomainSet& domains, const void* packed, Memory** result) {
    if (packed == nullptr) return UCS_ERR_INVALID_PARAM;
    auto* memory = new (std::nothrow) Memory(domains);
    if (memory == nullptr) return UCS_ERR_NO_MEMORY;
    ucs_status_t status = SharedPages::open(packed, &memory->pages_, &memory->length_);
    memory->address_ = memory->pages_.address();
    if (status == UCS_OK) status = memory->register_everywhere(nullptr);
    if (status != UCS_OK) {
        destroy(memory);
        return status;
    }
    *result = memory;
    return UCS_OK;
}

ucs_status_t Memory::create(DomainSet& domains, void* address, size_t length, Memory** result) {
    Memory* memory = nullptr;
    ucs_status_t status =
        create_on_demand(domains, address, length, uct::PeerRights::kAll, &memory);
    if (status != UCS_OK) return status;
    for (unsigned i = 0; i < domains.size() && length > 0; ++i) {
        if (!domains[i].memory->attributes().can_register) continue;
        if (memory->handle(i) != nullptr) continue;
        destroy(memory);
        return UCS_ERR_IO_ERROR;
    }
    memory->is_on_demand_ = false;
    *result = memory;
    return UCS_OK;
}

ucs_status_t Memory::create_on_demand(DomainSet& domains, void* address, size_t length,
                                      uct::PeerRights rights, Memory** result,
                                      const ucs::MemoryInfo& found) {
    auto* memory = new (std::nothrow) Memory(domains);
    if (memory == nullptr) return UCS_ERR_NO_MEMORY;
    memory->address_ = address;
    memory->length_ = length;
    memory->type_ = found.type;
    memory->is_on_demand_ = length > 0;
    memory->prot_ = prot_of(rights);
    if (length > 0) {
        DomainLock lock(domains);
        // Memory of a device is cached only if its allocation has a number, which tells whether it
        // is still the same.
        const bool is_known = found.type == UCS_MEMORY_TYPE_HOST || found.allocation != 0;
        RegistrationCache* const cache = is_known ? domains.registrations() : nullptr;
        const bool may_be_kept =
            rights == uct::PeerRights::kNone ||
            (rights == uct::PeerRights::kRead && std::ranges::any_of(domains.list(), pins_pages));
        if (cache != nullptr && may_be_kept) memory->cached_ = cache->get(address, length, found);
        // Only memory that peers may write needs a name: they read by the key alone.
        if (uct::allows(rights, uct::PeerRights::kWrite))
            memory->region_ = domains.regions().add(*memory);
    }
    *result = memory;
    return UCS_OK;
}

bool Memory::can_register(DomainSet& domains, ucs_memory_type_t type) {
    return type == UCS_MEMORY_TYPE_HOST ||
           std::ranges::any_of(domains.list(), [type](const Domain& domain) {
               return (domain.memory->attributes().device_types & UCS_BIT(type)) != 0;
           });
}

uct::PeerRights Memory::rights() const {
    const unsigned bits = (allows(UCP_MEM_MAP_PROT_REMOTE_READ) ? 1 : 0) |
                          (allows(UCP_MEM_MAP_PROT_REMOTE_WRITE) ? 2 : 0);
    return static_cast<uct::PeerRights>(bits);
}

bool Memory::may_be_cached(unsigned domain) const {
    return rights() == uct::PeerRights::kNone || pins_pages(domains_[domain]);
}

uct::MemoryHandle* Memory::registered(unsigned domain) const {
    if (domain == first_domain_) return first_handle_;
    if (!handles_.empty() && handles_[domain] != nullptr) return handles_[domain];
    return cached_ != nullptr && may_be_cached(domain) ? cached_->find(domain, rights()) : nullptr;
}

uct::MemoryHandle* Memory::register_with(unsigned domain) const {
    if (domain == refused_) return nullptr;
    DomainLock lock(domains_);
    if (cached_ != nullptr && may_be_cached(domain)) {
        uct::MemoryHandle* const handle =
            domains_.registrations()->handle(*cached_, domain, rights());
        if (handle != nullptr) return handle;
    }
    // The cached region may hold more than the buffer, and not all of that may be fit for
    // registration: try the buffer alone.
    uct::MemoryHandle* const handle = register_alone(domain);
    if (handle == nullptr) refused_ = domain;
    return handle;
}

uct::MemoryHandle* Memory::register_alone(unsigned domain) const {
    const Domain& taker = domains_[domain];
    if (!taker.takes(type_)) return nullptr;
    const bool is_first = handles_.empty() && first_handle_ == nullptr;
    if (handles_.empty() && !is_first) {
        try {
            handles_.assign(domains_.size(), nullptr);
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }
    uct::MemoryHandle* handle = nullptr;
    if (taker.register_memory(address_, length_, type_, rights(), &handle) != UCS_OK)
        return nullptr;
    if (!is_first) return handles_[domain] = handle;
    first_domain_ = domain;
    return first_handle_ = handle;
}

ucs_status_t Memory::allocate(const ucp_mem_map_params_t& params, void* hint, size_t length) {
    const bool fixed = (params.field_mask & UCP_MEM_MAP_PARAM_FIELD_FLAGS) != 0 &&
                       (params.flags & UCP_MEM_MAP_FIXED) != 0;
    if (domains_.exports_memory()) {
        const ucs_status_t status = SharedPages::create(length, hint, fixed, &pages_);
        address_ = pages_.address();
        return status;
    }
    const size_t bytes = ucs::align_up(length, ucs::page_size());
    // Best where peers can map it.
    DomainLock lock(domains_);
    for (Domain& domain : domains_.list()) {
        if (!domain.memory->attributes().can_allocate ||
            domain.memory->allocate_memory(bytes, hint, fixed, &address_) != UCS_OK) {
            continue;
        }
        allocator_ = domain.memory.get();
        allocated_ = bytes;
        return UCS_OK;
    }
    // MAP_FIXED replaces what is mapped there: that is what the flag's users ask for.
    void* mapped = mmap(hint, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (fixed ? MAP_FIXED : 0), -1, 0);
    if (mapped == MAP_FAILED) return UCS_ERR_NO_MEMORY;
    address_ = mapped;
    allocated_ = bytes;
    return UCS_OK;
}

ucs_status_t Memory::allocate_on_device(ucs_memory_type_t type, size_t length) {
    device_ = ucs::MemoryDetectors::of_type(type);
    const ucs_status_t status = device_->allocate(type, length, &address_);
    if (status != UCS_OK) device_ = nullptr;
    type_ = type;
    return status;
}

ucs_status_t Memory::register_everywhere(RegistrationCache* cache) {
    DomainLock lock(domains_);
    handles_.assign(domains_.size(), nullptr);
    if (length_ == 0) return UCS_OK;
    // Memory of a device that no adapter takes is reached by emulation, which needs the region
    // only.
    if (type_ != UCS_MEMORY_TYPE_HOST) {
        for (unsigned i = 0; i < handles_.size(); ++i) (void)register_alone(i);
        region_ = domains_.regions().add(*this);
        return UCS_OK;
    }
    CachedRegion* const cached = cache == nullptr ? nullptr : cache->get(address_, length_);
    cached_ = cached;
    for (unsigned i = 0; i < handles_.size(); ++i) {
        Domain& domain = domains_[i];
        if (!domain.memory->attributes().can_register) continue;
        // As with buffers, what stands beside it need not be fit for registration.
        if (cached != nullptr && cache->handle(*cached, i) != nullptr) continue;
        const ucs_status_t status =
            domain.memory->register_memory(address_, length_, rights(), &handles_[i]);
        if (status != UCS_OK) {
            ucs::log_debug("{} refuses to register {} bytes: {}", domain.device, length_,
                           ucs_status_string(status));
            handles_[i] = nullptr;
            return status;
        }
    }
    if (rights() != uct::PeerRights::kNone) region_ = domains_.regions().add(*this);
    return UCS_OK;
}

void Memory::release() {
    DomainLock lock(domains_);
    if (region_ != 0) domains_.regions().remove(region_);
    if (first_handle_ != nullptr) domains_[first_domain_].memory->deregister_memory(first_handle_);
    for (size_t i = 0; i < handles_.size(); ++i) {
        if (handles_[i] != nullptr) domains_[i].memory->deregister_memory(handles_[i]);
    }
    if (cached_ != nullptr) {
        RegistrationCache& cache = *domains_.registrations();
        is_distrusted_ ? cache.put_for_good(*cached_) : cache.put(*cached_);
    }
    if (device_ != nullptr) {
        device_->free(address_);
    } else if (allocator_ != nullptr) {
        allocator_->free_memory(address_);
    } else if (allocated_ > 0) {
        munmap(address_, allocated_);
    }
}

void Memory::destroy(Memory* memory) {
    memory->release();
    delete memory;
}

ucs_status_t Memory::advise(const ucp_mem_advise_params_t& params) const {
    constexpr uint64_t kFields = UCP_MEM_ADVISE_PARAM_FIELD_ADDRESS |
                                 UCP_MEM_ADVISE_PARAM_FIELD_LENGTH |
                                 UCP_MEM_ADVISE_PARAM_FIELD_ADVICE;
    if ((params.field_mask & kFields) != kFields) return UCS_ERR_INVALID_PARAM;
    if (params.advice != UCP_MADV_NORMAL && params.advice != UCP_MADV_WILLNEED)
        return UCS_ERR_INVALID_PARAM;
    const auto start = reinterpret_cast<uintptr_t>(params.address);
    if (!covers(start, params.length)) return UCS_ERR_INVALID_PARAM;
    if (params.advice == UCP_MADV_WILLNEED && params.length > 0) {
        // A hint: what the kernel makes of it does not matter.
        const uintptr_t page = ucs::align_down(start, ucs::page_size());
        (void)madvise(reinterpret_cast<void*>(page), start + params.length - page, MADV_WILLNEED);
    }
    return UCS_OK;
}

ucs_status_t Registration::open(DomainSet& domains, unsigned index, void* address, size_t length) {
    DomainLock lock(domains);
    uct::MemoryDomain& memory = *domains[index].memory;
    if (!memory.attributes().can_register) return UCS_ERR_UNSUPPORTED;
    if (RegistrationCache* const cache = domains.registrations()) {
        cached = cache->get(address, length);
        if (cached != nullptr) {
            handle = cache->handle(*cached, index);
            if (handle != nullptr) return UCS_OK;
            cache->put(*cached);
            cached = nullptr;
        }
    }
    uct::MemoryHandle* opened = nullptr;
    const ucs_status_t status =
        memory.register_memory(address, length, uct::PeerRights::kNone, &opened);
    if (status != UCS_OK) return status;
    handle = opened;
    domain = index;
    return UCS_OK;
}

ucs_status_t Registration::open_for_peer(DomainSet& domains, unsigned index, void* address,
                                         size_t length, uct::PeerRights rights) {
    DomainLock lock(domains);
    domain = index;
    return domains[index].memory->register_memory(address, length, rights, &handle);
}

void Registration::close(DomainSet& domains) {
    if (handle == nullptr) return;
    DomainLock lock(domains);
    if (cached != nullptr) {
        domains.registrations()->put(*cached);
    } else {
        domains[domain].memory->deregister_memory(handle);
    }
    cached = nullptr;
    handle = nullptr;
}

}  // namespace ucp

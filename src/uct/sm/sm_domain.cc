// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_domain.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <new>

#include "ucs/log/log.h"
#include "ucs/type/bits.h"
#include "uct/sm/fifo_interface.h"
#include "uct/sm/placement.h"
#include "uct/sm/ring_interface.h"

namespace uct::sm {

namespace {

// What Yama lets processes of one user do to each other; 0, as without Yama: anything.
int ptrace_scope() {
    std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
    int scope = 0;
    return file >> scope ? scope : 0;
}

}  // namespace

SmDomain::SmDomain(const Config& config) : config_(config) {
    attributes_.can_register = true;
    attributes_.can_allocate = true;
    attributes_.needs_handle = false;
    attributes_.remote_key_length = sizeof(PackedRegion);
    // Peers are not descendants, which is all that this scope lets at a process's memory unasked.
    if (config.single_copy && ptrace_scope() == 1)
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

std::vector<DeviceFact> SmDomain::describe() const {
    const int scope = ptrace_scope();
    std::string single_copy = "yes, unless the system forbids it to a process";
    if (!config_.single_copy) {
        single_copy = "no: UCX_SM_SINGLE_COPY=n";
    } else if (scope > 1) {
        single_copy =
            fmt::format("with CAP_SYS_PTRACE only: kernel.yama.ptrace_scope is {}", scope);
    } else if (scope == 1) {
        single_copy = "yes: each process permits it (PR_SET_PTRACER)";
    }
    return {{"reach", fmt::format("processes of user {} in this pid namespace", geteuid())},
            {"single copy", std::move(single_copy)},
            {"pieces", fmt::format("{} bytes", size_t{config_.segment_size})},
            {"memory nodes", fmt::format("{}{}", memory_nodes(),
                                         config_.places_queues.value_or(false)
                                             ? ", queues on that of who polls them"
                                             : "")}};
}

// --- memory of this process

ucs_status_t SmDomain::register_memory(void* address, size_t length, PeerRights rights,
                                       MemoryHandle** handle) {
    LocalRegion* region = regions_.create();
    if (region == nullptr) return UCS_ERR_NO_MEMORY;
    if (rights != PeerRights::kNone) {
        auto start = reinterpret_cast<uintptr_t>(address);
        uintptr_t end = start + length;
        if (rights == PeerRights::kAll) {
            constexpr size_t kWord = sizeof(uint64_t);
            start = ucs::align_down(start, kWord);
            end = ucs::align_up(end, kWord);
        }
        Grant grant{start, end - start, 0, 0, 0, rights};
        auto segment = allocated_.upper_bound(start);
        if (segment != allocated_.begin()) {
            --segment;
            const uintptr_t offset = start - segment->first;
            const SharedSegment& found = *segment->second;
            if (offset < found.size() && grant.length <= found.size() - offset) {
                grant.descriptor = found.name().descriptor;
                grant.nonce = found.name().nonce;
                grant.offset = offset;
            }
        }
        region->key = keys_.add(grant);
    }
    *handle = region;
    return UCS_OK;
}

void SmDomain::deregister_memory(MemoryHandle* handle) {
    auto* const region = static_cast<LocalRegion*>(handle);
    // A child of fork() has a copy of all but the table, which is its parent's.
    if (Process::own_number() == self_.pid) keys_.remove(region->key);
    regions_.destroy(region);
}

void SmDomain::pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const {
    const KeyTable::Key& key = static_cast<const LocalRegion*>(handle)->key;
    PackedRegion region{PackedRegion::kMagic, key.slot, key.number, 0, 0, self_.pid,
                        self_.start_time};
    if (const SharedSegment* table = keys_.segment()) {
        region.table = table->name().nonce;
        region.table_descriptor = table->name().descriptor;
    }
    std::memcpy(packed.data(), &region, sizeof(region));
}

ucs_status_t SmDomain::allocate_memory(size_t length, void* hint, bool fixed, void** address) {
    std::unique_ptr<SharedSegment> segment;
    const ucs_status_t status = SharedSegment::create(length, hint, fixed, &segment);
    if (status != UCS_OK) return status;
    if (config_.asks_for_huge_pages) ask_for_huge_pages(segment->base(), segment->size());
    *address = segment->base();
    allocated_[reinterpret_cast<uintptr_t>(segment->base())] = std::move(segment);
    return UCS_OK;
}

void SmDomain::free_memory(void* address) {
    allocated_.erase(reinterpret_cast<uintptr_t>(address));
}

// --- memory of others

ucs_status_t SmDomain::attach(const SegmentName& name, std::shared_ptr<MappedMemory>* mapping) {
    auto made = std::make_shared<MappedMemory>();
    const ucs_status_t status = attach_segment(name, made.get());
    if (status == UCS_OK) *mapping = std::move(made);
    return status;
}

bool SmDomain::find_slot(const PackedRegion& packed, RemoteRegion::Source* source) {
    if (packed.slot >= KeyTable::kSlots || packed.table == 0) return false;
    std::byte* base = nullptr;
    size_t size = 0;
    const SharedSegment* own = keys_.segment();
    if (own != nullptr && own->name().nonce == packed.table) {
        base = own->base();
        size = own->size();
    } else if (packed.pid == self_.pid && !KeyTable::is_own(packed.table)) {
        return false;
    } else {
        std::shared_ptr<MappedMemory>& table = tables_[packed.table];
        if (table == nullptr &&
            attach({packed.table, packed.pid, packed.table_descriptor}, &table) != UCS_OK) {
            tables_.erase(packed.table);
            return false;
        }
        source->table = table;
        base = table->base();
        size = table->size();
        if (tables_.size() > most_tables_) drop_unused_tables();
    }
    const KeySlot* slots = KeyTable::slots(base, size);
    if (slots == nullptr) return false;
    source->slot = &slots[packed.slot];
    source->number = packed.number;
    source->index = packed.slot;
    source->board = KeyTable::board(base);
    return true;
}

void SmDomain::drop_unused_tables() {
    std::erase_if(tables_, [](const auto& entry) { return entry.second.use_count() == 1; });
    most_tables_ = std::max(kMostTables, 2 * tables_.size());
}

std::byte* SmDomain::map(const Grant& grant, uint32_t pid, std::shared_ptr<MappedMemory>* mapping) {
    std::weak_ptr<MappedMemory>& known = mapped_[grant.nonce];
    *mapping = known.lock();
    if (*mapping == nullptr) {
        if (attach({grant.nonce, pid, grant.descriptor}, mapping) != UCS_OK) {
            mapped_.erase(grant.nonce);
            return nullptr;
        }
        if (config_.asks_for_huge_pages) ask_for_huge_pages((*mapping)->base(), (*mapping)->size());
        known = *mapping;
    }
    const size_t size = (*mapping)->size();
    const bool fits = grant.offset <= size && grant.length <= size - grant.offset;
    return fits ? (*mapping)->base() + grant.offset : nullptr;
}

bool SmDomain::is_accessible(const PackedRegion& packed, uint64_t address) {
    if (!config_.single_copy) return false;
    const auto known = access_.find(packed.pid);
    if (known != access_.end() && known->second.process.start_time == packed.start_time) {
        return known->second.allowed;
    }
    const std::optional<Process> process = Process::find(packed.pid);
    if (!process || process->start_time != packed.start_time) return false;
    const bool allowed = may_access(packed.pid, address);
    if (!allowed) {
        ucs::log_debug("memory of process {} cannot be reached directly: {}", packed.pid,
                       std::strerror(errno));
    }
    access_[packed.pid] = {*process, allowed};
    return allowed;
}

ucs_status_t SmDomain::unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) {
    PackedRegion region;
    if (packed.size() != sizeof(region)) return UCS_ERR_INVALID_PARAM;
    std::memcpy(&region, packed.data(), sizeof(region));
    if (region.magic != PackedRegion::kMagic || region.pid == 0 ||
        region.pid > static_cast<uint32_t>(INT32_MAX)) {
        return UCS_ERR_INVALID_PARAM;
    }
    *key = kInvalidRemoteKey;
    RemoteRegion::Source source{};
    Grant grant;
    if (!find_slot(region, &source) || !read_grant(*source.slot, source.number, &grant))
        return UCS_OK;
    std::byte* local = nullptr;
    std::shared_ptr<MappedMemory> mapping;
    if (region.pid == self_.pid) {
        local = reinterpret_cast<std::byte*>(grant.address);
    } else if (grant.nonce != 0) {
        local = map(grant, region.pid, &mapping);
    }
    if (local == nullptr && !is_accessible(region, grant.address)) return UCS_OK;
    RemoteRegion* const made =
        remote_regions_.create(grant, std::move(source), Process{region.pid, region.start_time},
                               local, std::move(mapping));
    if (made == nullptr) return UCS_ERR_NO_MEMORY;
    *key = made->key();
    return UCS_OK;
}

void SmDomain::release_remote_key(RemoteKey key) {
    if (key == kInvalidRemoteKey) return;
    const bool was_mapped = RemoteRegion::from(key).is_mapped();
    remote_regions_.destroy(&RemoteRegion::from(key));
    if (!was_mapped) return;
    std::erase_if(mapped_, [](const auto& entry) { return entry.second.expired(); });
}

const MappedRegion* SmDomain::mapped(RemoteKey key) const {
    if (key == kInvalidRemoteKey || !RemoteRegion::from(key).is_mapped()) return nullptr;
    return &RemoteRegion::from(key).mapped();
}

void* SmDomain::remote_pointer(RemoteKey key, uint64_t address) const {
    if (key == kInvalidRemoteKey) return nullptr;
    const RemoteRegion& region = RemoteRegion::from(key);
    // A pointer cannot be held to less than all rights.
    return region.is_mapped() && region.allows(PeerRights::kAll, address, 0) ? region.local(address)
                                                                             : nullptr;
}

bool SmDomain::has_atomics(RemoteKey key) const {
    return key != kInvalidRemoteKey && RemoteRegion::from(key).is_mapped() &&
           RemoteRegion::from(key).rights() == PeerRights::kAll;
}

// --- interfaces

ucs_status_t SmDomain::open_interface(std::string_view transport, const InterfaceParams& params,
                                      std::unique_ptr<Interface>* interface) {
    Config config;
    const ucs_status_t status = load_config(params.config, &config);
    if (status != UCS_OK) return status;
    if (transport == "sm_fifo") return FifoInterface::open(config, params, keys_, interface);
    if (transport == "sm_ring") return RingInterface::open(config, params, interface);
    return UCS_ERR_UNSUPPORTED;
}

}  // namespace uct::sm

// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_domain.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <new>

#include "ucs/log/log.h"
#include "ucs/type/bits.h"
#include "uct/sm/fifo_interface.h"
#include "uct/sm/ring_interface.h"

namespace uct::sm {

namespace {

/** What Yama lets processes of one user do to each other; 0, as without Yama: anything. */
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
            {"pieces", fmt::format("{} bytes", size_t{config_.segment_size})}};
}

// --- memory of this process

ucs_status_t SmDomain::register_memory(void* address, size_t length, MemoryHandle** handle) {
    LocalRegion* region = regions_.create();
    if (region == nullptr) return UCS_ERR_NO_MEMORY;
    // Whole words: what atomics at its ends work on.
    constexpr size_t kWord = sizeof(uint64_t);
    const uintptr_t end = ucs::align_up(reinterpret_cast<uintptr_t>(address) + length, kWord);
    const uintptr_t start = ucs::align_down(reinterpret_cast<uintptr_t>(address), kWord);
    length = end - start;
    region->packed = {PackedRegion::kMagic, 0, 0, 0, start, length, self_.start_time, self_.pid};
    auto segment = allocated_.upper_bound(start);
    if (segment != allocated_.begin()) {
        --segment;
        const uintptr_t offset = start - segment->first;
        const SharedSegment& found = *segment->second;
        if (offset < found.size() && length <= found.size() - offset) {
            region->packed.descriptor = found.name().descriptor;
            region->packed.nonce = found.name().nonce;
            region->packed.offset = offset;
        }
    }
    *handle = region;
    return UCS_OK;
}

void SmDomain::deregister_memory(MemoryHandle* handle) {
    regions_.destroy(static_cast<LocalRegion*>(handle));
}

void SmDomain::pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const {
    std::memcpy(packed.data(), &static_cast<const LocalRegion*>(handle)->packed,
                sizeof(PackedRegion));
}

ucs_status_t SmDomain::allocate_memory(size_t length, void* hint, bool fixed, void** address) {
    std::unique_ptr<SharedSegment> segment;
    const ucs_status_t status = SharedSegment::create(length, hint, fixed, &segment);
    if (status != UCS_OK) return status;
    *address = segment->base();
    allocated_[reinterpret_cast<uintptr_t>(segment->base())] = std::move(segment);
    return UCS_OK;
}

void SmDomain::free_memory(void* address) {
    allocated_.erase(reinterpret_cast<uintptr_t>(address));
}

// --- memory of others

ucs_status_t SmDomain::map(const PackedRegion& packed, std::shared_ptr<Mapping>* mapping) {
    std::weak_ptr<Mapping>& known = mapped_[packed.nonce];
    *mapping = known.lock();
    if (*mapping == nullptr) {
        auto made = std::make_shared<Mapping>();
        const SegmentName name{packed.nonce, packed.pid, packed.descriptor};
        const ucs_status_t status = attach_segment(name, made.get());
        if (status != UCS_OK) {
            mapped_.erase(packed.nonce);
            return status;
        }
        known = made;
        *mapping = std::move(made);
    }
    const size_t size = (*mapping)->size();
    const bool fits = packed.offset <= size && packed.length <= size - packed.offset;
    return fits ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

bool SmDomain::is_accessible(const PackedRegion& packed) {
    if (!config_.single_copy) return false;
    const auto known = access_.find(packed.pid);
    if (known != access_.end() && known->second.process.start_time == packed.start_time) {
        return known->second.allowed;
    }
    const std::optional<Process> process = Process::find(packed.pid);
    if (!process || process->start_time != packed.start_time) return false;
    const bool allowed = may_access(packed.pid, packed.address);
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
    uint64_t end;
    if (region.magic != PackedRegion::kMagic || region.pid == 0 ||
        region.pid > static_cast<uint32_t>(INT32_MAX) ||
        __builtin_add_overflow(region.address, region.length, &end)) {
        return UCS_ERR_INVALID_PARAM;
    }
    std::byte* local = nullptr;
    std::shared_ptr<Mapping> mapping;
    *key = kInvalidRemoteKey;
    if (region.pid == self_.pid && region.start_time == self_.start_time) {
        local = reinterpret_cast<std::byte*>(region.address);
    } else if (region.nonce != 0 && map(region, &mapping) == UCS_OK) {
        local = mapping->base() + region.offset;
    } else if (!is_accessible(region)) {
        return UCS_OK;
    }
    auto* made = new (std::nothrow) RemoteRegion(region, local, std::move(mapping));
    if (made == nullptr) return UCS_ERR_NO_MEMORY;
    *key = made->key();
    return UCS_OK;
}

void SmDomain::release_remote_key(RemoteKey key) {
    if (key == kInvalidRemoteKey) return;
    const bool was_mapped = RemoteRegion::from(key).is_mapped();
    delete &RemoteRegion::from(key);
    if (!was_mapped) return;
    std::erase_if(mapped_, [](const auto& entry) { return entry.second.expired(); });
}

void* SmDomain::remote_pointer(RemoteKey key, uint64_t address) const {
    if (key == kInvalidRemoteKey) return nullptr;
    const RemoteRegion& region = RemoteRegion::from(key);
    return region.is_mapped() && region.covers(address, 0) ? region.local(address) : nullptr;
}

bool SmDomain::has_atomics(RemoteKey key) const {
    return key != kInvalidRemoteKey && RemoteRegion::from(key).is_mapped();
}

// --- interfaces

ucs_status_t SmDomain::open_interface(std::string_view transport, const InterfaceParams& params,
                                      std::unique_ptr<Interface>* interface) {
    Config config;
    const ucs_status_t status = load_config(params.config, &config);
    if (status != UCS_OK) return status;
    if (transport == "sm_fifo") return FifoInterface::open(config, params, interface);
    if (transport == "sm_ring") return RingInterface::open(config, params, interface);
    return UCS_ERR_UNSUPPORTED;
}

}  // namespace uct::sm

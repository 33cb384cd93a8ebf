// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/remote_memory.h"

#include <compare>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include "ucp/mem/domain_set.h"
#include "ucs/memory/memory_type.h"

namespace ucp {

namespace {

// Of the entry that serves those domains; no key if there is none. Under the domains' lock.
ucs_status_t unpack(const DomainSet& domains, const PackedKey& packed, DomainPair pair,
                    uct::RemoteKey* key) {
    *key = uct::kInvalidRemoteKey;
    if (pair.local >= domains.size()) return UCS_OK;
    const Domain& domain = domains[pair.local];
    const std::span<const std::byte> bytes = packed.find(pair.remote, domain.kind);
    if (bytes.empty()) return UCS_OK;
    const bool is_sound = bytes.size() == domain.memory->attributes().remote_key_length &&
                          domain.memory->unpack_remote_key(bytes, key) == UCS_OK;
    return is_sound ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

}  // namespace

ucs_status_t LaneKey::open(DomainSet& domains, const PackedKey& packed, DomainPair lane) {
    DomainLock lock(domains);
    pair = lane;
    return unpack(domains, packed, lane, &key);
}

void LaneKey::close(DomainSet& domains) {
    if (key == uct::kInvalidRemoteKey) return;
    DomainLock lock(domains);
    domains[pair.local].memory->release_remote_key(std::exchange(key, uct::kInvalidRemoteKey));
}

ucs_status_t RemoteMemory::open(DomainSet& domains, const PackedKey& packed,
                                std::span<const DomainPair> pairs) {
    close();
    domains_ = &domains;
    header_ = packed.header();
    const std::span<const std::byte> described = packed.find(kDeviceEntry, kDeviceKind);
    if (!described.empty()) {
        ucs::MemoryExport exported;
        if (described.size() != sizeof(exported)) return UCS_ERR_INVALID_ADDR;
        std::memcpy(&exported, described.data(), sizeof(exported));
        if (header_.memory_type == UCS_MEMORY_TYPE_HOST || exported.offset > exported.size ||
            header_.length > exported.size - exported.offset)
            return UCS_ERR_INVALID_ADDR;
        exported_.reset(new (std::nothrow) ucs::MemoryExport(exported));
    }
    const std::span<const std::byte> copies = packed.find(kDeviceEntry, kCopyKind);
    is_copied_on_request_ = copies.size() == sizeof(kCopyVersion) &&
                            copies.front() == static_cast<std::byte>(kCopyVersion);
    DomainLock lock(domains);
    for (const DomainPair& pair : pairs) {
        if (count_ == kMaxKeys) break;
        if (find(pair) != uct::kInvalidRemoteKey) continue;
        uct::RemoteKey key;
        if (unpack(domains, packed, pair, &key) != UCS_OK) {
            close();
            return UCS_ERR_INVALID_ADDR;
        }
        if (key == uct::kInvalidRemoteKey) continue;
        const Domain& domain = domains[pair.local];
        // Adapters have no atomics on memory of devices.
        const bool has_atomics =
            header_.memory_type == UCS_MEMORY_TYPE_HOST && domain.memory->has_atomics(key);
        entries_[count_++] = {pair, domain.memory.get(), key, has_atomics};
        if (mapped_ == nullptr && header_.memory_type == UCS_MEMORY_TYPE_HOST) {
            mapped_ = domain.memory->mapped(key);
            mapped_by_ = pair;
        }
    }
    return UCS_OK;
}

void RemoteMemory::close() {
    exported_.reset();
    is_exported_used_ = false;
    is_copied_on_request_ = false;
    mapped_ = nullptr;
    if (count_ == 0) return;
    DomainLock lock(*domains_);
    for (const Entry& entry : std::span(entries_).first(count_))
        entry.domain->release_remote_key(entry.key);
    count_ = 0;
}

ucs_status_t RemoteMemory::pointer(uint64_t address, void** pointer) const {
    if (domains_ == nullptr) return UCS_ERR_UNREACHABLE;
    if (header_.identity == 0) return UCS_ERR_UNREACHABLE;
    if (!covers(address, 0)) return UCS_ERR_INVALID_ADDR;
    if (header_.memory_type != UCS_MEMORY_TYPE_HOST) return UCS_ERR_UNREACHABLE;
    if (header_.identity == domains_->regions().identity()) {
        *pointer = reinterpret_cast<void*>(address);
        return UCS_OK;
    }
    for (const Entry& entry : std::span(entries_).first(count_)) {
        *pointer = entry.domain->remote_pointer(entry.key, address);
        if (*pointer != nullptr) return UCS_OK;
    }
    return UCS_ERR_UNREACHABLE;
}

int RemoteMemory::compare(const RemoteMemory& a, const RemoteMemory& b) {
    const auto order = [](const RemoteMemory& key) {
        return std::tuple(key.header_.identity, key.header_.region, key.header_.address,
                          key.header_.length);
    };
    const auto result = order(a) <=> order(b);
    return result < 0 ? -1 : (result > 0 ? 1 : 0);
}

}  // namespace ucp

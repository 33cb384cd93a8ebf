// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/packed_key.h"

#include <bit>
#include <cstring>
#include <optional>

#include "ucp/mem/domain_set.h"
#include "ucp/mem/memory.h"
#include "ucs/memory/detector.h"

namespace ucp {

uint32_t key_checksum(std::span<const std::byte> bytes) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    constexpr int kTurn = 29;
    uint64_t hash = bytes.size();
    for (; bytes.size() >= sizeof(uint64_t); bytes = bytes.subspan(sizeof(uint64_t))) {
        uint64_t word;
        std::memcpy(&word, bytes.data(), sizeof(word));
        hash = std::rotl(hash ^ word, kTurn) * kOdd;
    }
    for (const std::byte byte : bytes)
        hash = std::rotl(hash ^ static_cast<uint8_t>(byte), kTurn) * kOdd;
    return static_cast<uint32_t>(hash ^ hash >> 32);
}

namespace {

constexpr size_t kChecked = offsetof(PackedKeyHeader, version);

// function(domain index, domain, registration) for each domain that gives the memory a key.
template <typename Function>
void for_each_key(const Memory& memory, Function function) {
    if (memory.rights() == uct::PeerRights::kNone) return;
    std::span<Domain> domains = memory.domains().list();
    for (unsigned i = 0; i < domains.size() && i < kDeviceEntry; ++i) {
        const size_t length = domains[i].memory->attributes().remote_key_length;
        if (memory.registered(i) == nullptr || length == 0 || length > UINT8_MAX) continue;
        function(i, domains[i], length);
    }
}

std::byte* pack_entry(const uct::MemoryHandle* handle, unsigned index, const Domain& domain,
                      size_t length, std::byte* out) {
    const PackedKeyEntry entry{static_cast<uint8_t>(index), static_cast<uint8_t>(length),
                               domain.kind};
    std::memcpy(out, &entry, sizeof(entry));
    domain.memory->pack_remote_key(handle, {out + sizeof(entry), length});
    return out + sizeof(entry) + length;
}

// Nothing: the bytes are something else.
std::optional<unsigned> count_entries(std::span<const std::byte> bytes) {
    unsigned count = 0;
    for (; !bytes.empty(); ++count) {
        PackedKeyEntry entry;
        if (bytes.size() < sizeof(entry)) return {};
        std::memcpy(&entry, bytes.data(), sizeof(entry));
        if (entry.length == 0 || bytes.size() - sizeof(entry) < entry.length) return {};
        bytes = bytes.subspan(sizeof(entry) + entry.length);
    }
    return count;
}

bool describe(const Memory& memory, ucs::MemoryExport& description) {
    return memory.type() != UCS_MEMORY_TYPE_HOST && memory.rights() == uct::PeerRights::kAll &&
           ucs::MemoryDetectors::export_memory(memory.address(), memory.length(), nullptr,
                                               description);
}

// An entry that stands in the place of a domain's.
std::byte* pack_entry(uint32_t kind, std::span<const std::byte> bytes, std::byte* out) {
    const PackedKeyEntry entry{kDeviceEntry, static_cast<uint8_t>(bytes.size()), kind};
    std::memcpy(out, &entry, sizeof(entry));
    std::memcpy(out + sizeof(entry), bytes.data(), bytes.size());
    return out + sizeof(entry) + bytes.size();
}

// May devices of this process copy to or from it for a peer that asks?
bool is_copied_on_request(const Memory& memory) {
    return memory.region() != 0 && ucs::MemoryDetectors::readable_types() != 0;
}

}  // namespace

size_t packed_key_size(const Memory& memory) {
    size_t size = sizeof(PackedKeyHeader);
    for_each_key(
        memory, [&](unsigned, Domain&, size_t length) { size += sizeof(PackedKeyEntry) + length; });
    ucs::MemoryExport description;
    if (describe(memory, description)) size += sizeof(PackedKeyEntry) + sizeof(description);
    if (is_copied_on_request(memory)) size += sizeof(PackedKeyEntry) + sizeof(kCopyVersion);
    return size;
}

void pack_key(const Memory& memory, std::span<std::byte> bytes) {
    PackedKeyHeader header{};
    header.magic = PackedKeyHeader::kMagic;
    header.version = PackedKeyHeader::kVersion;
    header.memory_type = memory.type();
    header.size = static_cast<uint32_t>(bytes.size());
    header.identity = memory.domains().regions().identity();
    header.region = memory.region();
    header.address = reinterpret_cast<uintptr_t>(memory.address());
    header.length = memory.length();
    std::byte* out = bytes.data() + sizeof(header);
    for_each_key(memory, [&](unsigned index, Domain& domain, size_t length) {
        out = pack_entry(memory.registered(index), index, domain, length, out);
        ++header.entries;
    });
    ucs::MemoryExport description;
    if (describe(memory, description)) {
        static_assert(sizeof(description) <= UINT8_MAX);
        out = pack_entry(kDeviceKind, std::as_bytes(std::span(&description, 1)), out);
        ++header.entries;
    }
    if (is_copied_on_request(memory)) {
        (void)pack_entry(kCopyKind, std::as_bytes(std::span(&kCopyVersion, 1)), out);
        ++header.entries;
    }
    std::memcpy(bytes.data(), &header, sizeof(header));
    header.checksum = key_checksum(bytes.subspan(kChecked));
    std::memcpy(bytes.data(), &header, sizeof(header));
}

size_t packed_entries_size(const Memory& memory) {
    size_t size = 0;
    for_each_key(
        memory, [&](unsigned, Domain&, size_t length) { size += sizeof(PackedKeyEntry) + length; });
    return size <= kMaxPackedKey ? size : 0;
}

void pack_entries(const Memory& memory, std::span<std::byte> bytes) {
    std::byte* out = bytes.data();
    for_each_key(memory, [&](unsigned index, Domain& domain, size_t length) {
        out = pack_entry(memory.registered(index), index, domain, length, out);
    });
}

size_t packed_entry_size(const DomainSet& domains, const Registration& registration) {
    const size_t length = domains[registration.domain].memory->attributes().remote_key_length;
    if (registration.domain >= kDeviceEntry || length == 0 || length > UINT8_MAX) return 0;
    return sizeof(PackedKeyEntry) + length;
}

void pack_entry(const DomainSet& domains, const Registration& registration,
                std::span<std::byte> bytes) {
    (void)pack_entry(registration.handle, registration.domain, domains[registration.domain],
                     bytes.size() - sizeof(PackedKeyEntry), bytes.data());
}

ucs_status_t PackedKey::parse(const void* bytes, PackedKey* key) {
    if (bytes == nullptr) return UCS_ERR_INVALID_PARAM;
    static constexpr std::byte kZeros[kAnonymousKey]{};
    if (std::memcmp(bytes, kZeros, sizeof(kZeros)) == 0) {
        *key = PackedKey();
        return UCS_OK;
    }
    PackedKeyHeader header;
    std::memcpy(&header, bytes, sizeof(header));
    if (header.magic != PackedKeyHeader::kMagic || header.size > kMaxPackedKey)
        return UCS_ERR_INVALID_ADDR;
    return parse({static_cast<const std::byte*>(bytes), header.size}, key);
}

ucs_status_t PackedKey::parse(std::span<const std::byte> bytes, PackedKey* key) {
    PackedKeyHeader& header = key->header_;
    if (bytes.size() < sizeof(header) || bytes.size() > kMaxPackedKey) return UCS_ERR_INVALID_ADDR;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.magic != PackedKeyHeader::kMagic || header.version != PackedKeyHeader::kVersion ||
        header.size != bytes.size() || header.reserved != 0 ||
        header.memory_type >= UCS_MEMORY_TYPE_LAST ||
        header.checksum != key_checksum(bytes.subspan(kChecked)))
        return UCS_ERR_INVALID_ADDR;
    uint64_t end = 0;
    if (__builtin_add_overflow(header.address, header.length, &end)) return UCS_ERR_INVALID_ADDR;

    key->entries_ = bytes.subspan(sizeof(header));
    return count_entries(key->entries_) == header.entries ? UCS_OK : UCS_ERR_INVALID_ADDR;
}

ucs_status_t PackedKey::parse_entries(std::span<const std::byte> bytes, uint64_t address,
                                      uint64_t length, PackedKey* key) {
    uint64_t end = 0;
    if (bytes.empty() || bytes.size() > kMaxPackedKey || !count_entries(bytes) ||
        __builtin_add_overflow(address, length, &end))
        return UCS_ERR_INVALID_ADDR;
    key->header_ = {};
    key->header_.address = address;
    key->header_.length = length;
    key->entries_ = bytes;
    return UCS_OK;
}

std::span<const std::byte> PackedKey::find(unsigned domain, uint32_t kind) const {
    std::span<const std::byte> rest = entries_;
    while (rest.size() > sizeof(PackedKeyEntry)) {
        PackedKeyEntry entry;
        std::memcpy(&entry, rest.data(), sizeof(entry));
        rest = rest.subspan(sizeof(entry));
        // In shared memory the sender may have written another length since parse() looked.
        if (entry.length > rest.size()) return {};
        if (entry.domain == domain && entry.kind == kind) return rest.first(entry.length);
        rest = rest.subspan(entry.length);
    }
    return {};
}

}  // namespace ucp

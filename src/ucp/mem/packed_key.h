// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ucs/type/status.h"

namespace ucp {

class DomainSet;
class Memory;
struct Registration;

// A remote key as bytes: a header, then one entry for each domain that allows remote access.
#pragma pack(push, 1)
struct PackedKeyHeader {
    static constexpr uint32_t kMagic = 0x4b524c53;
    static constexpr uint8_t kVersion = 1;

    uint32_t magic;
    uint32_t checksum;  // over everything behind this field: the program carries the bytes around
    uint8_t version;
    uint8_t memory_type;
    uint8_t entries;
    uint8_t reserved;   // 0
    uint32_t size;      // bytes in all, this header included
    uint64_t identity;  // of the owner's AccessTable
    uint64_t region;    // the memory's name in it; 0: none (empty memory)
    uint64_t address;
    uint64_t length;
};

struct PackedKeyEntry {
    uint8_t domain;  // index in the owner's context, as in its worker addresses
    uint8_t length;  // bytes of key that follow
    uint32_t kind;   // hash of the name of the domain's component
};
#pragma pack(pop)

// The entry that describes memory of a device (ucs::MemoryExport), where peers may both read and
// write it: the driver knows no other rights. In place of a domain's.
inline constexpr uint8_t kDeviceEntry = UINT8_MAX;
inline constexpr uint32_t kDeviceKind = 0x76656464;
// The entry of one byte that says that the owner's devices copy between the memory and memory of a
// peer's device if the peer asks for it (CopyRequest, proto/rma/emulation.h), and in which version.
// In the same place, with a kind of its own; who does not know it asks for nothing.
inline constexpr uint32_t kCopyKind = 0x79706f63;
inline constexpr uint8_t kCopyVersion = 1;

inline constexpr size_t kMaxPackedKey = 16384;
// Bytes of a key to UCX without a memory domain: 8 of a map of domains, 1 of the memory's type.
inline constexpr size_t kAnonymousKey = 9;

// Of a key's bytes behind the field. Against accidents, not against intent; word by word, since
// a message whose sender is to write it takes a key.
uint32_t key_checksum(std::span<const std::byte> bytes);

// A remote key's bytes that have been checked: header and entries are consistent and in bounds.
//
// Bytes that a program hands over may also be an anonymous key: kAnonymousKey zeros. To UCX they
// are a key of host memory that no memory domain reaches; it then accesses the memory by messages
// that name an address alone, and Open MPI 4.1 hands over such keys for regions of dynamic windows.
// Here too the accesses are emulated, and the target holds them to what its program has published
// (AccessTable). Such a key never comes in a message.
class PackedKey {
  public:
    // Bytes that come without their length: it is read from the header, then checked as below;
    // or an anonymous key.
    static ucs_status_t parse(const void* bytes, PackedKey* key);
    // @return UCS_ERR_INVALID_ADDR unless the bytes are exactly one key
    static ucs_status_t parse(std::span<const std::byte> bytes, PackedKey* key);
    // A key's entries alone, as in an announcement, which says whose memory it is, and where.
    // @return UCS_ERR_INVALID_ADDR unless the bytes are exactly entries, one at least
    static ucs_status_t parse_entries(std::span<const std::byte> bytes, uint64_t address,
                                      uint64_t length, PackedKey* key);

    const PackedKeyHeader& header() const { return header_; }
    // The key of a domain of the owner; empty if there is none of that kind.
    std::span<const std::byte> find(unsigned domain, uint32_t kind) const;

  private:
    PackedKeyHeader header_{};
    std::span<const std::byte> entries_;
};

size_t packed_key_size(const Memory& memory);
// Write packed_key_size() bytes.
void pack_key(const Memory& memory, std::span<std::byte> bytes);
// The same of the domains' entries alone; 0: there are none, or more than a key has.
size_t packed_entries_size(const Memory& memory);
void pack_entries(const Memory& memory, std::span<std::byte> bytes);
// The same of a registration for a peer: one entry.
size_t packed_entry_size(const DomainSet& domains, const Registration& registration);
void pack_entry(const DomainSet& domains, const Registration& registration,
                std::span<std::byte> bytes);

}  // namespace ucp

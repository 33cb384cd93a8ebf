// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <memory>
#include <span>

#include "uct/api/memory_domain.h"
#include "uct/base/local_copy.h"
#include "uct/sm/key_table.h"
#include "uct/sm/process.h"
#include "uct/sm/segment.h"

namespace uct::sm {

// A key to memory of a process, as it travels: see KeyTable.
#pragma pack(push, 1)
struct PackedRegion {
    static constexpr uint32_t kMagic = 0x32656b73;

    uint32_t magic;
    uint32_t slot;  // KeyTable::kNoSlot: no access but by messages
    uint64_t number;
    uint64_t table;             // nonce of the table's segment
    uint32_t table_descriptor;  // of it
    uint32_t pid;
    uint64_t start_time;
};
#pragma pack(pop)

// Registered memory of this process.
struct LocalRegion final : MemoryHandle {
    KeyTable::Key key;
};

// Memory of a process of this host, as a remote key gives it: what a uct::RemoteKey points to.
//
// Mapped here, or reached through the kernel. Every access stays within the region and the rights,
// and none begins when the owner has withdrawn the key.
class RemoteRegion {
  public:
    // Where the key lies in its table, and what keeps that mapped.
    struct Source {
        const KeySlot* slot;
        uint64_t number;
        uint32_t index;  // of the slot
        JointCopyBoard* board;
        std::shared_ptr<MappedMemory> table;
    };

    RemoteRegion(const Grant& grant, Source source, const Process& owner, std::byte* local,
                 std::shared_ptr<MappedMemory> mapping)
        : granted_{.address = grant.address,
                   .length = grant.length,
                   .local = local,
                   .granted = &source.slot->number,
                   .number = source.number,
                   .rights = grant.rights},
          owner_(owner),
          source_(std::move(source)),
          mapping_(std::move(mapping)) {}

    static RemoteRegion& from(RemoteKey key) { return *reinterpret_cast<RemoteRegion*>(key); }
    RemoteKey key() { return reinterpret_cast<RemoteKey>(this); }

    // May it be accessed like this, now?
    bool allows(PeerRights wanted, uint64_t address, size_t length) const {
        return granted_.allows(wanted, address, length);
    }
    PeerRights rights() const { return granted_.rights; }
    bool is_mapped() const { return granted_.local != nullptr; }
    const MappedRegion& mapped() const { return granted_; }
    pid_t owner() const { return static_cast<pid_t>(owner_.pid); }
    // Where an address of the owner is here; for mapped memory.
    std::byte* local(uint64_t address) const { return granted_.at(address); }

    // Copy between pieces of this process and the region, one after the other from `address` on.
    // @return UCS_ERR_INVALID_ADDR: outside, beyond the rights, or the key is not good any more;
    // UCS_ERR_ENDPOINT_TIMEOUT: the owner has gone; UCS_ERR_IO_ERROR: the kernel refuses
    ucs_status_t write(std::span<const Iov> pieces, uint64_t address) const;
    ucs_status_t read(std::span<const Iov> pieces, uint64_t address) const;
    // Offer the owner a copy between the region and a piece of this process; see JointCopy.
    JointCopy offer(CopyDirection direction, const Iov& piece, uint64_t address) const;

  private:
    enum class Direction : uint8_t { kRead, kWrite };
    template <Direction kDirection>
    ucs_status_t copy(std::span<const Iov> pieces, uint64_t address) const;
    template <Direction kDirection>
    ucs_status_t through_kernel(const Iov& piece, uint64_t address) const;

    const MappedRegion granted_;
    const Process owner_;
    const Source source_;
    const std::shared_ptr<MappedMemory> mapping_;
};

// Copy many pieces, each between memory of this process and the region that its key names, with one
// call of the system for pieces of one process that follow each other.
class PieceCopier {
  public:
    static constexpr size_t kMostPieces = 1024;            // of a call of the system: IOV_MAX
    static constexpr size_t kMostBytes = 2 * 1024 * 1024;  // of one copy(), but one piece at least

    // Until something has been left, or a call of the system is due for the second time.
    // @param bytes  of the pieces that were copied
    // @return how many were copied, from the front, or the error of the first
    ssize_t copy(CopyDirection direction, std::span<const ChainPiece> pieces, size_t* bytes);

  private:
    ssize_t through_kernel(CopyDirection direction, std::span<const ChainPiece> pieces,
                           size_t* bytes);

    struct Vectors {
        std::array<iovec, kMostPieces> here, there;
    };
    std::unique_ptr<Vectors> vectors_;  // made when first needed
};

// May this process read and write memory of that one? Asks the kernel.
bool may_access(uint32_t pid, uint64_t address);

}  // namespace uct::sm

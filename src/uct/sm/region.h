// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>

#include "uct/api/memory_domain.h"
#include "uct/sm/process.h"
#include "uct/sm/segment.h"

namespace uct::sm {

/** A key to memory of a process, as it travels. */
#pragma pack(push, 1)
struct PackedRegion {
    static constexpr uint32_t kMagic = 0x79656b73;

    uint32_t magic;
    uint32_t descriptor;  //!< of the segment that holds the memory
    uint64_t nonce;       //!< of the segment; 0: in none
    uint64_t offset;      //!< in the segment
    uint64_t address;     //!< in the owner's address space
    uint64_t length;
    uint64_t start_time;
    uint32_t pid;
};
#pragma pack(pop)

/** Registered memory of this process. */
struct LocalRegion final : MemoryHandle {
    PackedRegion packed;
};

/**
 * Memory of a process of this host, as a remote key gives it: what a uct::RemoteKey points to.
 *
 * Mapped here, or reached through the kernel. Every access stays within the region.
 */
class RemoteRegion {
  public:
    RemoteRegion(const PackedRegion& packed, std::byte* local, std::shared_ptr<Mapping> mapping)
        : address_(packed.address),
          length_(packed.length),
          local_(local),
          pid_(static_cast<pid_t>(packed.pid)),
          mapping_(std::move(mapping)) {}

    static RemoteRegion& from(RemoteKey key) { return *reinterpret_cast<RemoteRegion*>(key); }
    RemoteKey key() { return reinterpret_cast<RemoteKey>(this); }

    bool covers(uint64_t address, size_t length) const {
        return address >= address_ && address - address_ <= length_ &&
               length <= length_ - (address - address_);
    }
    bool is_mapped() const { return local_ != nullptr; }
    /** Where an address of the owner is here; for mapped memory. */
    std::byte* local(uint64_t address) const { return local_ + (address - address_); }

    /**
     * Copy between pieces of this process and the region, one after the other from `address` on.
     * @return UCS_ERR_INVALID_ADDR: outside; UCS_ERR_ENDPOINT_TIMEOUT: the owner has gone;
     *         UCS_ERR_IO_ERROR: the kernel refuses
     */
    ucs_status_t write(std::span<const Iov> pieces, uint64_t address) const;
    ucs_status_t read(std::span<const Iov> pieces, uint64_t address) const;

  private:
    enum class Direction : uint8_t { kRead, kWrite };
    template <Direction kDirection>
    ucs_status_t copy(std::span<const Iov> pieces, uint64_t address) const;
    template <Direction kDirection>
    ucs_status_t through_kernel(const Iov& piece, uint64_t address) const;

    const uint64_t address_;
    const uint64_t length_;
    std::byte* const local_;
    const pid_t pid_;
    const std::shared_ptr<Mapping> mapping_;
};

/** May this process read and write memory of that one? Asks the kernel. */
bool may_access(uint32_t pid, uint64_t address);

}  // namespace uct::sm

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "ucp/mem/packed_key.h"
#include "ucs/memory/detector.h"
#include "uct/api/memory_domain.h"

namespace ucp {

class DomainSet;

// A domain of ours and the domain of the peer that it reaches, over some lane.
struct DomainPair {
    uint8_t local;
    uint8_t remote;
    friend bool operator==(DomainPair a, DomainPair b) {
        return std::bit_cast<uint16_t>(a) == std::bit_cast<uint16_t>(b);
    }
};

// The right to access memory of a peer by one lane, for the length of one operation. Plain data,
// which its owner closes.
struct LaneKey {
    // It stays invalid where the bytes serve no such lane.
    // @return UCS_ERR_INVALID_ADDR if the domain finds its part of the bytes malformed
    ucs_status_t open(DomainSet& domains, const PackedKey& packed, DomainPair lane);
    void close(DomainSet& domains);
    uct::RemoteKey find(DomainPair lane) const {
        return lane == pair ? key : uct::kInvalidRemoteKey;
    }

    uct::RemoteKey key = uct::kInvalidRemoteKey;
    DomainPair pair{};
};

// The right to access memory of a peer, for the lanes of one endpoint: what ucp_rkey_h points to.
//
// Holds one transport key for each domain pair of the endpoint that the peer's bytes serve. A lane
// for which find() gives kInvalidRemoteKey goes by emulation, which needs only the header.
class RemoteMemory {
  public:
    // Domain pairs of an endpoint, and so the most rails that it spreads transfers over.
    static constexpr size_t kMaxKeys = 8;

    RemoteMemory() = default;
    RemoteMemory(const RemoteMemory&) = delete;
    ~RemoteMemory() { close(); }

    // @return UCS_ERR_INVALID_ADDR if a domain finds its part of the bytes malformed
    ucs_status_t open(DomainSet& domains, const PackedKey& packed,
                      std::span<const DomainPair> pairs);
    void close();

    uct::RemoteKey find(DomainPair pair) const {
        for (const Entry& entry : std::span(entries_).first(count_)) {
            if (entry.pair == pair) return entry.key;
        }
        return uct::kInvalidRemoteKey;
    }

    // Any lane reaches it.
    bool has_keys() const { return count_ != 0; }

    // The same for atomics, which not all memory that a lane reaches allows.
    uct::RemoteKey find_for_atomics(DomainPair pair) const {
        for (const Entry& entry : std::span(entries_).first(count_)) {
            if (entry.pair == pair && entry.has_atomics) return entry.key;
        }
        return uct::kInvalidRemoteKey;
    }

    // Where it is mapped into this process, for those lanes; null: it is not, or is no host memory.
    // What is withdrawn by its owner shows there. Worked out when the key is opened.
    const uct::MappedRegion* mapped(DomainPair pair) const {
        return mapped_by_ == pair ? mapped_ : nullptr;
    }

    bool covers(uint64_t address, size_t length) const {
        return address >= header_.address && address - header_.address <= header_.length &&
               length <= header_.length - (address - header_.address);
    }
    const PackedKeyHeader& header() const { return header_; }
    // Memory of a device, for the devices of the owner's host; null: it is none, or not for them.
    const ucs::MemoryExport* exported() const { return exported_.get(); }
    // It is used so. @return true: for the first time
    bool use_exported() const { return !std::exchange(is_exported_used_, true); }

    bool is_exported_used() const { return is_exported_used_; }

    // The owner's devices copy between it and memory of a device here, if they are asked to.
    bool is_copied_on_request() const { return is_copied_on_request_; }

    // As ucp_rkey_ptr: memory of this very process, or mapped into it.
    ucs_status_t pointer(uint64_t address, void** pointer) const;
    // An order by what the keys give access to.
    static int compare(const RemoteMemory& a, const RemoteMemory& b);

  private:
    struct Entry {
        DomainPair pair;
        uct::MemoryDomain* domain;
        uct::RemoteKey key;
        bool has_atomics;
    };

    DomainSet* domains_ = nullptr;
    const uct::MappedRegion* mapped_ = nullptr;
    DomainPair mapped_by_{};
    alignas(uint64_t) PackedKeyHeader header_{};  // packed, and its numbers are referred to
    size_t count_ = 0;
    std::array<Entry, kMaxKeys> entries_;
    std::unique_ptr<ucs::MemoryExport> exported_;
    mutable bool is_exported_used_ = false;
    bool is_copied_on_request_ = false;
};

}  // namespace ucp

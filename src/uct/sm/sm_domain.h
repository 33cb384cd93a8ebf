// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <unordered_map>

#include "ucs/datastruct/memory_pool.h"
#include "uct/sm/config.h"
#include "uct/sm/region.h"

namespace uct::sm {

// The memory of a host. Registering costs nothing. Memory that the domain allocated lies in
// segments: peers map it and use it like their own. Other memory is reached through the kernel, if
// that lets one process at the other's memory; if not, its keys unpack to kInvalidRemoteKey. So do
// keys that are not good (KeyTable): their user asks the owner by messages, and is refused.
class SmDomain final : public MemoryDomain {
  public:
    explicit SmDomain(const Config& config);

    const MemoryDomainAttributes& attributes() const override { return attributes_; }
    std::vector<DeviceFact> describe() const override;
    ucs_status_t register_memory(void* address, size_t length, PeerRights rights,
                                 MemoryHandle** handle) override;
    void deregister_memory(MemoryHandle* handle) override;
    void pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const override;
    ucs_status_t unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) override;
    void release_remote_key(RemoteKey key) override;
    ucs_status_t allocate_memory(size_t length, void* hint, bool fixed, void** address) override;
    void free_memory(void* address) override;
    const MappedRegion* mapped(RemoteKey key) const override;
    void* remote_pointer(RemoteKey key, uint64_t address) const override;
    bool has_atomics(RemoteKey key) const override;
    ucs_status_t open_interface(std::string_view transport, const InterfaceParams& params,
                                std::unique_ptr<Interface>* interface) override;

  private:
    static constexpr size_t kMostTables = 256;  // unused ones go when there are more

    struct Access {
        Process process;
        bool allowed;
    };

    ucs_status_t attach(const SegmentName& name, std::shared_ptr<MappedMemory>* mapping);
    // The slot that a key names, in the table of this process or of another.
    bool find_slot(const PackedRegion& packed, RemoteRegion::Source* source);
    std::byte* map(const Grant& grant, uint32_t pid, std::shared_ptr<MappedMemory>* mapping);
    bool is_accessible(const PackedRegion& packed, uint64_t address);
    void drop_unused_tables();

    const Config config_;
    const Process self_ = Process::self();
    MemoryDomainAttributes attributes_;
    ucs::ObjectPool<LocalRegion> regions_{"sm regions"};
    ucs::ObjectPool<RemoteRegion> remote_regions_{"sm remote regions"};
    KeyTable keys_;
    std::map<uintptr_t, std::unique_ptr<SharedSegment>> allocated_;     // by address
    std::unordered_map<uint64_t, std::weak_ptr<MappedMemory>> mapped_;  // of others, by nonce
    std::unordered_map<uint32_t, Access> access_;  // to other processes, by number
    // Key tables of others, by nonce: kept for the next key of the same process.
    std::unordered_map<uint64_t, std::shared_ptr<MappedMemory>> tables_;
    size_t most_tables_ = kMostTables;
};

}  // namespace uct::sm

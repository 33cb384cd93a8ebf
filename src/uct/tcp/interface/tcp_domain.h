// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/memory_domain.h"
#include "uct/tcp/network/device.h"
#include "uct/tcp/queues/region_table.h"

namespace uct::tcp {

// A network interface as a memory domain: its registrations are what peers may reach.
class TcpDomain final : public MemoryDomain {
  public:
    explicit TcpDomain(const NetworkDevice& device);

    const MemoryDomainAttributes& attributes() const override { return attributes_; }
    std::vector<DeviceFact> describe() const override;
    ucs_status_t register_memory(void* address, size_t length, PeerRights rights,
                                 MemoryHandle** handle) override;
    void deregister_memory(MemoryHandle* handle) override {
        regions_.remove(static_cast<Region*>(handle));
    }
    void pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const override;
    ucs_status_t unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) override;
    ucs_status_t open_interface(std::string_view transport, const InterfaceParams& params,
                                std::unique_ptr<Interface>* interface) override;

  private:
    const NetworkDevice device_;
    MemoryDomainAttributes attributes_;
    RegionTable regions_;
};

}  // namespace uct::tcp

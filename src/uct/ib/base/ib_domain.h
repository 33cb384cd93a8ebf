// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucs/config/values.h"
#include "uct/api/memory_domain.h"
#include "uct/ib/base/device.h"

namespace uct::ib {

class MemoryRegion final : public MemoryHandle {
  public:
    explicit MemoryRegion(ibv_mr* mr) : mr_(mr) {}
    uint32_t local_key() const { return mr_->lkey; }
    uint32_t remote_key() const { return mr_->rkey; }

  private:
    MrPtr mr_;
};

class IbDomain;

// A transport over adapters, as a domain opens interfaces of it.
struct Transport {
    const TransportDeclaration& declaration;
    const ucs::config::Table<TransportConfig>& config;
    bool (*is_supported)(const Device& device);
    // @param source  where the transport's own settings are, besides those in `config`
    ucs_status_t (*open)(IbDomain& domain, const TransportConfig& config,
                         const ucs::config::Source& source, const InterfaceParams& params,
                         std::unique_ptr<Interface>* interface);
};

// A protection domain of an adapter; its registrations serve every transport of the port.
class IbDomain final : public MemoryDomain {
  public:
    // @param transports  those that it opens interfaces of where the device can do them
    static ucs_status_t open(std::string_view device, std::span<const Transport* const> transports,
                             std::unique_ptr<MemoryDomain>* domain);

    const MemoryDomainAttributes& attributes() const override { return attributes_; }
    std::vector<DeviceFact> describe() const override;
    ucs_status_t register_memory(void* address, size_t length, PeerRights rights,
                                 MemoryHandle** handle) override;
    ucs_status_t register_device_memory(void* address, size_t length, PeerRights rights,
                                        MemoryHandle** handle) override;
    void deregister_memory(MemoryHandle* handle) override;
    void pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const override;
    ucs_status_t unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) override;
    ucs_status_t open_interface(std::string_view transport, const InterfaceParams& params,
                                std::unique_ptr<Interface>* interface) override;

    Device& device() { return *device_; }
    ibv_pd* pd() const { return pd_.get(); }

  private:
    IbDomain(std::unique_ptr<Device> device, bool is_relaxed)
        : device_(std::move(device)), is_relaxed_(is_relaxed) {}
    void find_device_types(ucs::config::Ternary wanted);
    ibv_mr* register_dma_buf(void* address, size_t length, int access);

    std::unique_ptr<Device> device_;
    const bool is_relaxed_;  // writes to memory that allows it may pass each other
    DomainPtr pd_;
    MemoryDomainAttributes attributes_;
    bool has_dma_bufs_ = false;
    bool refuses_device_memory_ = false;        // it did once
    std::vector<const Transport*> transports_;  // that the device can do, best first
};

}  // namespace uct::ib

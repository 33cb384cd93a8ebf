// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "uct/api/mapped_region.h"
#include "uct/api/types.h"

namespace uct {

class Interface;
struct InterfaceParams;

// A registration of local memory with one memory domain. Transports derive their own.
class MemoryHandle {
  protected:
    ~MemoryHandle() = default;
};

struct MemoryDomainAttributes {
    bool can_register = false;
    bool can_allocate = false;     // allocate_memory() works
    bool needs_handle = true;      // zero-copy operations use registrations of the local memory
    size_t remote_key_length = 0;  // bytes of a packed key; 0: no remote access
    double register_overhead = 0;  // seconds per registration
    double register_per_byte = 0;  // seconds per byte registered; 0: no page is pinned
    // Bits of ucs_memory_type_t: memory of devices that register_device_memory() is likely to take.
    uint64_t device_types = 0;
    // Dedicated endpoints of all processes that the device has room for; SIZE_MAX: it is no device
    // that has to keep anything of them.
    size_t max_dedicated = SIZE_MAX;
};

// Something that people want to know of a device: {"link", "InfiniBand, 4x, 100 Gb/s"}.
struct DeviceFact {
    std::string name;
    std::string value;
};

// A device opened once per context: the scope of registrations, and what opens interfaces.
//
// Thread rule: all calls are serialised by the owner context.
class MemoryDomain {
  public:
    virtual ~MemoryDomain() = default;

    virtual const MemoryDomainAttributes& attributes() const = 0;

    // For `swiftlane info -d`.
    virtual std::vector<DeviceFact> describe() const { return {}; }

    // Make [address, address + length) usable in zero-copy operations of this process, and in
    // those of peers as far as `rights` allow: no byte outside, no access beyond them, and none
    // after deregister_memory(). With both rights the range grows to whole 8-byte words, since
    // atomics on narrower operands may work on the word around.
    // @return UCS_OK and the handle; UCS_ERR_IO_ERROR or UCS_ERR_NO_MEMORY if the device refuses
    virtual ucs_status_t register_memory(void* address, size_t length, PeerRights rights,
                                         MemoryHandle** handle) = 0;
    // The same of memory of a device (attributes().device_types). The range does not grow, and
    // peers have no atomics there.
    // @return also UCS_ERR_UNSUPPORTED: this device cannot reach that memory, as other memory of
    //         its kind perhaps
    virtual ucs_status_t register_device_memory(void* address, size_t length, PeerRights rights,
                                                MemoryHandle** handle) {
        return UCS_ERR_UNSUPPORTED;
    }
    virtual void deregister_memory(MemoryHandle* handle) = 0;

    // Write remote_key_length bytes that let a peer reach the registered memory; only for a
    // registration with rights.
    virtual void pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const = 0;

    // @return UCS_ERR_INVALID_PARAM if the bytes cannot be a key of this kind of domain
    virtual ucs_status_t unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) = 0;
    virtual void release_remote_key(RemoteKey key) {}

    // Memory that peers on this device reach better than memory of the program's own. It is
    // registered like any other.
    // @param hint   null, or where it should be; page-aligned
    // @param fixed  there and nowhere else, in place of what is mapped there
    virtual ucs_status_t allocate_memory(size_t length, void* hint, bool fixed, void** address) {
        return UCS_ERR_UNSUPPORTED;
    }
    virtual void free_memory(void* address) {}

    // The memory of the key, where it is mapped into this process; null: it is not. Lives as long
    // as the key.
    virtual const MappedRegion* mapped(RemoteKey key) const { return nullptr; }
    // Where remote memory can be used directly in this process; null: nowhere.
    virtual void* remote_pointer(RemoteKey key, uint64_t address) const { return nullptr; }
    // Do atomics of the domain's interfaces work on that memory?
    virtual bool has_atomics(RemoteKey key) const { return true; }

    // Open an interface of one of this device's transports.
    // @param transport  a name that the component listed for this device
    // @return UCS_ERR_UNSUPPORTED or the device's error, logged with its cause
    virtual ucs_status_t open_interface(std::string_view transport, const InterfaceParams& params,
                                        std::unique_ptr<Interface>* interface) = 0;
};

// A transport on a device that a component found on this machine.
struct Resource {
    std::string transport;
    std::string device;
    DeviceType device_type;
};

// A family of transports that share devices: "self", "ib", "sm", "tcp".
class Component {
  public:
    virtual ~Component() = default;

    virtual std::string_view name() const = 0;

    // All transports that it may offer, whatever this machine has.
    virtual std::span<const TransportDeclaration> transports() const { return {}; }

    // The transports that work here; empty without the hardware or the driver. Never fails.
    virtual std::span<const Resource> resources() = 0;

    virtual ucs_status_t open_domain(std::string_view device,
                                     std::unique_ptr<MemoryDomain>* domain) = 0;
};

}  // namespace uct

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ucs/memory/memory_type.h"
#include "ucs/type/bits.h"
#include "uct/api/memory_domain.h"

namespace ucp {

// A device opened by a context.
struct Domain {
    uct::Component* component;
    std::string device;
    std::unique_ptr<uct::MemoryDomain> memory;
    uint32_t kind;  // hash of the component's name: whose keys and handles a peer's can be

    // Can memory of that type be registered with it? Of a device's some may be refused.
    bool takes(ucs_memory_type_t type) const {
        const uct::MemoryDomainAttributes& attributes = memory->attributes();
        return attributes.can_register &&
               (type == UCS_MEMORY_TYPE_HOST || (attributes.device_types & UCS_BIT(type)) != 0);
    }
    // Memory of a type that it takes. As uct::MemoryDomain::register_memory().
    ucs_status_t register_memory(void* address, size_t length, ucs_memory_type_t type,
                                 uct::PeerRights rights, uct::MemoryHandle** handle) const {
        return type == UCS_MEMORY_TYPE_HOST
                   ? memory->register_memory(address, length, rights, handle)
                   : memory->register_device_memory(address, length, rights, handle);
    }
};

}  // namespace ucp

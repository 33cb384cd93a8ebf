// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "uct/api/memory_domain.h"

namespace ucp {

// A device opened by a context.
struct Domain {
    uct::Component* component;
    std::string device;
    std::unique_ptr<uct::MemoryDomain> memory;
    uint32_t kind;  // hash of the component's name: whose keys and handles a peer's can be
};

}  // namespace ucp

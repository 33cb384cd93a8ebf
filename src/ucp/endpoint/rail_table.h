// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ucp/endpoint/endpoint.h"
#include "ucp/mem/remote_memory.h"
#include "uct/api/interface.h"

namespace ucp {

// A further way to a peer, beside the scalable lane and of its kind, for bulk.
struct Rail {
    unsigned interface;  // place in the InterfaceSet
    int dedicated;       // the dedicated interface that both ends have on these devices, or -1
    DomainPair domains;  // for registrations and remote keys
    float bandwidth;     // bytes per second, of the peer's end
    std::vector<std::byte> remote_device;
    std::vector<std::byte> remote_interface;

    // For Interface::create_endpoint().
    uct::RemoteAddress address() const { return {remote_device, remote_interface, {}}; }
};

// The rails to each peer beside the scalable lane of its endpoints, best first.
class RailTable {
  public:
    bool has(uint64_t uuid) const { return rails_.contains(uuid); }
    void set(uint64_t uuid, std::vector<Rail> rails) { rails_[uuid] = std::move(rails); }
    void erase(uint64_t uuid) { rails_.erase(uuid); }

    // Empty if the scalable lane is the only one. Valid until the next progress.
    std::span<const Rail> rails(uint64_t uuid) const {
        const auto found = rails_.find(uuid);
        return found == rails_.end() ? std::span<const Rail>() : found->second;
    }

  private:
    std::unordered_map<uint64_t, std::vector<Rail>> rails_;  // by the peer's uuid
};

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rndv/direct.h"

#include <sched.h>

#include <algorithm>

#include "ucs/log/log.h"

namespace ucp {

namespace {

ucs::MemoryDetector* device_of(uint32_t type) {
    return type < UCS_MEMORY_TYPE_LAST
               ? ucs::MemoryDetectors::of_type(static_cast<ucs_memory_type_t>(type))
               : nullptr;
}

}  // namespace

bool DirectPath::suits(Endpoint& endpoint, const Buffer& buffer) {
    if (buffer.device_bytes().size() < kLeast) return false;
    const uct::DeviceType type = endpoint.one_sided_lane().attributes.device_type;
    return type == uct::DeviceType::kSharedMemory || type == uct::DeviceType::kSelf;
}

bool DirectPath::describe(Endpoint& endpoint, const Buffer& buffer,
                          ucs::MemoryExport* description) {
    const std::span<std::byte> bytes = buffer.device_bytes();
    if (!ucs::MemoryDetectors::export_memory(bytes.data(), bytes.size(), *description))
        return false;
    if (description->has_handle == 0) return true;
    const uint64_t buffer_number = description->buffer;
    Described& described = described_[buffer_number];
    described.type = description->type;
    described.process = description->process;
    described.base = description->base;
    const uint64_t peer = endpoint.remote_uuid();
    if (std::ranges::find(described.peers, peer) == described.peers.end())
        described.peers.push_back(peer);
    return true;
}

void DirectPath::tell_freed(ucs::Time now) {
    if (now < next_look_) return;
    next_look_ = ucs::deadline(now, kInterval);
    std::erase_if(described_, [this](const auto& entry) {
        const auto& [buffer, described] = entry;
        ucs::MemoryDetector* const device = device_of(described.type);
        if (device != nullptr && !device->is_freed(buffer, described.base)) return false;
        const MemoryFreed freed{described.type, described.process, buffer};
        for (const uint64_t uuid : described.peers) {
            Endpoint* const peer = endpoints_.find(uuid);
            if (peer != nullptr)
                peer->send_control(AmId::kMemoryFreed, std::as_bytes(std::span(&freed, 1)));
        }
        return true;
    });
}

bool DirectPath::start(Request& receive, const ucs::MemoryExport& from, void* to, size_t length) {
    ucs::MemoryDetector* const device = device_of(from.type);
    ucs::AsyncCopy* copy = nullptr;
    if (device == nullptr || device->fetch(from, to, length, &copy) != UCS_OK) return false;
    copies_.push_back({&receive, copy});
    work_.notify();
    return true;
}

void DirectPath::wait() {
    for (const Copy& copy : copies_) {
        while (copy.copy->test() == UCS_INPROGRESS) sched_yield();
    }
    copies_.clear();
}

void DirectPath::forget(const MemoryFreed& freed) {
    ucs::MemoryDetector* const device = device_of(freed.type);
    if (device != nullptr) device->forget(freed.process, freed.buffer);
}

}  // namespace ucp

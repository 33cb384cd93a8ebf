// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rndv/direct.h"

#include <sched.h>

#include <algorithm>
#include <bit>

#include "ucs/log/log.h"

namespace ucp {

namespace {

ucs::MemoryDetector* device_of(uint32_t type) {
    return type < UCS_MEMORY_TYPE_LAST
               ? ucs::MemoryDetectors::of_type(static_cast<ucs_memory_type_t>(type))
               : nullptr;
}

}  // namespace

bool DirectPath::is_near(Endpoint& endpoint, const Buffer& buffer) {
    if (buffer.device_bytes().empty()) return false;
    const uct::DeviceType type = endpoint.one_sided_lane().attributes.device_type;
    return type == uct::DeviceType::kSharedMemory || type == uct::DeviceType::kSelf;
}

DirectPath::Peer& DirectPath::Described::peer(uint64_t uuid) {
    const auto known = std::ranges::find(peers, uuid, &Peer::uuid);
    return known != peers.end() ? *known : peers.emplace_back(Peer{uuid});
}

DirectPath::Described& DirectPath::note(const ucs::MemoryExport& description) {
    Described& described = described_[description.buffer];
    described.type = description.type;
    described.has_handle = description.has_handle != 0;
    described.process = description.process;
    described.base = description.base;
    return described;
}

bool DirectPath::pays(Endpoint& endpoint, const Buffer& buffer) {
    const std::span<std::byte> bytes = buffer.device_bytes();
    if (bytes.size() >= kLeast) return true;
    ucs::MemoryExport description;
    if (!ucs::MemoryDetectors::export_memory(bytes.data(), bytes.size(), description)) return false;
    Peer& peer = note(description).peer(endpoint.remote_uuid());
    return peer.is_direct || std::has_single_bit(++peer.short_messages);
}

bool DirectPath::describe(Endpoint& endpoint, const Buffer& buffer,
                          ucs::MemoryExport* description) {
    const std::span<std::byte> bytes = buffer.device_bytes();
    if (!ucs::MemoryDetectors::export_memory(bytes.data(), bytes.size(), *description))
        return false;
    (void)note(*description).peer(endpoint.remote_uuid());
    return true;
}

void DirectPath::answered(uint64_t allocation, uint64_t peer, bool is_direct) {
    const auto described = described_.find(allocation);
    if (described != described_.end()) described->second.peer(peer).is_direct = is_direct;
}

void DirectPath::tell_freed(ucs::Time now) {
    if (now < next_look_) return;
    next_look_ = ucs::deadline(now, kInterval);
    std::erase_if(described_, [this](const auto& entry) {
        const auto& [buffer, described] = entry;
        ucs::MemoryDetector* const device = device_of(described.type);
        if (device != nullptr && !device->is_freed(buffer, described.base)) return false;
        const MemoryFreed freed{described.type, described.process, buffer};
        if (!described.has_handle) return true;
        for (const Peer& peer : described.peers) {
            Endpoint* const endpoint = endpoints_.find(peer.uuid);
            if (endpoint != nullptr)
                endpoint->send_control(AmId::kMemoryFreed, std::as_bytes(std::span(&freed, 1)));
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

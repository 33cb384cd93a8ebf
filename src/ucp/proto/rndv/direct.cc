// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rndv/direct.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <new>

#include "ucs/log/log.h"

namespace ucp {

namespace {

ucs::MemoryDetector* device_of(uint32_t type) {
    return type < UCS_MEMORY_TYPE_LAST
               ? ucs::MemoryDetectors::of_type(static_cast<ucs_memory_type_t>(type))
               : nullptr;
}

// Whose memory is described, and whose that is which is copied from it or to it.
ucs::MemoryDetector* device_of(const ucs::MemoryExport& described, const ucs::MemoryInfo* known) {
    const bool is_its = known != nullptr && known->owner != nullptr &&
                        known->type == static_cast<ucs_memory_type_t>(described.type);
    return is_its ? known->owner : device_of(described.type);
}

}  // namespace

DirectPath::Peer& DirectPath::Described::peer(uint64_t uuid) {
    const auto known = std::ranges::find(peers, uuid, &Peer::uuid);
    return known != peers.end() ? *known : peers.emplace_back(Peer{uuid});
}

DirectPath::Described* DirectPath::find(uint64_t allocation) {
    if (last_described_ == nullptr || last_described_->first != allocation) {
        const auto described = described_.find(allocation);
        if (described == described_.end()) return nullptr;
        last_described_ = &*described;
    }
    return &last_described_->second;
}

DirectPath::Described& DirectPath::note(const ucs::MemoryExport& description) {
    const uint64_t allocation = description.buffer;  // which may lie anywhere in a message
    Described* const known = find(allocation);
    Described& described = known != nullptr ? *known : described_[allocation];
    described.type = description.type;
    described.has_handle = description.has_handle != 0;
    described.process = description.process;
    described.base = description.base;
    described.size = description.size;
    return described;
}

bool DirectPath::is_mapped(Endpoint& endpoint, const Buffer& buffer) {
    const ucs::MemoryInfo* const known = buffer.found();
    Described* described = known == nullptr ? nullptr : find(known->allocation);
    if (described == nullptr) {
        const std::span<std::byte> bytes = buffer.device_bytes();
        ucs::MemoryExport description;
        if (!ucs::MemoryDetectors::export_memory(bytes.data(), bytes.size(), known, description))
            return false;
        described = &note(description);
    }
    Peer& peer = described->peer(endpoint.remote_uuid());
    return peer.is_direct || std::has_single_bit(++peer.short_messages);
}

bool DirectPath::describe(Endpoint& endpoint, std::span<const std::byte> bytes,
                          const ucs::MemoryInfo* known, ucs::MemoryExport* description) {
    if (!ucs::MemoryDetectors::export_memory(bytes.data(), bytes.size(), known, *description))
        return false;
    (void)note(*description).peer(endpoint.remote_uuid());
    return true;
}

bool DirectPath::refer(const Endpoint& endpoint, std::span<const std::byte> bytes,
                       const ucs::MemoryInfo* known, DescribedBefore* where) {
    Described* const described = known == nullptr ? nullptr : find(known->allocation);
    if (described == nullptr || !described->peer(endpoint.remote_uuid()).is_direct) return false;
    const uint64_t offset = reinterpret_cast<uintptr_t>(bytes.data()) - described->base;
    if (offset > described->size || bytes.size() > described->size - offset) return false;
    *where = {known->allocation, offset};
    return true;
}

bool DirectPath::describe_in_request(Endpoint& endpoint, std::span<const std::byte> bytes,
                                     const ucs::MemoryInfo* known, ucs::MemoryExport* description) {
    if (!ucs::MemoryDetectors::export_memory(bytes.data(), bytes.size(), known, *description) ||
        description->has_handle == 0)
        return false;
    Peer& peer = note(*description).peer(endpoint.remote_uuid());
    return !peer.is_refused || std::has_single_bit(++peer.requests);
}

void DirectPath::request_answered(uint64_t allocation, uint64_t peer, bool is_refused) {
    Described* const described = find(allocation);
    if (described == nullptr) return;
    Peer& known = described->peer(peer);
    if (!is_refused || !known.is_refused) known.requests = 0;
    known.is_refused = is_refused;
}

void DirectPath::answered(uint64_t allocation, uint64_t peer, bool is_direct) {
    Described* const described = find(allocation);
    if (described != nullptr) described->peer(peer).is_direct = is_direct;
}

void DirectPath::tell_freed(ucs::Time now) {
    if (now < next_look_) return;
    next_look_ = ucs::deadline(now, kInterval);
    last_described_ = nullptr;
    std::erase_if(described_, [this](const auto& entry) {
        const auto& [buffer, described] = entry;
        ucs::MemoryDetector* const device = device_of(described.type);
        if (device != nullptr && !device->is_freed(buffer, described.base)) return false;
        if (!described.has_handle) return true;
        for (const Peer& peer : described.peers) {
            Endpoint* const endpoint = endpoints_.find(peer.uuid);
            if (endpoint == nullptr) continue;
            const MemoryNews freed{endpoint->local_uuid(), described.type,
                                   described.process,      buffer,
                                   described.base,         MemoryNews::kFreed};
            endpoint->send_control(AmId::kMemoryNews, std::as_bytes(std::span(&freed, 1)));
        }
        return true;
    });
}

void DirectPath::remember(uint64_t sender, const ucs::MemoryExport& description) {
    if (description.has_handle == 0) return;
    last_heard_ = nullptr;
    if (heard_.size() == kMostHeardOf) heard_.clear();
    try {
        ucs::MemoryExport& heard = heard_[{sender, description.buffer}];
        heard = description;
        heard.offset = 0;
    } catch (const std::bad_alloc&) {
        ucs::log_debug("no memory to remember what worker {:016x} has described", sender);
    }
}

const ucs::MemoryExport* DirectPath::recall(uint64_t sender, uint64_t buffer) {
    const HeardOf which{sender, buffer};
    if (last_heard_ == nullptr || last_heard_->first != which) {
        const auto heard = heard_.find(which);
        if (heard == heard_.end()) return nullptr;
        last_heard_ = &*heard;
    }
    return &last_heard_->second;
}

bool DirectPath::copy(Request& request, const ucs::DevicePiece& piece, const ucs::MemoryInfo* known,
                      bool is_store) {
    ucs::MemoryDetector* const device = device_of(*piece.there, known);
    ucs::AsyncCopy* copy = nullptr;
    make_room();
    if (device == nullptr || (is_store ? device->store(piece, known, &copy)
                                       : device->fetch(piece, known, &copy)) != UCS_OK)
        return false;
    add(request, copy);
    return true;
}

size_t DirectPath::transfer(Request& request, std::span<const ucs::DevicePiece> pieces,
                            bool is_store) {
    ucs::MemoryDetector* const device = device_of(pieces.front().there->type);
    ucs::AsyncCopy* copy = nullptr;
    size_t begun = 0;
    make_room();
    if (device != nullptr && device->transfer(pieces, is_store, &begun, &copy) == UCS_OK)
        add(request, copy);
    return begun;
}

void DirectPath::tell_in_use(Endpoint& endpoint, const ucs::MemoryExport& description) {
    const MemoryNews news{endpoint.local_uuid(), description.type, description.process,
                          description.buffer,    description.base, MemoryNews::kInUse};
    endpoint.send_control_greeted(AmId::kMemoryNews, std::as_bytes(std::span(&news, 1)));
}

void DirectPath::abort(const Endpoint& endpoint, ucs_status_t status) {
    for (;;) {
        const auto copy = std::ranges::find(copies_, &endpoint,
                                            [](const Copy& one) { return one.request->endpoint; });
        if (copy == copies_.end()) return;
        Request& request = *copy->request;
        wait_for(request);
        request.complete(status);
    }
}

void DirectPath::wait_for(Request& request) {
    std::erase_if(copies_, [&](const Copy& copy) {
        if (copy.request != &request) return false;
        while (copy.copy->test() == UCS_INPROGRESS) sched_yield();
        return true;
    });
}

void DirectPath::wait() {
    for (const Copy& copy : copies_) {
        while (copy.copy->test() == UCS_INPROGRESS) sched_yield();
    }
    copies_.clear();
}

void DirectPath::hear(const MemoryNews& news) {
    ucs::MemoryDetector* const device = device_of(news.type);
    if (device == nullptr) return;
    if (news.event == MemoryNews::kFreed) return device->forget(news.process, news.buffer);
    const uint64_t buffer = news.buffer;  // news is packed: nothing refers to its members
    // What peers say of memory that does not exist is not remembered.
    if (device->is_freed(news.buffer, news.base)) return;
    Described& described = described_[buffer];
    described.type = news.type;
    described.has_handle = true;
    described.process = news.process;
    described.base = news.base;
    (void)described.peer(news.from);
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "common/mock_internal.h"

namespace uct::mock {

namespace {

template <typename T>
uint64_t apply(AtomicOp op, void* target, uint64_t operand, uint64_t compare) {
    T old;
    std::memcpy(&old, target, sizeof(old));
    T value = old;
    const T argument = static_cast<T>(operand);
    switch (op) {
        case AtomicOp::kAdd:
            value = static_cast<T>(old + argument);
            break;
        case AtomicOp::kAnd:
            value = old & argument;
            break;
        case AtomicOp::kOr:
            value = old | argument;
            break;
        case AtomicOp::kXor:
            value = old ^ argument;
            break;
        case AtomicOp::kSwap:
            value = argument;
            break;
        case AtomicOp::kCompareSwap:
            if (old == static_cast<T>(compare)) value = argument;
            break;
    }
    std::memcpy(target, &value, sizeof(value));
    return old;
}

}  // namespace

void Packet::forget_sender() {
    source = nullptr;
    completion = nullptr;
    unpack = nullptr;
    result = nullptr;
    destination.clear();
}

void Packet::release() {
    if (keeper != nullptr) --keeper->receive_used;
    fabric->recycle(this);
}

FabricState::FabricState(Config initial) : config(std::move(initial)), generator(config.seed) {}

FabricState::~FabricState() {
    while (!heap_.empty()) {
        for (Packet* packet : heap_.top().channel->packets) delete packet;
        heap_.pop();
    }
    for (Packet* packet : pool_) delete packet;
}

Packet* FabricState::acquire() {
    if (pool_.empty()) {
        auto* packet = new Packet;
        packet->fabric = this;
        return packet;
    }
    Packet* packet = pool_.back();
    pool_.pop_back();
    packet->status = UCS_OK;
    packet->keeper = nullptr;
    packet->stranded = false;
    packet->data.clear();
    return packet;
}

void FabricState::recycle(Packet* packet) {
    packet->forget_sender();
    pool_.push_back(packet);
}

bool FabricState::reachable(uint64_t worker_a, uint64_t worker_b) const {
    return !dead.contains(worker_a) && !dead.contains(worker_b) &&
           !cuts.contains(std::minmax(worker_a, worker_b));
}

void FabricState::schedule(std::shared_ptr<Channel> channel, uint64_t due) {
    heap_.push({due, order_++, std::move(channel)});
}

void FabricState::send(const std::shared_ptr<Channel>& channel, Packet* packet) {
    uint64_t due = now() + 1 + random(2 * channel->usual_delay + 1);
    if (chance(config.stall_probability)) due += config.stall_delay;
    due = std::max(due, channel->last_due);
    channel->last_due = packet->due = due;
    channel->packets.push_back(packet);
    ++busy;
    if (channel->packets.size() == 1) schedule(channel, due);
}

void FabricState::advance() {
    while (!heap_.empty() && heap_.top().due <= now()) {
        std::shared_ptr<Channel> channel = heap_.top().channel;
        heap_.pop();
        Packet* packet = channel->packets.front();
        if (!arrive(*channel, packet)) {
            schedule(std::move(channel), now() + 1);
            continue;
        }
        channel->packets.pop_front();
        if (!channel->packets.empty()) {
            const uint64_t due = std::max(channel->packets.front()->due, now());
            schedule(std::move(channel), due);
        }
    }
}

// The head of a channel takes effect. @return false if it must wait in its place
bool FabricState::arrive(Channel& channel, Packet* packet) {
    const auto device = devices.find(channel.device);
    if (device != devices.end() && device->second == Fabric::Device::kSilent) return false;
    if (channel.acknowledgements) {
        come_back(packet);
        return true;
    }

    const auto found = interfaces.find(channel.target_interface);
    MockInterface* target = found == interfaces.end() ? nullptr : found->second;
    if (target != nullptr && observer) {
        observer({channel.kind, channel.source_worker, target->params.worker_id,
                  packet->type == PacketType::kAm ? packet->am_id : -1,
                  packet->type == PacketType::kGet ? packet->length : packet->data.size(),
                  channel.device, packet_events++});
    }
    if (dead.contains(channel.source_worker)) {
        come_back(packet);
        return true;
    }

    ucs_status_t status = UCS_ERR_ENDPOINT_TIMEOUT;
    // The observer may have seen to it.
    const auto state = devices.find(channel.device);
    const bool is_refusing = state != devices.end() && state->second == Fabric::Device::kRefusing;
    const bool is_broken = state != devices.end() && !is_refusing;
    if (target != nullptr && !is_broken &&
        reachable(channel.source_worker, target->params.worker_id)) {
        const bool is_access = packet->type == PacketType::kPut || packet->type == PacketType::kGet;
        status = is_refusing && is_access ? UCS_ERR_REJECTED : execute(channel, packet, target);
        if (status == UCS_ERR_NO_RESOURCE) return false;
    }
    --busy;
    if (packet->source == nullptr) {
        recycle(packet);
    } else {
        packet->status = status;
        send(packet->source->acknowledgements(), packet);
    }
    return true;
}

// An acknowledgement reaches its sender, if there still is one.
void FabricState::come_back(Packet* packet) {
    if (packet->source == nullptr) {
        --busy;
        recycle(packet);
    } else if (dead.contains(packet->source->interface().params.worker_id)) {
        --busy;
        packet->stranded = true;
    } else {
        packet->source->interface().completions.push_back(packet);
    }
}

void FabricState::kill(uint64_t worker_id) {
    dead.insert(worker_id);
    for (auto& [id, interface] : interfaces) {
        if (interface->params.worker_id != worker_id) continue;
        busy -= interface->inbox.size() + interface->completions.size();
        for (Packet* packet : interface->inbox) recycle(packet);
        for (Packet* packet : interface->completions) packet->stranded = true;
        interface->inbox.clear();
        interface->completions.clear();
    }
}

ucs_status_t FabricState::execute(const Channel& channel, Packet* packet, MockInterface* target) {
    const auto cut = severed.find({target->id, channel.source_interface});
    if (cut != severed.end() && channel.source_endpoint < cut->second) {
        ++counters[static_cast<size_t>(channel.kind)].cut_off;
        return UCS_ERR_CONNECTION_RESET;
    }
    if (channel.kind == Kind::kDedicated) {
        const auto found = dedicated.find(packet->target_endpoint);
        if (found == dedicated.end()) return UCS_ERR_ENDPOINT_TIMEOUT;
        if (!found->second->connected()) {
            ++counters[static_cast<size_t>(Kind::kDedicated)].early;
            return UCS_ERR_NO_RESOURCE;
        }
    }
    if (packet->type == PacketType::kCheck) return UCS_OK;
    if (packet->type != PacketType::kAm) return access(packet);

    if (target->receive_used >= config.receive_buffers) return UCS_ERR_NO_RESOURCE;
    ++target->receive_used;
    Packet* received = acquire();
    received->am_id = packet->am_id;
    received->target_endpoint = packet->target_endpoint;
    received->keeper = target;
    received->data.swap(packet->data);
    target->inbox.push_back(received);
    ++busy;
    return UCS_OK;
}

ucs_status_t FabricState::access(Packet* packet) {
    const size_t length = packet->type == PacketType::kPut   ? packet->data.size()
                          : packet->type == PacketType::kGet ? packet->length
                                                             : packet->size;
    const auto found = regions.find(static_cast<uint32_t>(packet->key));
    if (found == regions.end()) return UCS_ERR_REJECTED;
    const Region& region = found->second;
    const PeerRights wanted = packet->type == PacketType::kPut   ? PeerRights::kWrite
                              : packet->type == PacketType::kGet ? PeerRights::kRead
                                                                 : PeerRights::kAll;
    if (!allows(region.rights, wanted)) return UCS_ERR_REJECTED;
    const uint64_t offset = packet->remote_address - region.address;
    if (packet->remote_address < region.address || offset > region.length ||
        length > region.length - offset) {
        return UCS_ERR_REJECTED;
    }
    auto* memory = reinterpret_cast<std::byte*>(packet->remote_address);
    switch (packet->type) {
        case PacketType::kPut:
            std::copy(packet->data.begin(), packet->data.end(), memory);
            break;
        case PacketType::kGet:
            packet->data.assign(memory, memory + length);
            break;
        default: {
            if (packet->remote_address % packet->size != 0) return UCS_ERR_IO_ERROR;
            const uint64_t old =
                packet->size == 8
                    ? apply<uint64_t>(packet->atomic_op, memory, packet->operand, packet->compare)
                    : apply<uint32_t>(packet->atomic_op, memory, packet->operand, packet->compare);
            packet->data.resize(packet->size);
            std::memcpy(packet->data.data(), &old, packet->size);
        }
    }
    return UCS_OK;
}

Fabric::Fabric(Config config) : state_(std::make_unique<FabricState>(std::move(config))) {
    state_->component = make_component(*state_);
}

Fabric::~Fabric() = default;

Component& Fabric::component() {
    return *state_->component;
}
void Fabric::kill(uint64_t worker_id) {
    state_->kill(worker_id);
}
void Fabric::set_device(unsigned device, Device state) {
    if (state == Device::kWell) {
        state_->devices.erase(device);
    } else {
        state_->devices[device] = state;
    }
}
void Fabric::set_link(unsigned device, bool is_up) {
    if (is_up) {
        state_->without_link.erase(device);
    } else {
        state_->without_link.insert(device);
    }
}
void Fabric::cut(uint64_t worker_a, uint64_t worker_b) {
    state_->cuts.insert(std::minmax(worker_a, worker_b));
}
void Fabric::observe(std::function<void(const PacketEvent&)> observer) {
    state_->observer = std::move(observer);
}
bool Fabric::idle() const {
    return state_->busy == 0;
}
uint64_t Fabric::next_arrival() const {
    return state_->heap_.empty() ? UINT64_MAX : state_->heap_.top().due;
}
const Counters& Fabric::counters(Kind kind) const {
    return state_->counters[static_cast<size_t>(kind)];
}
Config& Fabric::config() {
    return state_->config;
}

size_t Fabric::dedicated_endpoints(uint64_t worker_id) const {
    return static_cast<size_t>(std::ranges::count_if(state_->dedicated, [&](const auto& entry) {
        return entry.second->interface().params.worker_id == worker_id;
    }));
}

}  // namespace uct::mock

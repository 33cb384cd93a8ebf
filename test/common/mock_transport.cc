// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "common/mock_internal.h"

namespace uct::mock {

namespace {

std::string device_name(const Config& config, unsigned number) {
    return config.are_ports ? "mock0:" + std::to_string(number + 1)
                            : "mock" + std::to_string(number);
}

}  // namespace

MockInterface::MockInterface(FabricState& state, Kind which, unsigned number,
                             const InterfaceParams& given)
    : fabric(state), kind(which), device(number), id(state.next_interface++), params(given) {
    const Config& config = state.config;
    const bool scalable = which == Kind::kScalable;
    attributes_.transport = scalable ? "mock_dc" : "mock_rc";
    attributes_.device = device_name(config, number);
    attributes_.reach = scalable ? Reach::kInterface : Reach::kEndpoint;
    attributes_.device_type = config.device_type;
    attributes_.capabilities = config.capabilities;
    attributes_.atomic32_ops = config.atomic32_ops;
    attributes_.atomic64_ops = config.atomic64_ops;
    attributes_.am = config.am;
    attributes_.put = config.put;
    attributes_.get = config.get;
    attributes_.device_address_length = kDeviceAddressLength;
    attributes_.interface_address_length = scalable ? kInterfaceAddressLength : 0;
    attributes_.endpoint_address_length = scalable ? 0 : kEndpointAddressLength;
    attributes_.latency = {config.latency, scalable ? 60e-9 : 1e-9};
    attributes_.bandwidth = config.bandwidth;
    attributes_.overhead = 75e-9;
    attributes_.max_endpoints = scalable ? SIZE_MAX : config.max_dedicated;
    fabric.interfaces.emplace(id, this);
}

MockInterface::~MockInterface() {
    fabric.interfaces.erase(id);
    for (Packet* packet : inbox) {
        --fabric.busy;
        ++counters().lost;
        fabric.recycle(packet);
    }
}

uint32_t MockInterface::parse(std::span<const std::byte> address, size_t length) {
    if (address.size() != length) return 0;
    uint32_t words[2];
    std::memcpy(words, address.data(), sizeof(words));
    return words[0] == kAddressMark ? words[1] : 0;
}

ucs_status_t MockInterface::get_device_address(std::span<std::byte> address) const {
    if (address.size() < kDeviceAddressLength) return UCS_ERR_BUFFER_TOO_SMALL;
    const uint32_t words[] = {kAddressMark, static_cast<uint32_t>(fabric.config.seed) | 1};
    std::memcpy(address.data(), words, sizeof(words));
    return UCS_OK;
}

ucs_status_t MockInterface::get_interface_address(std::span<std::byte> address) const {
    if (kind != Kind::kScalable) return UCS_ERR_UNSUPPORTED;
    if (address.size() < kInterfaceAddressLength) return UCS_ERR_BUFFER_TOO_SMALL;
    const uint32_t words[] = {kAddressMark, id};
    std::memcpy(address.data(), words, sizeof(words));
    return UCS_OK;
}

bool MockInterface::is_reachable(const RemoteAddress& remote) const {
    if (parse(remote.device, kDeviceAddressLength) !=
        (static_cast<uint32_t>(fabric.config.seed) | 1)) {
        return false;
    }
    return kind == Kind::kDedicated || parse(remote.interface, kInterfaceAddressLength) != 0;
}

ucs_status_t MockInterface::create_endpoint(const RemoteAddress& remote,
                                            std::unique_ptr<Endpoint>* endpoint) {
    if (kind == Kind::kDedicated && endpoints.size() >= fabric.config.max_dedicated) {
        return UCS_ERR_NO_RESOURCE;
    }
    if (kind == Kind::kScalable && !is_reachable(remote)) return UCS_ERR_UNREACHABLE;
    auto created = std::make_unique<MockEndpoint>(*this, fabric.next_endpoint++);
    if (kind == Kind::kScalable) {
        created->set_target(parse(remote.interface, kInterfaceAddressLength));
    } else {
        fabric.dedicated.emplace(created->id(), created.get());
    }
    endpoints.push_back(created.get());
    ++counters().endpoints;
    ++counters().made;
    counters().peak_endpoints = std::max<uint64_t>(counters().peak_endpoints, endpoints.size());
    *endpoint = std::move(created);
    return UCS_OK;
}

void MockInterface::removed(MockEndpoint* endpoint) {
    if (kind == Kind::kDedicated) fabric.dedicated.erase(endpoint->id());
    std::erase(endpoints, endpoint);
    std::erase(waiting, endpoint);
    --counters().endpoints;
}

void MockInterface::deliver(Packet* packet) {
    ReceiveGate* gate = nullptr;
    if (kind == Kind::kDedicated) {
        const auto found = fabric.dedicated.find(packet->target_endpoint);
        if (found == fabric.dedicated.end()) {
            ++counters().lost;
            packet->release();
            return;
        }
        gate = found->second->gate();
    }
    ++counters().delivered;
    if (gate != nullptr) {
        ++counters().held;
        gate->hold(packet->am_id, packet->data.data(), packet->data.size());
        packet->release();
        return;
    }
    // A handler that throws keeps nothing.
    struct Release {
        void operator()(Packet* done) const { done->release(); }
    };
    std::unique_ptr<Packet, Release> held(packet);
    const AmTable::Entry& entry = params.am_table.entries[packet->am_id];
    if (entry.handler(entry.arg, packet->data.data(), packet->data.size(), packet) ==
        UCS_INPROGRESS) {
        static_cast<void>(held.release());
    }
}

unsigned MockInterface::progress() {
    if (!fabric.config.time) ++fabric.steps;
    fabric.advance();
    if (fabric.dead.contains(params.worker_id)) return 0;

    unsigned count = 0;
    for (; count < fabric.config.poll_batch && !completions.empty(); ++count) {
        Packet* packet = completions.front();
        completions.pop_front();
        --fabric.busy;
        packet->source->acknowledged(packet);
    }
    for (; count < fabric.config.poll_batch && !inbox.empty(); ++count) {
        Packet* packet = inbox.front();
        inbox.pop_front();
        --fabric.busy;
        deliver(packet);
    }
    ++turn;
    for (size_t left = waiting.size(); left > 0 && !waiting.empty(); --left) {
        MockEndpoint* endpoint = waiting.front();
        endpoint->serve_pending();
        // While it is served it stays listed, so that it is listed once.
        if (!waiting.empty() && waiting.front() == endpoint) {
            waiting.pop_front();
            endpoint->listed = endpoint->has_pending();
            if (endpoint->listed) waiting.push_back(endpoint);
        }
    }
    return count;
}

ucs_status_t MockInterface::flush(Completion* completion) {
    struct Gather final : Completion {
        Completion* user;
    };
    auto* gather = new Gather;
    gather->user = completion;
    gather->count = 1;
    gather->callback = [](Completion* self) {
        auto* done = static_cast<Gather*>(self);
        if (done->user != nullptr) done->user->complete(done->status);
        delete done;
    };
    for (MockEndpoint* endpoint : endpoints) {
        ++gather->count;
        if (endpoint->flush(gather) != UCS_INPROGRESS) --gather->count;
    }
    if (gather->count == 1) {
        delete gather;
        return UCS_OK;
    }
    --gather->count;
    return UCS_INPROGRESS;
}

ucs_status_t MockInterface::cut_off(const RemoteAddress& remote, uint64_t) {
    const uint32_t source = parse(remote.interface, kInterfaceAddressLength);
    if (source == 0) return UCS_ERR_INVALID_ADDR;
    fabric.severed[{id, source}] = fabric.next_endpoint;
    return UCS_OK;
}

class MockDomain final : public MemoryDomain {
  public:
    MockDomain(FabricState& fabric, unsigned device) : fabric_(fabric), device_(device) {
        attributes_.can_register = true;
        attributes_.remote_key_length = 8;
        attributes_.register_overhead = 1e-6;
        attributes_.register_per_byte = 60e-12;
        attributes_.max_dedicated = fabric.config.room_for_dedicated;
    }

    const MemoryDomainAttributes& attributes() const override { return attributes_; }

    ucs_status_t register_memory(void* address, size_t length, PeerRights rights,
                                 MemoryHandle** handle) override {
        const uint32_t key = fabric_.next_key++;
        Region& region = fabric_.regions[key];
        auto start = reinterpret_cast<uintptr_t>(address);
        uintptr_t end = start + length;
        if (rights == PeerRights::kAll) {
            start &= ~uintptr_t{7};
            end = (end + 7) & ~uintptr_t{7};
        }
        region.address = start;
        region.length = end - start;
        region.rights = rights;
        region.key = key;
        *handle = &region;
        return UCS_OK;
    }
    void deregister_memory(MemoryHandle* handle) override {
        fabric_.regions.erase(static_cast<Region*>(handle)->key);
    }
    void pack_remote_key(const MemoryHandle* handle, std::span<std::byte> packed) const override {
        const uint32_t words[] = {kAddressMark, static_cast<const Region*>(handle)->key};
        std::memcpy(packed.data(), words, sizeof(words));
    }
    ucs_status_t unpack_remote_key(std::span<const std::byte> packed, RemoteKey* key) override {
        const uint32_t number = MockInterface::parse(packed, 8);
        if (number == 0) return UCS_ERR_INVALID_PARAM;
        *key = number;
        return UCS_OK;
    }
    ucs_status_t open_interface(std::string_view transport, const InterfaceParams& params,
                                std::unique_ptr<Interface>* interface) override {
        if (transport != "mock_dc" && transport != "mock_rc") return UCS_ERR_UNSUPPORTED;
        const Kind kind = transport == "mock_dc" ? Kind::kScalable : Kind::kDedicated;
        *interface = std::make_unique<MockInterface>(fabric_, kind, device_, params);
        return UCS_OK;
    }

  private:
    FabricState& fabric_;
    const unsigned device_;
    MemoryDomainAttributes attributes_;
};

class MockComponent final : public Component {
  public:
    explicit MockComponent(FabricState& fabric) : fabric_(fabric) {
        for (unsigned device = 0; device < fabric.config.devices; ++device) {
            const std::string name = device_name(fabric.config, device);
            if (fabric.config.scalable)
                resources_.push_back({"mock_dc", name, DeviceType::kNetwork});
            if (fabric.config.dedicated)
                resources_.push_back({"mock_rc", name, DeviceType::kNetwork});
        }
    }
    std::string_view name() const override { return "mock"; }
    std::span<const Resource> resources() override { return resources_; }
    ucs_status_t open_domain(std::string_view device,
                             std::unique_ptr<MemoryDomain>* domain) override {
        unsigned number = 0;
        while (device != device_name(fabric_.config, number)) {
            if (++number == fabric_.config.devices) return UCS_ERR_NO_DEVICE;
        }
        *domain = std::make_unique<MockDomain>(fabric_, number);
        return UCS_OK;
    }

  private:
    FabricState& fabric_;
    std::vector<Resource> resources_;
};

std::unique_ptr<Component> make_component(FabricState& fabric) {
    return std::make_unique<MockComponent>(fabric);
}

}  // namespace uct::mock

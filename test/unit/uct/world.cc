// SPDX-License-Identifier: BSD-3-Clause
#include "unit/uct/world.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "uct/api/module.h"
#include "uct/ib/component.h"
#include "uct/self/self_interface.h"
#include "uct/sm/component.h"
#include "uct/tcp/component.h"
#include "uct/tcp/interface/tcp_interface.h"
#include "unit/uct/adapter.h"

namespace uct::test {

namespace {

std::vector<TransportCase> make_transports() {
    std::vector<TransportCase> cases = {
        {"self", "self"},
        {"sm_fifo", "sm_fifo"},
        {"sm_fifo_small", "sm_fifo", {{"SM_FIFO_SIZE", "8"}, {"SM_SEG_SIZE", "1024"}}},
        {"sm_ring", "sm_ring"},
        {"sm_ring_small", "sm_ring", {{"SM_RING_SIZE", "16"}, {"SM_SEG_SIZE", "1024"}}},
        {"tcp", "tcp"},
        {"tcp_one", "tcp", {{"TCP_CONNECTIONS", "1"}}},
        {"tcp_small",
         "tcp",
         {{"TCP_CONNECTIONS", "4"},
          {"TCP_STRIPE_SIZE", "4k"},
          {"TCP_RX_SEG_SIZE", "16k"},
          {"TCP_SNDBUF", "4k"},
          {"TCP_RCVBUF", "4k"}}},
        {"tcp_failover", "tcp", {{"TCP_FAILOVER", "y"}}},
        {"tcp_encrypted", "tcp", {{"TCP_ENCRYPT", "y"}, {"TCP_JOB_KEY", "a common word"}}},
        {"tcp_encrypted_small",
         "tcp",
         {{"TCP_ENCRYPT", "y"},
          {"TCP_JOB_KEY", "a common word"},
          {"TCP_CONNECTIONS", "4"},
          {"TCP_STRIPE_SIZE", "4k"},
          {"TCP_FAILOVER", "y"},
          {"TCP_RX_SEG_SIZE", "16k"},
          {"TCP_SNDBUF", "4k"},
          {"TCP_RCVBUF", "4k"}}},
        {"rc_mlx5", "rc_mlx5"},
        {"rc_verbs", "rc_verbs"},
        {"ud_verbs", "ud_verbs"},
        {"dc_mlx5_dcs", "dc_mlx5", {{"DC_MLX5_TX_POLICY", "dcs"}}},
        {"dc_mlx5_dcs_quota", "dc_mlx5", {{"DC_MLX5_TX_POLICY", "dcs_quota"}}},
        {"dc_mlx5_rand", "dc_mlx5", {{"DC_MLX5_TX_POLICY", "rand"}}},
        {"mock_dc", "mock_dc"},
        {"mock_rc", "mock_rc"},
    };
    std::erase_if(cases,
                  [](const TransportCase& which) { return !Adapter::serves(which.transport); });
    return cases;
}

// Nothing is known of mock transports.
TransportDeclaration declaration_of(std::string_view transport) {
    for (const TransportDeclaration& known : known_transports()) {
        if (known.name == transport) return known;
    }
    return {};
}

bool can(std::string_view transport, uint32_t capability) {
    return (declaration_of(transport).capabilities & capability) != 0;
}

}  // namespace

const std::vector<TransportCase>& all_transports() {
    static const std::vector<TransportCase> cases = make_transports();
    return cases;
}

std::vector<TransportCase> transports_where(bool (*condition)(const std::string&)) {
    std::vector<TransportCase> chosen;
    std::ranges::copy_if(all_transports(), std::back_inserter(chosen),
                         [&](const TransportCase& which) { return condition(which.transport); });
    return chosen;
}

bool reaches_others(const std::string& transport) {
    return transport != "self";
}
bool is_shared_memory(const std::string& transport) {
    return declaration_of(transport).device_type == DeviceType::kSharedMemory;
}
bool is_network(const std::string& transport) {
    return reaches_others(transport) && !is_shared_memory(transport);
}
bool can_wake(const std::string& transport) {
    return is_soft_adapter(transport) || is_shared_memory(transport) || is_tcp(transport);
}
bool is_dedicated(const std::string& transport) {
    return transport == "mock_rc" || declaration_of(transport).reach == Reach::kEndpoint;
}
bool is_datagram(const std::string& transport) {
    return transport == "ud_verbs";
}
bool has_remote_memory(const std::string& transport) {
    return transport.starts_with("mock") || can(transport, kPutZcopy);
}
bool grants_credits(const std::string& transport) {
    return is_soft_adapter(transport) && !is_datagram(transport);
}
bool has_chains(const std::string& transport) {
    return can(transport, kPutChain);
}
bool is_dc(const std::string& transport) {
    return transport == "dc_mlx5";
}
bool is_tcp(const std::string& transport) {
    return transport == "tcp";
}
bool is_soft_adapter(const std::string& transport) {
    return is_network(transport) && !is_tcp(transport) && !transport.starts_with("mock");
}

Peer::Peer(Component& component, const TransportCase& which, uint64_t worker_id, ucs::Clock& clock,
           const Settings& extra, unsigned port)
    : random_(worker_id + 1) {
    for (const Settings* settings : {&which.settings, &extra}) {
        for (const auto& [name, value] : *settings) {
            std::string error;
            EXPECT_EQ(source_.modify(name, value, error), UCS_OK) << error;
        }
    }
    for (unsigned id = 0; id < kMaxAmId; ++id) {
        args_[id] = {this, static_cast<uint8_t>(id)};
        table_.entries[id] = {&Peer::handle, &args_[id]};
        table_.is_enough = &is_enough;
    }
    for (const Resource& resource : component.resources()) {
        if (resource.transport != which.transport) continue;
        if (is_tcp(which.transport) && resource.device != "lo") continue;
        if (which.ports > 1 && !resource.device.ends_with(":" + std::to_string(port))) continue;
        EXPECT_EQ(component.open_domain(resource.device, &domain), UCS_OK);
        break;
    }
    if (!domain) {
        ADD_FAILURE() << which.transport << " is not there";
        return;
    }
    const InterfaceParams params{
        clock,
        random_,
        table_,
        [](void* arg, Endpoint* endpoint, ucs_status_t status) {
            static_cast<Peer*>(arg)->failures.push_back({endpoint, status});
        },
        this,
        worker_id,
        16,
        &source_};
    EXPECT_EQ(domain->open_interface(which.transport, params, &interface), UCS_OK);
}

Peer::~Peer() {
    release();
}

void Peer::release() {
    for (auto& [descriptor, message] : std::exchange(kept, {})) descriptor->release();
    for (const RemoteKey key : std::exchange(keys, {})) domain->release_remote_key(key);
}

ucs_status_t Peer::handle(void* arg, void* data, size_t length, ReceiveDescriptor* descriptor) {
    auto& [peer, id] = *static_cast<HandlerArg*>(arg);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 8, 0u);
    Message message{id, {static_cast<const char*>(data), length}};
    peer->received.push_back(message);
    if (peer->on_message) peer->on_message(message);
    if (!peer->keep || descriptor == nullptr) return UCS_OK;
    peer->kept.emplace_back(descriptor, message);
    return UCS_INPROGRESS;
}

std::vector<std::byte> Peer::device_address() const {
    std::vector<std::byte> bytes(interface->attributes().device_address_length);
    EXPECT_EQ(interface->get_device_address(bytes), UCS_OK);
    return bytes;
}

std::vector<std::byte> Peer::interface_address() const {
    std::vector<std::byte> bytes(interface->attributes().interface_address_length);
    if (!bytes.empty()) {
        EXPECT_EQ(interface->get_interface_address(bytes), UCS_OK);
    }
    return bytes;
}

Buffer::Buffer(Peer& owner, size_t size, char fill, PeerRights rights)
    : owner_(owner), bytes_(size, fill) {
    EXPECT_EQ(owner.domain->register_memory(bytes_.data(), size, rights, &handle_), UCS_OK);
}

Buffer::Buffer(Peer& owner, const Buffer& other, size_t offset, size_t size, PeerRights rights)
    : owner_(owner) {
    EXPECT_EQ(owner.domain->register_memory(const_cast<char*>(other.bytes_.data()) + offset, size,
                                            rights, &handle_),
              UCS_OK);
}

Buffer::~Buffer() {
    deregister();
}

void Buffer::deregister() {
    if (handle_ != nullptr) owner_.domain->deregister_memory(std::exchange(handle_, nullptr));
}

RemoteKey Buffer::key_for(Peer& user) {
    std::vector<std::byte> packed(owner_.domain->attributes().remote_key_length);
    owner_.domain->pack_remote_key(handle_, packed);
    RemoteKey key = kInvalidRemoteKey;
    EXPECT_EQ(user.domain->unpack_remote_key(packed, &key), UCS_OK);
    user.keys.push_back(key);
    return key;
}

World::World(const TransportCase& which, unsigned peers, const Settings& extra) : which_(which) {
    Component* component = &self::component();
    if (which.transport.starts_with("mock")) {
        mock_ = std::make_unique<mock::Fabric>();
        component = &mock_->component();
    } else if (is_shared_memory(which.transport)) {
        component = &sm::component();
    } else if (is_tcp(which.transport)) {
        component = &tcp::component();
    } else if (is_network(which.transport)) {
        adapter_ = Adapter::open(peers / which.ports, which.ports);
        component = &ib::component();
    }
    // A worker reaches only itself over self: all peers are the same one.
    const unsigned count = reaches_others(which.transport) ? peers : 1;
    for (unsigned i = 0; i < count; ++i) {
        if (adapter_) adapter_->select(i / which.ports);
        const Settings settings = adapter_ ? adapter_->patient(extra) : extra;
        peers_.push_back(std::make_unique<Peer>(*component, which, i + 100, clock, settings,
                                                i % which.ports + 1));
    }
}

World::~World() {
    endpoints_.clear();
    for (auto& peer : peers_) {
        peer->release();
        peer->interface.reset();
        peer->domain.reset();
    }
}

RemoteAddress World::address_of(size_t index) {
    Peer& peer = *peers_[index % peers_.size()];
    const auto& device = scratch_.emplace_back(peer.device_address());
    const auto& interface = scratch_.emplace_back(peer.interface_address());
    return {device, interface, {}};
}

Endpoint& World::create(size_t from, const RemoteAddress& remote, size_t to) {
    std::unique_ptr<Endpoint> endpoint;
    EXPECT_EQ(peers_[from]->interface->create_endpoint(remote, &endpoint), UCS_OK);
    endpoints_.push_back({std::move(endpoint), from, to, nullptr});
    return *endpoints_.back().endpoint;
}

Endpoint& World::connect(size_t from, size_t to) {
    from %= peers_.size();
    to %= peers_.size();
    if (!is_dedicated(which_.transport)) return create(from, address_of(to), to);
    Endpoint& near = create(from, {}, to);
    Endpoint& far = create(to, {}, from);
    const size_t length = peers_[from]->interface->attributes().endpoint_address_length;
    auto& near_address = scratch_.emplace_back(length);
    auto& far_address = scratch_.emplace_back(length);
    EXPECT_EQ(near.get_address(near_address), UCS_OK);
    EXPECT_EQ(far.get_address(far_address), UCS_OK);
    RemoteAddress to_far = address_of(to), to_near = address_of(from);
    to_far.endpoint = far_address;
    to_near.endpoint = near_address;
    EXPECT_EQ(near.connect(to_far), UCS_OK);
    EXPECT_EQ(far.connect(to_near), UCS_OK);
    endpoints_[endpoints_.size() - 2].other = &far;
    endpoints_.back().other = &near;
    return near;
}

Endpoint& World::other_end(Endpoint& endpoint) {
    for (Owned& owned : endpoints_) {
        if (owned.endpoint.get() == &endpoint) return *owned.other;
    }
    ADD_FAILURE();
    return endpoint;
}

void World::destroy(Endpoint& endpoint) {
    std::erase_if(endpoints_, [&](Owned& owned) { return owned.endpoint.get() == &endpoint; });
}

void World::progress() {
    unsigned events = 0;
    ++calls_;
    for (auto& peer : peers_) {
        if (!peer->runs) continue;
        // As workers do.
        const bool is_due = peer->interface->interest().is_met() || calls_ % 16 == 0;
        if (is_due) events += peer->interface->progress();
    }
    if (adapter_) {
        adapter_->step(clock, events);
        if (events == 0) pass_idle_time();
    } else {
        clock.advance(ucs::Duration(1000));
    }
}

// Where nothing is under way, time goes on to what waits for it.
void World::pass_idle_time() {
    if (!adapter_->is_idle()) return;
    ucs::Time next = ucs::kNever;
    for (const auto& peer : peers_) {
        if (peer->runs) next = std::min(next, peer->interface->next_deadline());
    }
    if (next != ucs::kNever) clock.advance_to(next);
}

void World::kill(size_t index) {
    Peer& peer = *peers_[index];
    peer.runs = false;
    if (mock_) mock_->kill(index + 100);
    if (is_tcp(which_.transport)) {
        // As the kernel closes the sockets of a process that dies.
        std::erase_if(endpoints_, [&](Owned& owned) { return owned.from == index; });
        static_cast<tcp::TcpInterface&>(*peer.interface).abandon();
        peer.interface.reset();
    }
    if (adapter_ && !adapter_->kill(static_cast<unsigned>(index))) {
        // Its queue pairs go: nobody answers its peers any more.
        std::erase_if(endpoints_, [&](Owned& owned) { return owned.from == index; });
        peer.interface.reset();
    }
}

int World::patience() const {
    return adapter_ ? adapter_->patience() : 1;
}

softhca::VirtualFabric* World::fabric() {
    return adapter_ ? adapter_->fabric() : nullptr;
}

void World::lose_packets(double share, uint64_t seed) {
    if (adapter_) adapter_->lose_packets(share, seed);
}

uint64_t World::receivers_not_ready() {
    return adapter_ ? adapter_->receivers_not_ready() : 0;
}

std::string pattern(size_t length, unsigned seed) {
    std::string text(length, '\0');
    uint64_t state = seed + 1;
    for (size_t i = 0; i < length; i += sizeof(state)) {
        state = ucs::mix64(state);
        std::memcpy(text.data() + i, &state, std::min(sizeof(state), length - i));
    }
    return text;
}

void send_short(World& world, Endpoint& endpoint, uint8_t id, uint64_t header,
                const std::string& payload) {
    ucs_status_t status = UCS_OK;
    world.until([&] {
        status =
            endpoint.am_short(id, header, payload.data(), static_cast<uint32_t>(payload.size()));
        return status != UCS_ERR_NO_RESOURCE;
    });
    EXPECT_EQ(status, UCS_OK);
}

void send_bcopy(World& world, Endpoint& endpoint, uint8_t id, const std::string& data) {
    ssize_t sent = 0;
    world.until([&] {
        sent = endpoint.am_bcopy(
            id,
            [](void* destination, void* arg) {
                const auto& text = *static_cast<const std::string*>(arg);
                std::memcpy(destination, text.data(), text.size());
                return text.size();
            },
            const_cast<std::string*>(&data));
        return sent != UCS_ERR_NO_RESOURCE;
    });
    EXPECT_EQ(sent, static_cast<ssize_t>(data.size()));
}

ucs_status_t flush(World& world, Endpoint& endpoint) {
    Waiter waiter;
    ucs_status_t status = UCS_OK;
    world.until([&] {
        status = endpoint.flush(&waiter);
        return status != UCS_ERR_NO_RESOURCE;
    });
    if (status != UCS_INPROGRESS) return status;
    world.until([&] { return waiter.done; });
    return waiter.status;
}

}  // namespace uct::test

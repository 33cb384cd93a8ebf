// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <deque>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/mock_transport.h"

// The parts of the mock transports; see mock_transport.h for what they do.
namespace uct::mock {

class MockInterface;
class MockEndpoint;

enum class PacketType : uint8_t { kAm, kPut, kGet, kAtomic, kCheck };

// An operation: first on its way to the target, then, as its own acknowledgement, back.
struct Packet final : ReceiveDescriptor {
    void release() override;

    FabricState* fabric = nullptr;
    MockEndpoint* source = nullptr;   // null once the sender is gone
    MockInterface* keeper = nullptr;  // interface whose receive buffer this is, while kept
    uint32_t target_endpoint = 0;
    PacketType type = PacketType::kAm;
    uint8_t am_id = 0;
    AtomicOp atomic_op = AtomicOp::kAdd;
    unsigned size = 0;
    ucs_status_t status = UCS_OK;
    uint64_t operand = 0, compare = 0;
    uint64_t remote_address = 0;
    RemoteKey key = 0;
    size_t length = 0;  // bytes to read (get)
    uint64_t sequence = 0;
    uint64_t due = 0;
    bool stranded = false;        // its sender died: only the sender's list refers to it
    std::vector<std::byte> data;  // payload, or the data that a get or atomic brings back

    Completion* completion = nullptr;
    UnpackCallback unpack = nullptr;
    void* unpack_arg = nullptr;
    std::vector<Iov> destination;
    void* result = nullptr;

    void forget_sender();
};

// A FIFO of packets on the wire; at most one entry of the fabric's heap refers to it.
struct Channel {
    std::deque<Packet*> packets;
    MockEndpoint* source = nullptr;
    uint32_t target_interface = 0;
    uint64_t source_worker = 0;
    Kind kind = Kind::kScalable;
    bool acknowledgements = false;
    uint64_t usual_delay = 0;
    uint64_t last_due = 0;
    unsigned device = 0;
    uint32_t source_interface = 0;
    uint32_t source_endpoint = 0;
};

class MockDomain;

struct Region final : MemoryHandle {
    uintptr_t address;
    size_t length;
    PeerRights rights;
    uint32_t key;
};

struct FabricState {
    explicit FabricState(Config initial);
    ~FabricState();

    uint64_t now() const { return config.time ? config.time() : steps; }
    uint64_t random(uint64_t below) { return below == 0 ? 0 : generator() % below; }
    bool chance(double probability) {
        return probability > 0 && static_cast<double>(generator() >> 11) * 0x1p-53 < probability;
    }

    Packet* acquire();
    void recycle(Packet* packet);
    void send(const std::shared_ptr<Channel>& channel, Packet* packet);
    // Let everything that is due take effect.
    void advance();
    bool reachable(uint64_t worker_a, uint64_t worker_b) const;
    void kill(uint64_t worker_id);
    // What a put, get or atomic operation does at its target.
    ucs_status_t access(Packet* packet);

    Config config;
    std::mt19937_64 generator;
    uint64_t steps = 0;
    std::unique_ptr<Component> component;
    std::function<void(const PacketEvent&)> observer;
    uint64_t packet_events = 0;
    Counters counters[2];
    std::set<uint64_t> dead;
    std::set<std::pair<uint64_t, uint64_t>> cuts;
    std::unordered_map<unsigned, Fabric::Device> devices;  // those that are not well
    std::set<unsigned> without_link;
    // (target, source) interface -> endpoints of a smaller id are cut off.
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> severed;
    std::unordered_map<uint32_t, MockInterface*> interfaces;
    std::unordered_map<uint32_t, MockEndpoint*> dedicated;  // endpoint id -> endpoint
    std::unordered_map<uint32_t, Region> regions;
    uint32_t next_interface = 1, next_endpoint = 1, next_key = 1;
    uint64_t busy = 0;  // packets on the wire, in inboxes and in completion queues

  private:
    struct Arrival {
        uint64_t due, order;
        std::shared_ptr<Channel> channel;
        bool operator>(const Arrival& other) const {
            return due != other.due ? due > other.due : order > other.order;
        }
    };
    friend class Fabric;

    void schedule(std::shared_ptr<Channel> channel, uint64_t due);
    bool arrive(Channel& channel, Packet* packet);
    ucs_status_t execute(const Channel& channel, Packet* packet, MockInterface* target);
    void come_back(Packet* packet);

    std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> heap_;
    uint64_t order_ = 0;
    std::vector<Packet*> pool_;
};

class MockEndpoint final : public Endpoint {
  public:
    MockEndpoint(MockInterface& interface, uint32_t id);
    ~MockEndpoint() override;

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override;
    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) override;
    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) override;
    ucs_status_t put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                           RemoteKey key) override;
    ssize_t put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                      RemoteKey key) override;
    ucs_status_t put_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) override;
    ucs_status_t get_bcopy(UnpackCallback unpack, void* arg, size_t length, uint64_t remote_address,
                           RemoteKey key, Completion* completion) override;
    ucs_status_t get_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) override;
    ucs_status_t atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                        void* result, uint64_t remote_address, RemoteKey key,
                        Completion* completion) override;
    ssize_t put_chain(std::span<const ChainPiece> pieces, Completion* completion) override {
        return chain(PacketType::kPut, pieces, completion);
    }
    ssize_t get_chain(std::span<const ChainPiece> pieces, Completion* completion) override {
        return chain(PacketType::kGet, pieces, completion);
    }
    ssize_t put_pieces(std::span<const ChainPiece> pieces) override {
        return copy(PacketType::kPut, pieces);
    }
    ssize_t get_pieces(std::span<const ChainPiece> pieces) override {
        return copy(PacketType::kGet, pieces);
    }
    ucs_status_t fence() override { return status_; }
    ucs_status_t flush(Completion* completion) override;
    ucs_status_t check(Completion* completion) override;
    ucs_status_t pending_add(Pending* pending) override;
    void pending_remove(Pending* pending) override;
    bool is_connected(const RemoteAddress& remote) const override;
    ucs_status_t get_address(std::span<std::byte> address) const override;
    ucs_status_t connect(const RemoteAddress& remote) override;
    void set_receive_gate(ReceiveGate* gate) override { gate_ = gate; }

    uint32_t id() const { return id_; }
    bool connected() const { return channel_->target_interface != 0; }
    MockInterface& interface() const { return interface_; }
    Channel& channel() { return *channel_; }
    const std::shared_ptr<Channel>& acknowledgements() { return acknowledgements_; }
    ReceiveGate* gate() const { return gate_; }
    bool listed = false;  // in MockInterface::waiting
    void set_target(uint32_t interface) { channel_->target_interface = interface; }

    // An acknowledgement came back: results to their places, completions called.
    void acknowledged(Packet* packet);
    bool has_pending() const { return !pending_.empty(); }
    void serve_pending();

  private:
    ucs_status_t room();
    ssize_t chain(PacketType type, std::span<const ChainPiece> pieces, Completion* completion);
    ssize_t copy(PacketType type, std::span<const ChainPiece> pieces);
    Packet* prepare(PacketType type, Completion* completion);
    void post(Packet* packet);
    void fail(ucs_status_t status);
    bool starved() const;

    MockInterface& interface_;
    const uint32_t id_;
    uint32_t peer_endpoint_ = 0;
    ucs_status_t status_ = UCS_OK;
    uint64_t starved_until_ = 0;  // turn of the interface that ends a refusal at random
    ReceiveGate* gate_ = nullptr;
    std::shared_ptr<Channel> channel_, acknowledgements_;
    std::deque<Packet*> outstanding_;
    std::deque<std::pair<uint64_t, Completion*>> flushes_;
    uint64_t posted_ = 0, done_ = 0;
    boost::intrusive::list<Pending> pending_;
};

class MockInterface final : public Interface {
  public:
    MockInterface(FabricState& fabric, Kind kind, unsigned device, const InterfaceParams& params);
    ~MockInterface() override;

    ucs_status_t get_device_address(std::span<std::byte> address) const override;
    ucs_status_t get_interface_address(std::span<std::byte> address) const override;
    bool is_reachable(const RemoteAddress& remote) const override;
    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    unsigned progress() override;
    ucs_status_t flush(Completion* completion) override;
    ucs_status_t cut_off(const RemoteAddress& remote, uint64_t number) override;
    bool is_link_up() const override { return !fabric.without_link.contains(device); }

    // The interface id in an interface address; 0 if the bytes are not one of this fabric.
    static uint32_t parse(std::span<const std::byte> address, size_t length);

    FabricState& fabric;
    const Kind kind;
    const unsigned device;
    const uint32_t id;
    InterfaceParams params;
    size_t receive_used = 0;
    uint64_t turn = 1;                  // counts calls of progress()
    std::deque<MockEndpoint*> waiting;  // endpoints with pending elements, next first
    std::deque<Packet*> inbox;          // arrived messages, each in a receive buffer
    std::deque<Packet*> completions;    // arrived acknowledgements
    std::vector<MockEndpoint*> endpoints;

    Counters& counters() { return fabric.counters[static_cast<size_t>(kind)]; }
    void removed(MockEndpoint* endpoint);

  private:
    void deliver(Packet* packet);
};

inline constexpr size_t kDeviceAddressLength = 8;
inline constexpr size_t kInterfaceAddressLength = 8;
inline constexpr size_t kEndpointAddressLength = 12;
inline constexpr uint32_t kAddressMark = 0x4b434f4d;

std::unique_ptr<Component> make_component(FabricState& fabric);

}  // namespace uct::mock

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mock_transport.h"
#include "softhca/softhca.h"
#include "ucs/config/source.h"
#include "ucs/sys/random.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"
#include "uct/api/memory_domain.h"

// Workers that can reach each other over one transport, in one process, for tests.
namespace uct::test {

using Settings = std::vector<std::pair<std::string, std::string>>;

// A line of the list of transports under test.
struct TransportCase {
    std::string label;
    std::string transport;
    Settings settings = {};
    // Of each device: that many peers share a node, each on a port of its own.
    unsigned ports = 1;
};

inline std::string case_name(const testing::TestParamInfo<TransportCase>& info) {
    return info.param.label;
}
inline void PrintTo(const TransportCase& value, std::ostream* out) {
    *out << value.label;
}

// All transports, each in the settings in which it behaves differently.
const std::vector<TransportCase>& all_transports();
// Those that satisfy a condition on their attributes.
std::vector<TransportCase> transports_where(bool (*condition)(const std::string& transport));
bool reaches_others(const std::string& transport);
bool is_shared_memory(const std::string& transport);
bool is_network(const std::string& transport);
bool can_wake(const std::string& transport);
bool is_dedicated(const std::string& transport);
bool is_datagram(const std::string& transport);
// One-sided operations and atomics.
bool has_remote_memory(const std::string& transport);
// Chains of bulk transfers, in most of their settings.
bool has_chains(const std::string& transport);
// Has flow control by grants, on the soft adapter.
bool grants_credits(const std::string& transport);
bool is_dc(const std::string& transport);
bool is_tcp(const std::string& transport);
bool is_soft_adapter(const std::string& transport);

struct Message {
    uint8_t id;
    std::string data;
};

struct Failure {
    Endpoint* endpoint;
    ucs_status_t status;
};

// One worker's side of the transport.
class Peer {
  public:
    // On the device's port of that number, if devices have several.
    Peer(Component& component, const TransportCase& which, uint64_t worker_id, ucs::Clock& clock,
         const Settings& extra, unsigned port = 1);
    ~Peer();
    Peer(const Peer&) = delete;
    // Whatever it still holds of its interface and domain, which go next.
    void release();

    std::vector<std::byte> device_address() const;
    std::vector<std::byte> interface_address() const;

    std::vector<Message> received;
    std::vector<Failure> failures;
    std::vector<std::pair<ReceiveDescriptor*, Message>> kept;
    std::function<void(const Message&)> on_message;  // called by handlers, if set
    bool keep = false;                               // handlers keep what they get
    bool runs = true;                                // World::progress() progresses this peer
    bool is_enough = false;                          // AmTable::is_enough

    std::unique_ptr<MemoryDomain> domain;
    std::unique_ptr<Interface> interface;
    std::vector<RemoteKey> keys;  // unpacked here

  private:
    static ucs_status_t handle(void* arg, void* data, size_t length, ReceiveDescriptor* descriptor);
    struct HandlerArg {
        Peer* peer;
        uint8_t id;
    };
    std::array<HandlerArg, kMaxAmId> args_;
    AmTable table_;
    ucs::Random random_;
    ucs::config::Source source_;
};

// Keeps what waits for the old lane's last message.
struct Gate : ReceiveGate {
    void hold(uint8_t id, const void* data, size_t length) override {
        held.push_back({id, {static_cast<const char*>(data), length}});
    }
    std::vector<Message> held;
};

// Registered memory with its key as the peers see it.
class Buffer {
  public:
    Buffer(Peer& owner, size_t size, char fill = 0, PeerRights rights = PeerRights::kAll);
    // Another registration of a part of a buffer, which outlives it; without bytes of its own.
    Buffer(Peer& owner, const Buffer& other, size_t offset, size_t size, PeerRights rights);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    char* data() { return bytes_.data(); }
    uint64_t address() const { return reinterpret_cast<uintptr_t>(bytes_.data()); }
    size_t size() const { return bytes_.size(); }
    std::string text() const { return {bytes_.data(), bytes_.size()}; }
    Iov iov(size_t offset, size_t length) { return {bytes_.data() + offset, length, handle_}; }
    RemoteKey key_for(Peer& user);
    void deregister();

  private:
    Peer& owner_;
    std::vector<char> bytes_;
    MemoryHandle* handle_ = nullptr;
};

class Adapter;

class World {
  public:
    explicit World(const TransportCase& which, unsigned peers = 2, const Settings& extra = {});
    ~World();

    Peer& peer(size_t index) { return *peers_[index]; }
    // An endpoint of `from` to `to`; dedicated ones get their other end as well.
    Endpoint& connect(size_t from, size_t to);
    // The other end of a dedicated endpoint that connect() made.
    Endpoint& other_end(Endpoint& endpoint);
    RemoteAddress address_of(size_t index);
    void destroy(Endpoint& endpoint);

    void progress();
    // Progress until the condition holds; fails the test after many steps.
    template <typename Condition>
    void until(Condition&& condition, int steps = 20000) {
        for (int64_t i = int64_t{steps} * patience(); i > 0; --i) {
            if (condition()) return;
            progress();
        }
        // What the kernel carries needs a processor as well: so many milliseconds, and little work.
        for (int i = 0; is_tcp(which_.transport) && i < 20000; ++i) {
            if (condition()) return;
            poll(nullptr, 0, 1);
            progress();
        }
        ADD_FAILURE() << "the condition never came true";
    }
    void kill(size_t index);
    void progress_some(int steps) {
        for (int i = 0; i < steps; ++i) progress();
    }

    // Of the soft adapter alone.
    softhca::VirtualFabric* fabric();
    // Messages so far that found no receive buffer.
    uint64_t receivers_not_ready();
    void lose_packets(double share, uint64_t seed);
    ucs::VirtualClock clock;

  private:
    struct Owned {
        std::unique_ptr<Endpoint> endpoint;
        size_t from, to;
        Endpoint* other;
    };
    void pass_idle_time();
    Endpoint& create(size_t from, const RemoteAddress& remote, size_t to);
    int patience() const;

    TransportCase which_;
    uint64_t calls_ = 0;  // of progress()
    std::unique_ptr<Adapter> adapter_;
    std::unique_ptr<mock::Fabric> mock_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::vector<Owned> endpoints_;
    std::deque<std::vector<std::byte>> scratch_;  // addresses that RemoteAddress refers to
};

// A completion that tells what became of it.
struct Waiter : Completion {
    Waiter() {
        count = 1;
        callback = [](Completion* self) { static_cast<Waiter*>(self)->done = true; };
    }
    bool done = false;
};

std::string pattern(size_t length, unsigned seed);

// Send, progressing until there is room.
void send_short(World& world, Endpoint& endpoint, uint8_t id, uint64_t header,
                const std::string& payload);
void send_bcopy(World& world, Endpoint& endpoint, uint8_t id, const std::string& data);
// Flush with waiting for room and for the end. @return the status of the end
ucs_status_t flush(World& world, Endpoint& endpoint);

}  // namespace uct::test

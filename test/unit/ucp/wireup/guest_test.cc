// SPDX-License-Identifier: BSD-3-Clause

// Clients of a listener without a key: what they get, and what the hostile among them do not.

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>

#include "ucp/endpoint/endpoint.h"
#include "ucp/select/worker_address.h"
#include "ucp/wireup/handshake.h"
#include "ucs/log/log.h"
#include "uct/sm/component.h"
#include "uct/tcp/component.h"
#include "uct/tcp/wire/address.h"
#include "unit/ucp/host_wire.h"
#include "unit/ucp/wireup/server.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

constexpr size_t kServer = 0, kClient = 1, kThird = 2;

using uct::tcp::ListenerAddress;

// The workers' entry of that kind, in an address.
ListenerAddress listener_in(const WorkerAddress& address, const sockaddr_storage& where) {
    const auto ip = ucs::net::IpAddress::of(reinterpret_cast<const sockaddr&>(where));
    for (const AddressEntry& entry : address.entries) {
        const auto device = uct::tcp::DeviceAddress::read(entry.device);
        const auto listener = ListenerAddress::read(entry.interface);
        if (device && listener && device->ip == ip) return *listener;
    }
    ADD_FAILURE() << "no listener there";
    return {};
}

class Guests : public testing::Test {
  protected:
    Guests() : cluster_(3, options()), server_(cluster_) {}

    Cluster::Options options() {
        Cluster::Options options;
        options.wire = &wire_;
        return options;
    }
    void connect(ConnectionEnd& client, ConnectionEnd& accepted, size_t from = kClient) {
        server_.call(client, from);
        server_.accept(accepted);
    }
    ucs_status_ptr_t send(const ConnectionEnd& from, const uint64_t& number, ucp_tag_t tag = 7) {
        return ucp_tag_send_nbx(from.endpoint, &number, sizeof(number), tag, &kNothing);
    }
    uint64_t receive(size_t at, ucp_tag_t tag = 7) {
        uint64_t number = 0;
        EXPECT_EQ(cluster_.finish(ucp_tag_recv_nbx(cluster_.worker(at), &number, sizeof(number),
                                                   tag, UINT64_MAX, &kNothing)),
                  UCS_OK);
        return number;
    }
    void exchange(const ConnectionEnd& from, size_t to, uint64_t number) {
        const ucs_status_ptr_t sending = send(from, number);
        EXPECT_EQ(receive(to), number);
        EXPECT_EQ(cluster_.finish(sending), UCS_OK);
    }
    bool has_message(size_t at) {
        ucp_tag_recv_info_t info;
        return ucp_tag_probe_nb(cluster_.worker(at), 0, 0, 0, &info) != nullptr;
    }
    const std::vector<std::byte>& address(size_t worker) {
        return cluster_.inner(worker).address();
    }

    HostWire wire_{uct::tcp::component()};
    Cluster cluster_;
    Server server_;
};

TEST_F(Guests, AreServedWhoeverSpeaksFirst) {
    for (const bool server_first : {false, true}) {
        ConnectionEnd client, accepted;
        connect(client, accepted);
        if (server_first) exchange(accepted, kClient, 1);
        exchange(client, kServer, 2);
        exchange(accepted, kClient, 3);
        // By every protocol: what is long goes by get, put or in fragments.
        const auto sent = pattern(3 << 20, 4);
        std::vector<uint8_t> received(sent.size());
        for (const bool to_client : {false, true}) {
            const ucs_status_ptr_t sending =
                ucp_tag_send_sync_nbx(to_client ? accepted.endpoint : client.endpoint, sent.data(),
                                      sent.size(), 9, &kNothing);
            EXPECT_EQ(cluster_.finish(ucp_tag_recv_nbx(
                          cluster_.worker(to_client ? kClient : kServer), received.data(),
                          received.size(), 9, UINT64_MAX, &kNothing)),
                      UCS_OK);
            EXPECT_EQ(cluster_.finish(sending), UCS_OK);
            EXPECT_EQ(received, sent);
        }
        EXPECT_EQ(cluster_.finish(ucp_ep_close_nbx(client.endpoint, &kNothing)), UCS_OK);
        ASSERT_TRUE(cluster_.until([&] { return accepted.errors != 0; }));
        ucp_ep_close_nbx(accepted.endpoint, &kNothing);
        cluster_.steps(100);
    }
}

TEST_F(Guests, OneWorkerMayComeSeveralTimes) {
    ConnectionEnd clients[2], accepted[2];
    for (int index : {0, 1}) connect(clients[index], accepted[index]);
    for (int index : {0, 1}) {
        exchange(clients[index], kServer, 5);
        exchange(accepted[index], kClient, 6);
    }
    EXPECT_EQ(cluster_.finish(ucp_ep_close_nbx(clients[0].endpoint, &kNothing)), UCS_OK);
    ASSERT_TRUE(cluster_.until([&] { return accepted[0].errors != 0; }));
    ucp_ep_close_nbx(accepted[0].endpoint, &kNothing);
    exchange(clients[1], kServer, 7);
    exchange(accepted[1], kClient, 8);
}

TEST_F(Guests, HaveNoMoreToSayWhenTheirEndpointIsGone) {
    ConnectionEnd client, accepted;
    connect(client, accepted);
    exchange(client, kServer, 1);
    const Endpoint& own = unwrap(client.endpoint);
    EXPECT_EQ(cluster_.finish(ucp_ep_close_nbx(accepted.endpoint, &kNothing)), UCS_OK);
    cluster_.steps(10);
    // Past the call's socket, which has told the client: straight on its lane.
    const uint64_t tag = 7;
    const uint64_t number = 2;
    own.scalable()->am_short(static_cast<uint8_t>(AmId::kTagShort), tag, &number, sizeof(number));
    cluster_.steps(2000);
    EXPECT_FALSE(has_message(kServer));
    EXPECT_EQ(cluster_.inner(kServer).endpoints().find(cluster_.uuid(kClient)), nullptr);
}

// Two components as one: shared memory and TCP.
class MemoryAndTcp final : public uct::Component {
  public:
    MemoryAndTcp() {
        for (uct::Component* part : {&uct::sm::component(), &uct::tcp::component()}) {
            std::ranges::copy(part->transports(), std::back_inserter(transports_));
            std::ranges::copy(part->resources(), std::back_inserter(resources_));
        }
    }
    std::string_view name() const override { return "memory and tcp"; }
    std::span<const uct::TransportDeclaration> transports() const override { return transports_; }
    std::span<const uct::Resource> resources() override { return resources_; }
    ucs_status_t open_domain(std::string_view device,
                             std::unique_ptr<uct::MemoryDomain>* domain) override {
        const bool is_memory = std::ranges::any_of(
            uct::sm::component().resources(),
            [&](const uct::Resource& resource) { return resource.device == device; });
        return (is_memory ? uct::sm::component() : uct::tcp::component())
            .open_domain(device, domain);
    }

  private:
    std::vector<uct::TransportDeclaration> transports_;
    std::vector<uct::Resource> resources_;
};

// What a guest says of lanes is not heard, so neither end asks for one.
TEST(GuestsOfTheHost, HaveNoDedicatedLanes) {
    MemoryAndTcp both;
    HostWire wire(both);
    Cluster::Options options;
    options.wire = &wire;
    Cluster cluster(2, options);
    Server server(cluster);
    ConnectionEnd client, accepted;
    server.call(client, kClient);
    server.accept(accepted);
    const auto exchange = [&](const ConnectionEnd& from, size_t to, uint64_t number) {
        uint64_t got = 0;
        const ucs_status_ptr_t sending =
            ucp_tag_send_nbx(from.endpoint, &number, sizeof(number), 7, &kNothing);
        EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(to), &got, sizeof(got), 7,
                                                  UINT64_MAX, &kNothing)),
                  UCS_OK);
        EXPECT_EQ(cluster.finish(sending), UCS_OK);
        EXPECT_EQ(got, number);
    };
    exchange(client, kServer, 1);
    exchange(accepted, kClient, 2);
    for (const ConnectionEnd* end : {&client, &accepted}) {
        const Endpoint& endpoint = unwrap(end->endpoint);
        EXPECT_EQ(endpoint.configuration().scalable().transport, "sm_fifo");
        EXPECT_EQ(ucpx_ep_lanes_request(end->endpoint, UCPX_LANE_POLICY_DEDICATED),
                  UCS_ERR_UNSUPPORTED);
    }
    exchange(client, kServer, 3);
    EXPECT_EQ(cluster.counters(kServer).requests, 0u);
}

// Says what it likes to a listener, and hears what a client hears.
class Hostile {
  public:
    Hostile(Cluster& cluster, Server& server)
        : cluster_(cluster), socket_(socket(AF_INET, SOCK_STREAM, 0)) {
        EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&server.address),
                            sizeof(sockaddr_in)),
                  0);
    }
    ~Hostile() { close(socket_); }
    Hostile(const Hostile&) = delete;

    // Introduces itself with that worker address.
    void call(std::vector<std::byte> address) {
        const wireup::Call call = wireup::new_call("");
        EXPECT_EQ(::send(socket_, &call, sizeof(call), MSG_NOSIGNAL),
                  static_cast<ssize_t>(sizeof(call)));
        EXPECT_TRUE(cluster_.until([&] { return hear(sizeof(wireup::CallAnswer)); }));
        heard_.erase(heard_.begin(), heard_.begin() + sizeof(wireup::CallAnswer));
        wireup::Frame frame;
        frame.kind = wireup::FrameKind::kConnect;
        frame.stream = 1;
        frame.address = std::move(address);
        const auto bytes = wireup::pack_frame(frame);
        EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    // The server's address, as ACCEPT tells it.
    std::vector<std::byte> harvest() {
        constexpr size_t kHeader = 28;
        EXPECT_TRUE(cluster_.until([&] { return hear(kHeader + 1); }));
        cluster_.steps(10);
        hear(0);
        return heard_.size() < kHeader
                   ? std::vector<std::byte>()
                   : std::vector<std::byte>(heard_.begin() + kHeader, heard_.end());
    }

  private:
    bool hear(size_t wanted) {
        std::byte bytes[4096];
        const ssize_t got = recv(socket_, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0) heard_.insert(heard_.end(), bytes, bytes + got);
        return heard_.size() >= wanted;
    }

    Cluster& cluster_;
    int socket_;
    std::vector<std::byte> heard_;
};

TEST_F(Guests, HarvestNothingThatOthersCanUse) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    Hostile hostile(cluster_, server_);
    hostile.call(address(kClient));
    ConnectionEnd accepted;
    server_.accept(accepted);
    const std::vector<std::byte> harvested = hostile.harvest();
    WorkerAddress told, own;
    ASSERT_EQ(unpack_address(harvested, &told), UCS_OK);
    ASSERT_EQ(unpack_address(address(kServer), &own), UCS_OK);
    // One way in, and another secret than the worker's.
    EXPECT_EQ(told.entries.size(), 1u);
    EXPECT_NE(listener_in(told, server_.address).secret, listener_in(own, server_.address).secret);
    // What was said to one is worth nothing to another.
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.address = reinterpret_cast<const ucp_address_t*>(harvested.data());
    ucp_ep_h thief = nullptr;
    ASSERT_EQ(ucp_ep_create(cluster_.worker(kThird), &params, &thief), UCS_OK);
    const uint64_t number = 13;
    const ucs_status_ptr_t sending = ucp_tag_send_nbx(thief, &number, sizeof(number), 7, &kNothing);
    EXPECT_EQ(cluster_.finish(sending), UCS_ERR_REJECTED);
    EXPECT_FALSE(has_message(kServer));
}

TEST_F(Guests, AreNotCalledWhereTheySayThatTheyAre) {
    // A bystander's port, in the name of a new worker.
    const int bystander = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_storage where = loopback(AF_INET);
    ASSERT_EQ(bind(bystander, reinterpret_cast<sockaddr*>(&where), sizeof(sockaddr_in)), 0);
    ASSERT_EQ(listen(bystander, 1), 0);
    socklen_t length = sizeof(where);
    getsockname(bystander, reinterpret_cast<sockaddr*>(&where), &length);
    WorkerAddress lie;
    const auto genuine = address(kClient);
    ASSERT_EQ(unpack_address(genuine, &lie), UCS_OK);
    lie.uuid = 4711;
    ListenerAddress elsewhere{ntohs(reinterpret_cast<sockaddr_in&>(where).sin_port), 815, {}};
    std::vector<std::byte> interface(ListenerAddress::kLength);
    elsewhere.write(interface);
    for (AddressEntry& entry : lie.entries) entry.interface = interface;
    Hostile hostile(cluster_, server_);
    hostile.call(pack_address(lie));
    ConnectionEnd accepted;
    server_.accept(accepted);
    const uint64_t number = 1;
    const ucs_status_ptr_t sending = send(accepted, number);
    cluster_.steps(2000);
    pollfd called{bystander, POLLIN, 0};
    EXPECT_EQ(poll(&called, 1, 50), 0) << "the server has called a stranger";
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    cluster_.finish(ucp_ep_close_nbx(accepted.endpoint, &force));
    if (UCS_PTR_IS_PTR(sending)) cluster_.finish(sending);
    close(bystander);
}

TEST_F(Guests, CannotTakeAPeersPlace) {
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    // The third worker is a peer: the server's program has its address.
    const ucp_ep_h peer = cluster_.endpoint(kServer, kThird);
    Hostile hostile(cluster_, server_);
    hostile.call(address(kThird));
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = server_.next_request();
    ucp_ep_h endpoint = nullptr;
    EXPECT_EQ(ucp_ep_create(cluster_.worker(kServer), &params, &endpoint), UCS_ERR_REJECTED);
    EXPECT_TRUE(log.contains("that is somebody else"));
    const uint64_t number = 3;
    const ucs_status_ptr_t sending = ucp_tag_send_nbx(peer, &number, sizeof(number), 7, &kNothing);
    EXPECT_EQ(receive(kThird), number);
    EXPECT_EQ(cluster_.finish(sending), UCS_OK);
}

}  // namespace
}  // namespace ucp::test

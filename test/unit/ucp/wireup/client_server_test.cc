// SPDX-License-Identifier: BSD-3-Clause

// Endpoints by socket address: listeners, connection requests, errors, disconnection.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>

#include "ucp/endpoint/endpoint.h"
#include "ucp/wireup/connection_manager.h"
#include "ucp/wireup/handshake.h"
#include "ucs/log/log.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/wireup/server.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

uint64_t receive_number(Cluster& cluster, size_t at, ucp_tag_t tag) {
    uint64_t number = 0;
    EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(at), &number, sizeof(number), tag,
                                              UINT64_MAX, &kNothing)),
              UCS_OK);
    return number;
}

void exchange(Cluster& cluster, const ConnectionEnd& from, size_t to, uint64_t number) {
    const ucs_status_ptr_t sending =
        ucp_tag_send_nbx(from.endpoint, &number, sizeof(number), 7, &kNothing);
    ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
    EXPECT_EQ(receive_number(cluster, to, 7), number);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
}

class Families : public testing::TestWithParam<int> {};

TEST_P(Families, ConnectAndExchange) {
    if (GetParam() == AF_INET6) {
        const int probe = socket(AF_INET6, SOCK_STREAM, 0);
        const sockaddr_storage address = loopback(AF_INET6);
        const bool works = probe >= 0 && bind(probe, reinterpret_cast<const sockaddr*>(&address),
                                              sizeof(sockaddr_in6)) == 0;
        if (probe >= 0) close(probe);
        if (!works) GTEST_SKIP() << "no IPv6 here";
    }
    Cluster cluster(2);
    Server server(cluster, GetParam());
    ConnectionEnd client, accepted;
    server.call(client);
    // What is sent before the peer is known waits for it: tags, and bytes of a stream.
    const uint64_t early = 41;
    const auto large = pattern(100000, 1);
    const ucs_status_ptr_t sending =
        ucp_tag_send_nbx(client.endpoint, &early, sizeof(early), 7, &kNothing);
    const ucs_status_ptr_t sending_large =
        ucp_tag_send_nbx(client.endpoint, large.data(), large.size(), 8, &kNothing);
    const ucs_status_ptr_t streaming = ucp_stream_send_nbx(client.endpoint, "hello", 5, &kNothing);
    server.accept(accepted);
    EXPECT_EQ(receive_number(cluster, 0, 7), early);
    std::vector<uint8_t> received(large.size());
    EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(0), received.data(), received.size(),
                                              8, UINT64_MAX, &kNothing)),
              UCS_OK);
    EXPECT_EQ(received, large);
    char text[5];
    size_t length = 0;
    ucp_request_param_t all{};
    all.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    all.flags = UCP_STREAM_RECV_FLAG_WAITALL;
    EXPECT_EQ(cluster.finish(ucp_stream_recv_nbx(accepted.endpoint, text, 5, &length, &all)),
              UCS_OK);
    EXPECT_EQ(std::string(text, 5), "hello");
    for (const ucs_status_ptr_t request : {sending, sending_large, streaming}) {
        EXPECT_EQ(cluster.finish(request), UCS_OK);
    }
    exchange(cluster, accepted, 1, 42);
    exchange(cluster, client, 0, 43);

    ucp_ep_attr_t attr{}, other{};
    attr.field_mask = other.field_mask =
        UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR | UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR;
    ASSERT_EQ(ucp_ep_query(client.endpoint, &attr), UCS_OK);
    ASSERT_EQ(ucp_ep_query(accepted.endpoint, &other), UCS_OK);
    const size_t size = as_parameter(server.address).addrlen;
    EXPECT_EQ(std::memcmp(&attr.remote_sockaddr, &server.address, size), 0);
    EXPECT_EQ(std::memcmp(&attr.local_sockaddr, &other.remote_sockaddr, size), 0);
    EXPECT_EQ(std::memcmp(&attr.remote_sockaddr, &other.local_sockaddr, size), 0);

    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(client.endpoint, &kNothing)), UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return accepted.errors != 0; }));
    EXPECT_EQ(accepted.error, UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(client.errors, 0u);
    ucp_ep_close_nbx(accepted.endpoint, &kNothing);
}

INSTANTIATE_TEST_SUITE_P(Addresses, Families, testing::Values(AF_INET, AF_INET6),
                         [](const auto& info) { return info.param == AF_INET ? "v4" : "v6"; });

TEST(ClientServer, EndpointsByWorkerAddressHaveNoSocket) {
    Cluster cluster(2);
    ucp_ep_attr_t attr{};
    attr.field_mask = UCP_EP_ATTR_FIELD_REMOTE_SOCKADDR;
    EXPECT_EQ(ucp_ep_query(cluster.endpoint(0, 1), &attr), UCS_ERR_NOT_CONNECTED);
}

TEST(ClientServer, TellsWhoAsks) {
    Cluster cluster(2);
    Server server(cluster);
    ConnectionEnd client;
    server.call(client, 1, UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID);
    const ucp_conn_request_h request = server.next_request();
    ucp_conn_request_attr_t attr{};
    attr.field_mask =
        UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR | UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
    ASSERT_EQ(ucp_conn_request_query(request, &attr), UCS_OK);
    EXPECT_EQ(attr.client_id, cluster.inner(1).client_id());
    ucp_ep_attr_t own{};
    own.field_mask = UCP_EP_ATTR_FIELD_LOCAL_SOCKADDR;
    ASSERT_EQ(ucp_ep_query(client.endpoint, &own), UCS_OK);
    EXPECT_EQ(std::memcmp(&attr.client_address, &own.local_sockaddr, sizeof(sockaddr_in)), 0);
    EXPECT_EQ(ucp_listener_reject(server.listener(), request), UCS_OK);

    ConnectionEnd silent;
    server.call(silent);
    const ucp_conn_request_h second = server.next_request();
    EXPECT_EQ(ucp_conn_request_query(second, &attr), UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(ucp_listener_reject(server.listener(), second), UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return client.errors == 1 && silent.errors == 1; }));
}

TEST(ClientServer, ARejectedClientLearnsOfIt) {
    Cluster cluster(2);
    Server server(cluster);
    ConnectionEnd client;
    server.call(client);
    uint64_t number = 1;
    const ucs_status_ptr_t sending =
        ucp_tag_send_nbx(client.endpoint, &number, sizeof(number), 7, &kNothing);
    EXPECT_EQ(ucp_listener_reject(server.listener(), server.next_request()), UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_ERR_REJECTED);
    ASSERT_TRUE(cluster.until([&] { return client.errors != 0; }));
    EXPECT_EQ(client.error, UCS_ERR_REJECTED);
    EXPECT_EQ(ucp_ep_close_nbx(client.endpoint, &kNothing), nullptr);
}

TEST(ClientServer, NobodyListens) {
    Cluster cluster(2);
    Server server(cluster);
    server.stop();
    ConnectionEnd client;
    server.call(client);
    ASSERT_TRUE(cluster.until([&] { return client.errors != 0; }));
    EXPECT_EQ(client.error, UCS_ERR_NOT_CONNECTED);
}

TEST(ClientServer, AnAddressIsTaken) {
    Cluster cluster(2);
    Server server(cluster);
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = as_parameter(server.address);
    params.conn_handler.cb = [](ucp_conn_request_h, void*) {};
    ucp_listener_h second = nullptr;
    EXPECT_EQ(ucp_listener_create(cluster.worker(1), &params, &second), UCS_ERR_BUSY);
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR;
    EXPECT_EQ(ucp_listener_create(cluster.worker(1), &params, &second), UCS_ERR_INVALID_PARAM);
}

TEST(ClientServer, AnotherWorkerMayAccept) {
    Cluster cluster(3);
    Server server(cluster);
    ConnectionEnd client, accepted;
    server.call(client, 1);
    server.accept(accepted, 2);
    exchange(cluster, client, 2, 5);
    exchange(cluster, accepted, 1, 6);
}

TEST(ClientServer, TheAcceptHandlerGetsEndpoints) {
    Cluster cluster(2);
    const sockaddr_storage where = loopback(AF_INET);
    ConnectionEnd accepted, client;
    ucp_listener_params_t params{};
    params.field_mask =
        UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_ACCEPT_HANDLER;
    params.sockaddr = as_parameter(where);
    params.accept_handler = {
        [](ucp_ep_h endpoint, void* arg) { static_cast<ConnectionEnd*>(arg)->endpoint = endpoint; },
        &accepted};
    ucp_listener_h listener = nullptr;
    ASSERT_EQ(ucp_listener_create(cluster.worker(0), &params, &listener), UCS_OK);
    ucp_listener_attr_t attr{};
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    ASSERT_EQ(ucp_listener_query(listener, &attr), UCS_OK);
    ucp_ep_params_t call = client.params();
    call.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    call.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    call.sockaddr = as_parameter(attr.sockaddr);
    ASSERT_EQ(ucp_ep_create(cluster.worker(1), &call, &client.endpoint), UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return accepted.endpoint != nullptr; }));
    exchange(cluster, accepted, 1, 8);
    ucp_listener_destroy(listener);
    exchange(cluster, client, 0, 9);
}

TEST(ClientServer, AForcedCloseIsNoticedToo) {
    Cluster cluster(2);
    Server server(cluster);
    ConnectionEnd client, accepted;
    server.call(client);
    server.accept(accepted);
    exchange(cluster, client, 0, 5);
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    cluster.finish(ucp_ep_close_nbx(accepted.endpoint, &force));
    ASSERT_TRUE(cluster.until([&] { return client.errors != 0; }));
    EXPECT_EQ(client.error, UCS_ERR_CONNECTION_RESET);
}

TEST(ClientServer, BothMayCloseAtOnce) {
    Cluster cluster(2);
    Server server(cluster);
    for (int round = 0; round < 20; ++round) {
        ConnectionEnd client, accepted;
        server.call(client);
        server.accept(accepted);
        exchange(cluster, client, 0, 5);
        const ucs_status_ptr_t one = ucp_ep_close_nbx(client.endpoint, &kNothing);
        const ucs_status_ptr_t two = ucp_ep_close_nbx(accepted.endpoint, &kNothing);
        EXPECT_EQ(cluster.finish(one), UCS_OK);
        EXPECT_EQ(cluster.finish(two), UCS_OK);
        EXPECT_EQ(client.errors + accepted.errors, 0u);
    }
}

TEST(ClientServer, ConnectionsOfOnePairHaveStreamsOfTheirOwn) {
    Cluster cluster(2);
    Server server(cluster);
    ConnectionEnd clients[3], accepted[3];
    for (int index = 0; index < 3; ++index) {
        server.call(clients[index]);
        server.accept(accepted[index]);
    }
    const auto check = [&](int index) {
        const char letter = static_cast<char>('a' + index);
        const ucs_status_ptr_t sending =
            ucp_stream_send_nbx(clients[index].endpoint, &letter, 1, &kNothing);
        char got = 0;
        size_t length = 0;
        EXPECT_EQ(cluster.finish(
                      ucp_stream_recv_nbx(accepted[index].endpoint, &got, 1, &length, &kNothing)),
                  UCS_OK);
        EXPECT_EQ(got, letter);
        EXPECT_EQ(cluster.finish(sending), UCS_OK);
    };
    for (int index : {2, 0, 1}) check(index);
    // The first to go takes nothing of the others with it.
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(clients[0].endpoint, &kNothing)), UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return accepted[0].errors != 0; }));
    ucp_ep_close_nbx(accepted[0].endpoint, &kNothing);
    for (int index : {2, 1}) check(index);
    const auto sent = pattern(60000, 2);
    std::vector<uint8_t> received(sent.size());
    const ucs_status_ptr_t sending =
        ucp_tag_send_sync_nbx(clients[1].endpoint, sent.data(), sent.size(), 3, &kNothing);
    EXPECT_EQ(cluster.finish(ucp_tag_recv_nbx(cluster.worker(0), received.data(), received.size(),
                                              3, UINT64_MAX, &kNothing)),
              UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    EXPECT_EQ(received, sent);
}

TEST(ClientServer, ConnectionsArePromotedLikeOthers) {
    Cluster cluster(2);
    Server server(cluster);
    ConnectionEnd client, accepted;
    server.call(client);
    server.accept(accepted);
    exchange(cluster, client, 0, 1);
    exchange(cluster, accepted, 1, 2);
    ASSERT_EQ(ucpx_ep_lanes_request(client.endpoint, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
    ASSERT_TRUE(cluster.until(
        [&] { return cluster.lane_state(client.endpoint) == UCPX_LANE_STATE_ESTABLISHED; }));
    exchange(cluster, client, 0, 3);
}

// A socket that says what it likes.
class Stranger {
  public:
    // @param from  the last part of its own address, 127.0.0.from; 0: any
    explicit Stranger(const sockaddr_storage& address, int from = 0)
        : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
        if (from != 0) {
            sockaddr_in own{};
            own.sin_family = AF_INET;
            own.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<uint32_t>(from));
            EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
        }
        EXPECT_EQ(
            connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)), 0);
    }
    ~Stranger() { close(socket_); }
    Stranger(const Stranger&) = delete;
    void say(const std::string& bytes) {
        EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    // Has the other end hung up? Collects what it said.
    bool has_ended(std::string* heard) {
        char bytes[256];
        const ssize_t got = recv(socket_, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got > 0) heard->append(bytes, static_cast<size_t>(got));
        return got == 0 || (got < 0 && errno == ECONNRESET);
    }
    bool is_refused() {
        char byte;
        const ssize_t got = recv(socket_, &byte, 1, MSG_DONTWAIT);
        return got == 0 || (got < 0 && errno == ECONNRESET);
    }

  private:
    int socket_;
};

TEST(ClientServer, StrangersAreRefusedAndOthersServed) {
    Cluster cluster(2);
    Server server(cluster);
    Stranger talker(server.address), silent(server.address), hasty(server.address);
    talker.say("GET / HTTP/1.1\r\nHost: nobody\r\n\r\n");
    hasty.say("SLCS");
    ConnectionEnd client, accepted;
    server.call(client);
    server.accept(accepted);
    exchange(cluster, client, 0, 5);
    EXPECT_TRUE(cluster.until([&] { return talker.is_refused(); }));
    EXPECT_TRUE(server.requests.empty());
    EXPECT_FALSE(silent.is_refused());
    // Who says nothing for long goes as well.
    cluster.clock.advance(std::chrono::seconds(30));
    EXPECT_TRUE(cluster.until([&] { return silent.is_refused() && hasty.is_refused(); }));
}

TEST(ClientServer, AClientOfSomethingElseFails) {
    Cluster cluster(2);
    const int other = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_storage where = loopback(AF_INET);
    ASSERT_EQ(bind(other, reinterpret_cast<sockaddr*>(&where), sizeof(sockaddr_in)), 0);
    ASSERT_EQ(listen(other, 1), 0);
    socklen_t length = sizeof(where);
    getsockname(other, reinterpret_cast<sockaddr*>(&where), &length);
    Server server(cluster);
    server.address = where;
    ConnectionEnd client;
    server.call(client);
    cluster.steps(10);
    const int called = accept(other, nullptr, nullptr);
    ASSERT_EQ(::send(called, "220 ready when you are, what is it?\r\n", 37, 0), 37);
    ASSERT_TRUE(cluster.until([&] { return client.errors != 0; }));
    EXPECT_EQ(client.error, UCS_ERR_NOT_CONNECTED);
    close(called);
    close(other);
}

// The soft limit of open files, until it goes.
class FileLimit {
  public:
    explicit FileLimit(rlim_t wanted) {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit now{std::min(wanted, before_.rlim_max), before_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &now), 0);
    }
    ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

  private:
    rlimit before_{};
};

TEST(ClientServer, WithoutDescriptorsCallersAreRefusedAndTheListenerRests) {
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    Cluster cluster(2);
    Server server(cluster);
    std::deque<Stranger> strangers;
    for (int i = 0; i < 40; ++i) strangers.emplace_back(server.address);
    {
        // The next descriptor would be beyond the limit.
        const int next = dup(0);
        close(next);
        const FileLimit none(static_cast<rlim_t>(next));
        EXPECT_TRUE(cluster.until([&] {
            return std::ranges::all_of(strangers, [](Stranger& each) { return each.is_refused(); });
        }));
        wireup::ConnectionManager* manager = nullptr;
        ASSERT_EQ(cluster.inner(0).connections(&manager), UCS_OK);
        EXPECT_FALSE(manager->has_work());
    }
    EXPECT_TRUE(log.contains("no descriptor is left"));
    ConnectionEnd client, accepted;
    server.call(client);
    server.accept(accepted);
    exchange(cluster, client, 0, 5);
}

TEST(ClientServer, IdleCallersKeepNobodyOut) {
    const FileLimit many(8192);
    Cluster cluster(2);
    Server server(cluster);
    // From one address, and from many.
    for (const int sources : {1, 100}) {
        std::deque<Stranger> idle;
        for (int i = 0; i < 1200; ++i) {
            idle.emplace_back(server.address, 2 + i % sources);
            if (i % 10 == 0) cluster.steps(2);
        }
        cluster.steps(100);
        ConnectionEnd client, accepted;
        server.call(client);
        server.accept(accepted);
        exchange(cluster, client, 0, 5);
        EXPECT_FALSE(idle.back().is_refused());
        EXPECT_TRUE(idle.front().is_refused());
        EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(client.endpoint, &kNothing)), UCS_OK);
        ASSERT_TRUE(cluster.until([&] { return accepted.errors != 0; }));
        ucp_ep_close_nbx(accepted.endpoint, &kNothing);
    }
}

// UCX_TCP_JOB_KEY as long as it lives: each worker looks when it first needs it.
class JobKey {
  public:
    explicit JobKey(const char* key) { setenv("UCX_TCP_JOB_KEY", key, 1); }
    ~JobKey() { unsetenv("UCX_TCP_JOB_KEY"); }
};

TEST(ClientServer, WhoSharesTheJobKeyIsServed) {
    const JobKey key("ours");
    Cluster cluster(2);
    Server server(cluster);
    ConnectionEnd client, accepted;
    server.call(client);
    server.accept(accepted);
    exchange(cluster, client, 0, 5);
    exchange(cluster, accepted, 1, 6);
    EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(client.endpoint, &kNothing)), UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return accepted.errors != 0; }));
    EXPECT_EQ(accepted.error, UCS_ERR_CONNECTION_RESET);
}

TEST(ClientServer, WhoHasAnotherJobKeyIsRefused) {
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    for (const char* keys : {"ours|", "ours|theirs", "|theirs"}) {
        SCOPED_TRACE(keys);
        const std::string both = keys;
        const auto bar = both.find('|');
        Cluster cluster(2);
        std::optional<JobKey> key(both.substr(0, bar).c_str());
        Server server(cluster);
        key.emplace(both.substr(bar + 1).c_str());
        ConnectionEnd client;
        server.call(client);
        ASSERT_TRUE(cluster.until([&] { return client.errors != 0; }));
        EXPECT_EQ(client.error, UCS_ERR_REJECTED);
        EXPECT_TRUE(server.requests.empty());
        EXPECT_TRUE(log.contains("UCX_TCP_JOB_KEY"));
        EXPECT_TRUE(log.contains("is refused"));
    }
}

TEST(ClientServer, WhoDoesNotKnowTheJobKeyLearnsNothing) {
    const JobKey key("a word that nobody else knows");
    Cluster cluster(2);
    Server server(cluster);
    Stranger stranger(server.address);
    const wireup::Call call = wireup::new_call("any");
    stranger.say({reinterpret_cast<const char*>(&call), sizeof(call)});
    wireup::Frame frame;
    frame.kind = wireup::FrameKind::kConnect;
    frame.address = {std::byte{1}};
    const auto bytes = wireup::pack_frame(frame);
    stranger.say({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    stranger.say(std::string(sizeof(ucs::net::Mac), 'x'));
    std::string heard;
    EXPECT_TRUE(cluster.until([&] { return stranger.has_ended(&heard); }));
    EXPECT_EQ(heard.size(), sizeof(wireup::CallAnswer));
    EXPECT_TRUE(server.requests.empty());
}

TEST(ClientServer, OtherProtocolsAreRefusedClearly) {
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    Cluster cluster(2);
    Server server(cluster);
    Stranger first(server.address);
    std::string version_1("SLCM\1\1\0\0", 8);
    first.say(version_1 + std::string(64, '\0'));
    EXPECT_TRUE(cluster.until([&] { return first.is_refused(); }));
    EXPECT_TRUE(log.contains("speaks version 1 of the protocol"));
    cluster.clock.advance(std::chrono::seconds(20));
    Stranger ucx(server.address);
    ucx.say(std::string("\x60\0\0\0\0\0\0\0\0", 9) + std::string(64, '\0'));
    EXPECT_TRUE(cluster.until([&] { return ucx.is_refused(); }));
    EXPECT_TRUE(log.contains("UCX's own"));
}

}  // namespace
}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause

// What a session of TCP does at its ends: how it begins, what it takes with it, what is told of it.

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <string>

#include "uct/tcp/interface/tcp_endpoint.h"
#include "uct/tcp/wire/format.h"
#include "unit/uct/tcp/association/tcp_bulk.h"
#include "unit/uct/tcp/system_calls.h"

namespace uct::test {
namespace {

namespace wire = tcp::wire;

// The handshake of somebody who keeps sessions.
wire::Hello session_hello(const RawPeer& peer) {
    wire::Hello hello = peer.hello();
    hello.flags = wire::kCanResume;
    return hello;
}

std::string frame_of(wire::FrameType type, const std::string& body) {
    const wire::FrameHeader frame{static_cast<uint32_t>(body.size()), type,
                                  static_cast<uint8_t>(type == wire::FrameType::kMessage ? 1 : 0),
                                  wire::kMark};
    return std::string(reinterpret_cast<const char*>(&frame), sizeof(frame)) + body;
}

// A listener of a peer that is driven by hand, and what tells of it.
void listen_for(TcpWorld& world, ucs::net::Socket& listener) {
    EXPECT_EQ(ucs::net::Socket::open(AF_INET, &listener), UCS_OK);
    EXPECT_EQ(listener.bind({world.device(0).ip, 0, 0}), UCS_OK);
    EXPECT_EQ(listener.listen(), UCS_OK);
}
std::string routes_to(TcpWorld& world, const ucs::net::Socket& listener) {
    wire::Route route{};
    world.device(0).write(route.device);
    route.port = listener.local().port();
    return frame_of(wire::FrameType::kRoutes,
                    std::string(reinterpret_cast<const char*>(&route), sizeof(route)));
}

TEST(TcpSessions, APeerThatNeverStopsSendingIsReadToTheEndAllTheSame) {
    TcpWorld world(1, kSessions);
    RawPeer first(world, 0), second(world, 0);
    wire::Hello hello = session_hello(first);
    std::string stream;
    const wire::Welcome welcome = first.shake_hands(hello, &stream);
    ASSERT_EQ(welcome.answer, wire::Answer::kWelcome);
    constexpr int kMaxSent = 3000;
    int sent = 0;
    const std::string message = frame_of(wire::FrameType::kMessage, "12345678");
    const auto send_one = [&] {
        ++sent;
        return ::send(first.socket_number(), message.data(), message.size(), MSG_NOSIGNAL) > 0;
    };
    world.peer(0).on_message = [&](const Message&) {
        if (sent < kMaxSent) send_one();
    };
    ASSERT_TRUE(send_one());
    hello.flags |= wire::kResumes;
    hello.peer_association = welcome.association;
    hello.attempt = 1;
    hello.received = stream.size();
    EXPECT_EQ(second.shake_hands(hello, nullptr, first.session_key()).answer,
              wire::Answer::kWelcome);
    EXPECT_LT(sent, kMaxSent);
    world.peer(0).on_message = nullptr;
    world.tcp(0).abandon();
}

TEST(TcpSessions, ABusyOneAsksTheKernelSeldom) {
    TcpWorld world(2, kSessions);
    Endpoint& endpoint = world.connect(0, 1);
    send_bcopy(world, endpoint, 1, "first");
    world.until([&] { return world.peer(1).received.size() == 1; });
    // The peer reads no more: something of what is sent is under way all the time.
    world.peer(1).runs = false;
    std::string data(4096, 'x');
    for (int sent = 0; sent < 1000000; ++sent) {
        const ssize_t result = endpoint.am_bcopy(
            1,
            [](void* to, void* arg) {
                const auto& bytes = *static_cast<std::string*>(arg);
                std::memcpy(to, bytes.data(), bytes.size());
                return bytes.size();
            },
            &data);
        if (result == UCS_ERR_NO_RESOURCE) break;
    }
    constexpr int kTicks = 40;
    system_calls.is_answered = true;
    system_calls.questions = 0;
    for (int tick = 0; tick < kTicks; ++tick) {
        world.clock.advance(std::chrono::milliseconds(25));
        // Sessions are looked after in every 64th call.
        world.peer(0).interface->look_soon();
        for (int call = 0; call < 64; ++call) world.peer(0).interface->progress();
    }
    // It is looked at five times a second, by two calls.
    EXPECT_GT(system_calls.questions, 0u);
    EXPECT_LE(system_calls.questions, 12u);
    system_calls.is_answered = false;
    world.peer(1).runs = true;
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
}

// What comes from the peer is an answer as well. Without sessions it is the same.
TEST(TcpSessions, WhosePeerIsHeardAsksTheKernelNothing) {
    for (const Settings& settings : {kSessions, Settings{}}) {
        TcpWorld world(2, settings);
        Endpoint& there = world.connect(0, 1);
        Endpoint& back = world.connect(1, 0);
        size_t messages = 0;
        const auto exchange = [&] {
            ++messages;
            send_bcopy(world, there, 1, "a question");
            send_bcopy(world, back, 1, "an answer");
            world.until([&] {
                return world.peer(0).received.size() == messages &&
                       world.peer(1).received.size() == messages;
            });
            world.clock.advance(std::chrono::milliseconds(25));
            for (size_t peer = 0; peer < 2; ++peer) {
                world.peer(peer).interface->look_soon();
                for (int call = 0; call < 64; ++call) world.peer(peer).interface->progress();
            }
        };
        for (int tick = 0; tick < 10; ++tick) exchange();
        system_calls.questions = 0;
        for (int tick = 0; tick < 200; ++tick) exchange();
        EXPECT_EQ(system_calls.questions, 0u);
        // Nobody is heard any more: that all has arrived is found out, and nobody is looked after.
        world.until([&] {
            world.clock.advance(std::chrono::milliseconds(25));
            return world.peer(0).interface->next_deadline() == ucs::kNever &&
                   world.peer(1).interface->next_deadline() == ucs::kNever;
        });
        EXPECT_GT(system_calls.questions, 0u);
    }
}

TEST(TcpSessions, AWelcomeThatWasLostIsSaidAgain) {
    for (const bool is_noticed : {false, true}) {
        TcpWorld world(1, kSessions);
        RawPeer first(world, 0), second(world, 0);
        const wire::Hello hello = session_hello(first);
        std::string routes, again;
        ASSERT_EQ(first.shake_hands(hello, &routes).answer, wire::Answer::kWelcome);
        if (is_noticed) {
            first.close();
            world.progress_some(20);
        }
        EXPECT_EQ(second.shake_hands(hello, &again).answer, wire::Answer::kWelcome);
        EXPECT_FALSE(routes.empty());
        EXPECT_EQ(again, routes);
        second.send(frame_of(wire::FrameType::kMessage, "12345678"));
        world.until([&] { return world.peer(0).received.size() == 1; });
        world.tcp(0).abandon();
    }
}

TEST(TcpSessions, RoutesThatNameNoWayTakeNoneAway) {
    TcpWorld world(1, kSessions);
    RawPeer peer(world, 0);
    ASSERT_EQ(peer.shake_hands(session_hello(peer)).answer, wire::Answer::kWelcome);
    ucs::net::Socket listener;
    listen_for(world, listener);
    peer.send(routes_to(world, listener));
    peer.send(frame_of(wire::FrameType::kRoutes, ""));
    peer.close();
    ucs::net::Socket accepted;
    world.until([&] { return listener.accept(&accepted) == UCS_OK; });
    ASSERT_TRUE(accepted);
    wire::Hello hello{};
    world.until([&] { return accepted.receive(&hello, sizeof(hello)) == sizeof(hello); });
    EXPECT_EQ(hello.flags & wire::kResumes, wire::kResumes);
    // It proves to know what the first handshake has given both, and nobody else.
    wire::Challenge challenge{};
    challenge.magic = wire::kMagic;
    challenge.version = wire::kVersion;
    challenge.oldest = wire::kOldestVersion;
    challenge.answer = wire::Answer::kProve;
    ASSERT_EQ(accepted.send(&challenge, sizeof(challenge)), ssize_t{sizeof(challenge)});
    wire::Proof proof{};
    world.until([&] { return accepted.receive(&proof, sizeof(proof)) == sizeof(proof); });
    EXPECT_EQ(proof, wire::client_proof(peer.session_key(), hello, challenge));
    world.tcp(0).abandon();
}

// The kernel of a peer that is stopped has answered, and the program does in the end: with a reset,
// as a busy listener may.
TEST(TcpSessions, AHandshakeThatThePeerIsTooBusyForIsNoTrouble) {
    TcpWorld world(1, kSessions);
    RawPeer peer(world, 0);
    ASSERT_EQ(peer.shake_hands(session_hello(peer)).answer, wire::Answer::kWelcome);
    ucs::net::Socket listener, accepted;
    listen_for(world, listener);
    peer.send(routes_to(world, listener));
    peer.close();
    world.until([&] { return listener.accept(&accepted) == UCS_OK; });
    for (int i = 0; i < 600; ++i) {
        world.clock.advance(std::chrono::milliseconds(100));
        for (int call = 0; call < 64; ++call) world.peer(0).interface->progress();
    }
    accepted.reset_on_close();
    accepted.close();
    world.until([&] {
        world.clock.advance(std::chrono::milliseconds(1));
        return listener.accept(&accepted) == UCS_OK;
    });
    world.tcp(0).abandon();
}

TEST(TcpSessions, AnOutageThatIsOverIsForgotten) {
    TcpWorld world(2, kSessions);
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    tcp::Session* session = static_cast<tcp::TcpEndpoint&>(endpoint).association().session();
    ASSERT_NE(session, nullptr);
    session->suspect("no link");
    session->on_carrier(world.tcp(0).device(), true);
    world.clock.advance(std::chrono::hours(1));
    {
        const NoDescriptors none;
        break_connections(world, 0, 0);
        for (int i = 0; i < 5; ++i) world.peer(0).interface->progress();
    }
    world.expect_traffic(0, 1);
    EXPECT_TRUE(world.peer(0).failures.empty());
}

// A session whose connection breaks while there is no way to make another.
class TcpTrouble : public testing::Test {
  protected:
    TcpTrouble() : endpoint_(world_.connect(0, 1)) { world_.expect_traffic(0, 1); }

    tcp::Session& session() {
        return *static_cast<tcp::TcpEndpoint&>(endpoint_).association().session();
    }
    void break_connection() {
        break_connections(world_, 0, 0);
        progress();
    }
    void progress() {
        // Sessions are looked after in every 64th call.
        for (int call = 0; call < 64; ++call) world_.peer(0).interface->progress();
    }
    // Looks on for so long, or until the endpoint fails. @return how long that was
    ucs::Duration pass(ucs::Duration span) {
        constexpr auto kStep = std::chrono::milliseconds(100);
        ucs::Duration passed{};
        for (; passed < span && world_.peer(0).failures.empty(); passed += kStep) {
            world_.clock.advance(kStep);
            progress();
        }
        return passed;
    }

    TcpWorld world_{2, kSessions};
    Endpoint& endpoint_;
};

TEST_F(TcpTrouble, ThatLastsIsADeath) {
    const NoDescriptors none;
    break_connection();
    const ucs::Duration passed = pass(std::chrono::seconds(60));
    ASSERT_EQ(world_.peer(0).failures.size(), 1u);
    EXPECT_EQ(world_.peer(0).failures[0].status, UCS_ERR_ENDPOINT_TIMEOUT);
    EXPECT_GE(passed, std::chrono::seconds(16));
    EXPECT_LE(passed, std::chrono::seconds(18));
}

TEST_F(TcpTrouble, IsNotCountedWhileThisProcessIsStopped) {
    session().suspect("no answer");
    world_.clock.advance(std::chrono::hours(1));
    {
        const NoDescriptors none;
        break_connection();
        pass(std::chrono::seconds(5));
        world_.clock.advance(std::chrono::hours(1));
        pass(std::chrono::seconds(2));
    }
    ASSERT_TRUE(world_.peer(0).failures.empty());
    world_.expect_traffic(0, 1);
}

TEST_F(TcpTrouble, LastsAsLongAsTheSilenceThatEndedTheConnection) {
    {
        const NoDescriptors none;
        break_connection();
        session().broken(ETIMEDOUT, std::chrono::seconds(4));
        pass(std::chrono::seconds(5));
    }
    ASSERT_TRUE(world_.peer(0).failures.empty());
    world_.expect_traffic(0, 1);
    const NoDescriptors none;
    break_connection();
    session().broken(ETIMEDOUT, std::chrono::hours(1));
    EXPECT_LE(pass(std::chrono::seconds(60)), std::chrono::seconds(4));
    EXPECT_EQ(world_.peer(0).failures.size(), 1u);
}

TEST(TcpSessions, LargeWritesBelongToThemThoughNoMessageWasSentBefore) {
    TcpWorld world(2, {{"TCP_FAILOVER", "y"}, {"TCP_SNDBUF", "8k"}, {"TCP_RCVBUF", "8k"}});
    Endpoint& endpoint = world.connect(0, 1);
    constexpr size_t kSize = 1 << 20;
    Buffer source(world.peer(0), kSize, 'n'), target(world.peer(1), kSize, '.');
    const Iov from[] = {source.iov(0, kSize)};
    Waiter put;
    ASSERT_EQ(endpoint.put_zcopy(from, target.address(), target.key_for(world.peer(0)), &put),
              UCS_INPROGRESS);
    world.until([&] { return target.data()[0] == 'n'; });
    for (const unsigned index : {0, 1}) break_connections(world, 0, index);
    world.until([&] { return put.done; });
    EXPECT_EQ(put.status, UCS_OK);
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    EXPECT_EQ(target.text(), source.text());
    EXPECT_TRUE(world.peer(0).failures.empty());
}

TEST(TcpSessions, ACutSaysWhatItThrowsAway) {
    Settings settings = kNarrow;
    settings.emplace_back("TCP_CONNECTIONS", "1");
    TcpWorld world(2, settings);
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    world.peer(1).runs = false;
    send_bcopy(world, endpoint, 1, "under way");
    EXPECT_EQ(endpoint.flush(nullptr), UCS_OK);
    break_connections(world, 0, 0);
    world.progress_some(5);
    ASSERT_EQ(world.peer(0).interface->cut_off(world.address_of(1), 1), UCS_OK);
    ASSERT_EQ(world.peer(0).failures.size(), 1u);
    EXPECT_EQ(world.peer(0).failures[0].endpoint, &endpoint);
    EXPECT_EQ(world.peer(0).failures[0].status, UCS_ERR_CONNECTION_RESET);
}

}  // namespace
}  // namespace uct::test

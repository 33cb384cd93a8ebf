// SPDX-License-Identifier: BSD-3-Clause

// Who is let in, and what becomes of those who break the rules once they are in.

#include <deque>
#include <functional>
#include <random>

#include "ucs/log/log.h"
#include "unit/ucs/log/log_capture.h"
#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {
namespace {

using tcp::wire::Answer;
using tcp::wire::Challenge;
using tcp::wire::FrameHeader;
using tcp::wire::FrameType;
using tcp::wire::Hello;
using tcp::wire::key_of;
using tcp::wire::Welcome;

template <typename T>
std::string bytes_of(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

std::string random_bytes(std::mt19937_64& random) {
    std::string bytes(1 + random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
}

TEST(TcpStrangers, WrongHandshakesAreRefused) {
    TcpWorld world;
    const struct {
        const char* what;
        std::function<void(Hello&)> change;
    } rows[] = {
        {"magic", [](Hello& hello) { hello.magic ^= 1; }},
        {"version", [](Hello& hello) { hello.version = 2; }},
        {"a version to come", [](Hello& hello) { hello.version = hello.oldest = 4; }},
        {"another receiver", [](Hello& hello) { ++hello.receiver; }},
        {"no sender", [](Hello& hello) { hello.sender = 0; }},
        {"connection", [](Hello& hello) { hello.connection = tcp::wire::kMaxConnections; }},
    };
    for (const auto& row : rows) {
        SCOPED_TRACE(row.what);
        RawPeer stranger(world, 1);
        Hello hello = stranger.hello();
        row.change(hello);
        stranger.send(hello);
        // What follows a wrong handshake is never looked at.
        stranger.send(bytes_of(FrameHeader{0, FrameType::kMessage, 1, tcp::wire::kMark}));
        world.until([&] { return (stranger.read(), stranger.is_closed()); });
        EXPECT_EQ(world.tcp(1).handshakes(), 0u);
    }
    EXPECT_TRUE(world.peer(1).received.empty());
    EXPECT_EQ(world.tcp(1).open_connections(), 0u);
    world.expect_traffic(0, 1);
}

TEST(TcpStrangers, RandomBytesAreRefused) {
    TcpWorld world;
    std::mt19937_64 random(7);
    for (int i = 0; i < 50; ++i) {
        RawPeer stranger(world, 1);
        const std::string bytes = random_bytes(random);
        stranger.send(bytes);
        if (bytes.size() < sizeof(Hello)) {
            world.progress_some(20);
            stranger.close();
        } else {
            world.until([&] { return stranger.is_closed(); });
        }
    }
    world.until([&] { return world.tcp(1).handshakes() == 0; });
    world.expect_traffic(0, 1);
}

TEST(TcpStrangers, WhoSaysNothingIsPutOutInTime) {
    TcpWorld world(2, {{"TCP_HELLO_TIMEOUT", "50ms"}});
    RawPeer silent(world, 1), halting(world, 1);
    halting.send(std::string(bytes_of(halting.hello()), 0, 20));
    world.until([&] { return world.tcp(1).handshakes() == 2; });
    world.expect_traffic(0, 1);
    EXPECT_FALSE(silent.is_closed());
    world.clock.advance(std::chrono::milliseconds(60));
    world.until([&] { return silent.is_closed() && halting.is_closed(); });
    EXPECT_EQ(world.tcp(1).handshakes(), 0u);
}

TEST(TcpStrangers, AHandshakeMayComeByteByByte) {
    TcpWorld world;
    RawPeer slow(world, 1);
    const Hello hello = slow.hello();
    const auto say = [&](const std::string& bytes) {
        for (const char byte : bytes) {
            slow.send(byte);
            world.progress_some(3);
        }
    };
    say(bytes_of(hello));
    const auto challenge = slow.read_one<Challenge>();
    ASSERT_TRUE(challenge);
    EXPECT_EQ(challenge->answer, Answer::kProve);
    say(bytes_of(client_proof(key_of(world.listener(1).secret, ""), hello, *challenge)));
    world.until([&] { return world.tcp(1).open_connections() == 1; });
}

TEST(TcpStrangers, TenThousandKnockAndTheJobGoesOn) {
    TcpWorld world(2, {{"TCP_MAX_HANDSHAKES", "16"}, {"TCP_JOB_KEY", "ours"}});
    Endpoint& endpoint = world.connect(0, 1);
    std::mt19937_64 random(7);
    std::deque<RawPeer> knocking;
    size_t sent = 0;
    for (int i = 0; i < 10000; ++i) {
        RawPeer& stranger = knocking.emplace_back(world, 1);
        if (i % 4 == 1) stranger.send(random_bytes(random));
        if (i % 4 == 2) stranger.send(std::string(bytes_of(stranger.hello()), 0, 40));
        if (i % 4 == 3) {  // without the job's key
            stranger.send(stranger.hello());
            stranger.send(std::string(sizeof(tcp::wire::Proof), 'x'));
        }
        if (knocking.size() > 100) knocking.pop_front();
        if (i % 10 != 0) continue;
        world.progress_some(3);
        ASSERT_LE(world.tcp(1).handshakes(), 16u);
        send_short(world, endpoint, 2, sent++, "");
    }
    EXPECT_EQ(flush(world, endpoint), UCS_OK);
    world.until([&] { return world.peer(1).received.size() == sent; });
    EXPECT_TRUE(world.peer(0).failures.empty());
}

TEST(TcpStrangers, AJobKeyKeepsOtherJobsOut) {
    TcpWorld world(2, {{"TCP_JOB_KEY", "ours"}});
    for (const char* key : {"", "Ours", "ours ", "theirs"}) {
        SCOPED_TRACE(key);
        RawPeer other(world, 1);
        const auto welcome =
            other.shake_hands(other.hello(), nullptr, key_of(world.listener(1).secret, key));
        EXPECT_EQ(welcome.answer, Answer::kNoProof);
        // Nothing that the listener says helps to find the key.
        EXPECT_EQ(welcome.seal, ucs::net::Mac{});
        world.until([&] { return (other.read(), other.is_closed()); });
    }
    RawPeer own(world, 1);
    EXPECT_EQ(
        own.shake_hands(own.hello(), nullptr, key_of(world.listener(1).secret, "ours")).answer,
        Answer::kWelcome);
    world.expect_traffic(0, 1);
}

TEST(TcpStrangers, WhoKnowsTheJobKeyAloneIsRefused) {
    TcpWorld world(2, {{"TCP_JOB_KEY", "ours"}});
    const tcp::wire::Secret secret = world.listener(1).secret;
    for (const tcp::wire::Secret& guess :
         {tcp::wire::Secret{}, {secret[0] ^ 1, secret[1]}, {secret[0], secret[1] ^ 1}}) {
        RawPeer other(world, 1);
        const auto welcome = other.shake_hands(other.hello(), nullptr, key_of(guess, "ours"));
        EXPECT_EQ(welcome.answer, Answer::kNoProof);
    }
}

TEST(TcpStrangers, AnAcceptedHandshakeCannotBeReplayed) {
    TcpWorld world;
    const auto key = key_of(world.listener(1).secret, "");
    RawPeer honest(world, 1), thief(world, 1);
    const Hello hello = honest.hello();
    const auto challenge = honest.ask(hello);
    ASSERT_TRUE(challenge);
    honest.prove(*challenge);
    ASSERT_EQ(honest.read_one<Welcome>()->answer, Answer::kWelcome);
    const auto other = thief.ask(hello);
    ASSERT_TRUE(other);
    EXPECT_NE(other->nonce, challenge->nonce);
    thief.send(client_proof(key, hello, *challenge));
    EXPECT_EQ(thief.read_one<Welcome>()->answer, Answer::kNoProof);
}

TEST(TcpStrangers, AWelcomeIsBoundToAllThatWasSaid) {
    TcpWorld world;
    RawPeer peer(world, 1);
    Welcome welcome = peer.shake_hands(peer.hello());
    ASSERT_EQ(welcome.answer, Answer::kWelcome);
    EXPECT_TRUE(peer.is_sealed(welcome));
    ++welcome.association;
    EXPECT_FALSE(peer.is_sealed(welcome));
}

TEST(TcpStrangers, WhoCannotProveToBeThePeerGetsNothing) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    TcpWorld world(2, {{"TCP_JOB_KEY", "our common word"}});
    Impostor impostor(world);
    std::unique_ptr<Endpoint> endpoint;
    ASSERT_EQ(world.peer(0).interface->create_endpoint(impostor.address(), &endpoint), UCS_OK);
    EXPECT_EQ(endpoint->am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
    impostor.hear<Hello>();
    impostor.say(impostor.challenge());
    const auto proof = impostor.hear<tcp::wire::Proof>();
    Welcome welcome = tcp::AuthenticatedPeer::answer(Answer::kWelcome);
    welcome.max_frame = static_cast<uint32_t>(world.tcp(0).max_message());
    welcome.association = 1;
    welcome.seal = proof;  // its own words back
    impostor.say(welcome);
    impostor.expect_given_up();
    EXPECT_TRUE(log.contains("cannot prove to be of this job"));
    // Neither key nor secret has travelled.
    const tcp::wire::Secret secret = world.listener(1).secret;
    EXPECT_EQ(impostor.heard().find("our common word"), std::string::npos);
    EXPECT_EQ(impostor.heard().find(bytes_of(secret[0])), std::string::npos);
    endpoint.reset();
}

TEST(TcpStrangers, AnotherVersionIsRefusedOnceAndClearly) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    TcpWorld world;
    Impostor later(world);
    std::unique_ptr<Endpoint> endpoint;
    ASSERT_EQ(world.peer(0).interface->create_endpoint(later.address(), &endpoint), UCS_OK);
    EXPECT_EQ(endpoint->am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
    later.hear<Hello>();
    Challenge refusal = later.challenge();
    refusal.version = 9;
    refusal.oldest = 8;
    refusal.answer = Answer::kOtherVersion;
    later.say(refusal);
    later.expect_given_up();
    EXPECT_TRUE(log.contains("speaks versions 8 to 9"));
    endpoint.reset();
}

TEST(TcpStrangers, TheListenerTellsWhichVersionsItSpeaks) {
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    TcpWorld world;
    for (const uint16_t version : {uint16_t{2}, uint16_t{7}}) {
        RawPeer other(world, 1);
        Hello hello = other.hello();
        hello.version = hello.oldest = version;
        const auto answer = other.ask(hello);
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->answer, Answer::kOtherVersion);
        EXPECT_EQ(answer->version, tcp::wire::kVersion);
        EXPECT_EQ(answer->oldest, tcp::wire::kOldestVersion);
        world.until([&] { return (other.read(), other.is_closed()); });
    }
    EXPECT_TRUE(log.contains("speaks versions 2 to 2"));
    // A later one that speaks this one as well is welcome.
    RawPeer later(world, 1);
    Hello hello = later.hello();
    hello.version = 7;
    const auto answer = later.ask(hello);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->answer, Answer::kProve);
    EXPECT_EQ(answer->version, tcp::wire::kVersion);
    later.prove(*answer);
    EXPECT_EQ(later.read_one<Welcome>()->answer, Answer::kWelcome);
}

TEST(TcpStrangers, BrokenFramesEndTheirConnectionOnly) {
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    TcpWorld world;
    Buffer target(world.peer(1), 64, '.');
    const uint64_t key = target.key_for(world.peer(0));
    const auto frame = [](uint32_t length, FrameType type, uint8_t id = 0,
                          uint16_t mark = tcp::wire::kMark) {
        return bytes_of(FrameHeader{length, type, id, mark});
    };
    const auto limit = static_cast<uint32_t>(world.tcp(1).max_message());
    const std::string get = bytes_of(tcp::wire::Get{target.address(), key, 8, 0, 1, 0});
    const struct {
        const char* what;
        std::string bytes;
    } rows[] = {
        {"no mark", frame(0, FrameType::kMessage, 1, 0)},
        {"type zero", frame(0, FrameType{0})},
        {"unknown type", frame(0, FrameType{15})},
        {"routes of the wrong size", frame(31, FrameType::kRoutes)},
        {"message too long", frame(limit + 1, FrameType::kMessage, 1)},
        {"message of no kind", frame(0, FrameType::kMessage, kMaxAmId)},
        {"put shorter than its header", frame(23, FrameType::kPut)},
        {"put without end", frame(~0u, FrameType::kPut)},
        {"put with an id", frame(24, FrameType::kPut, 1)},
        {"get of the wrong size", frame(31, FrameType::kGet)},
        {"atomic of the wrong size", frame(40, FrameType::kAtomic)},
        {"flush of the wrong size", frame(16, FrameType::kFlush)},
        {"leave with something", frame(8, FrameType::kLeave)},
        {"get reply unasked", frame(16, FrameType::kGetReply) + std::string(16, 'x')},
        {"atomic reply unasked", frame(16, FrameType::kAtomicReply) + std::string(16, 'x')},
        {"flush reply unasked", frame(8, FrameType::kFlushReply) + std::string(8, '\0')},
    };
    for (const auto& row : rows) {
        SCOPED_TRACE(row.what);
        RawPeer bad(world, 1);
        bad.enter();
        bad.send(frame(32, FrameType::kGet) + get + row.bytes);
        world.until([&] { return (bad.read(), bad.is_closed()); });
        EXPECT_TRUE(log.contains("breaks the protocol"));
    }
    EXPECT_EQ(target.text(), std::string(64, '.'));
    EXPECT_TRUE(world.peer(1).received.empty());
    EXPECT_TRUE(world.peer(1).failures.empty());
    world.expect_traffic(0, 1);
}

TEST(TcpStrangers, OperationsOutsideOfRegisteredMemoryAreRefusedAndTouchNothing) {
    TcpWorld world;
    Buffer target(world.peer(1), 64, '.');
    const uint64_t key = target.key_for(world.peer(0)), at = target.address();
    RawPeer peer(world, 1);
    peer.enter();
    const auto refused = [&](FrameType type, const std::string& body) {
        const FrameHeader head{static_cast<uint32_t>(body.size()), type, 0, tcp::wire::kMark};
        peer.send(bytes_of(head) + body + std::string(tcp::wire::padding(body.size()), '\0'));
        std::string answer;
        world.until([&] {
            answer += peer.read();
            return answer.size() >= 16;
        });
        return answer.size() == 16 &&
               answer[offsetof(FrameHeader, type)] == static_cast<char>(FrameType::kRefused);
    };
    const auto put = [&](uint64_t address, uint64_t with, size_t length) {
        return refused(FrameType::kPut,
                       bytes_of(tcp::wire::Put{address, with, 9, 0}) + std::string(length, 'x'));
    };
    EXPECT_TRUE(put(at, key + 1, 8));
    EXPECT_TRUE(put(at - 1, key, 8));
    EXPECT_TRUE(put(at + 57, key, 8));
    EXPECT_TRUE(put(at, key, 65));
    EXPECT_TRUE(put(at + 65, key, 0));
    EXPECT_TRUE(put(~uint64_t{0}, key, 3));
    const auto get = [&](uint64_t address, uint64_t with, uint32_t length) {
        return refused(FrameType::kGet, bytes_of(tcp::wire::Get{address, with, length, 9, 1, 0}));
    };
    EXPECT_TRUE(get(at, key + 1, 8));
    EXPECT_TRUE(get(at, key, 65));
    EXPECT_TRUE(get(at - 8, key, 8));
    EXPECT_TRUE(get(at + 60, key, ~0u));
    const auto atomic = [&](uint64_t address, uint8_t code, uint8_t size) {
        tcp::wire::Atomic request{};
        request.address = address;
        request.key = key;
        request.operand = 1;
        request.code = code;
        request.size = size;
        return refused(FrameType::kAtomic, bytes_of(request));
    };
    EXPECT_TRUE(atomic(at + 64, 1, 8));
    EXPECT_TRUE(atomic(at + 4, 1, 8));
    EXPECT_TRUE(atomic(at, 0, 8));
    EXPECT_TRUE(atomic(at, 3, 8));
    EXPECT_TRUE(atomic(at, 64, 8));
    EXPECT_TRUE(atomic(at, 1, 2));
    EXPECT_EQ(target.text(), std::string(64, '.'));
    EXPECT_FALSE(peer.is_closed());
    world.expect_traffic(0, 1);
}

}  // namespace
}  // namespace uct::test

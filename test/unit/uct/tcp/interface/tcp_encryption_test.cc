// SPDX-License-Identifier: BSD-3-Clause

// Connections that are encrypted, and what somebody on the way hears and can do.

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <string>
#include <tuple>

#include "ucs/log/log.h"
#include "uct/tcp/component.h"
#include "unit/ucs/log/log_capture.h"
#include "unit/uct/tcp/tcp_world.h"

namespace uct::test {
namespace {

using tcp::wire::Answer;
using tcp::wire::Hello;
using tcp::wire::Welcome;
using ucs::net::Socket;

const std::string kSecretText = "what nobody else is to read, by no means at all";
const Settings kOneConnection = {{"TCP_CONNECTIONS", "1"}};
const Settings kClear = with({{"TCP_JOB_KEY", "our common word"}}, kOneConnection);
const Settings kSecret = with(kEncrypted, kOneConnection);

// Who says it.
enum Side : size_t { kConnects, kListens };

// Somebody on the way to a listener, who hears all and may change it.
class Wiretap {
  public:
    explicit Wiretap(TcpWorld& world, size_t target) : world_(world), target_(target) {
        EXPECT_EQ(Socket::open(AF_INET, &listener_), UCS_OK);
        EXPECT_EQ(listener_.bind({world.device(target).ip, 0, 0}), UCS_OK);
        EXPECT_EQ(listener_.listen(), UCS_OK);
        interface_.resize(tcp::ListenerAddress::kLength);
        tcp::ListenerAddress here = world.listener(target);
        here.port = listener_.local().port();
        here.write(interface_);
    }
    // Of the listener, by way of here.
    RemoteAddress address() {
        RemoteAddress remote = world_.address_of(target_);
        remote.interface = interface_;
        return remote;
    }

    struct Line {
        std::array<Socket, 2> ends;
        std::array<std::string, 2> heard{}, waiting{};
        size_t number = 0;
    };
    // May change what one end says, or close the line.
    std::function<void(Line&, Side, std::string&)> on_words;

    void carry() {
        Socket caller;
        while (listener_.accept(&caller) == UCS_OK) {
            Line& line = lines_.emplace_back();
            line.number = lines_.size();
            line.ends[kConnects] = std::move(caller);
            EXPECT_EQ(Socket::open(AF_INET, &line.ends[kListens]), UCS_OK);
            const ucs::net::SocketAddress to(world_.device(target_).ip,
                                             world_.listener(target_).port, 0);
            EXPECT_EQ(line.ends[kListens].connect(to), UCS_INPROGRESS);
        }
        for (Line& line : lines_) {
            for (const Side side : {kConnects, kListens}) carry(line, side);
        }
    }
    static void close(Line& line) {
        for (Socket& end : line.ends) end.close();
    }
    std::deque<Line>& lines() { return lines_; }

  private:
    void carry(Line& line, Side side) {
        Socket& from = line.ends[side];
        Socket& to = line.ends[1 - side];
        if (!from || !to) return;
        char bytes[4096];
        const ssize_t got = from.read(bytes, sizeof(bytes));
        if (got > 0) {
            std::string words(bytes, static_cast<size_t>(got));
            line.heard[side] += words;
            if (on_words) on_words(line, side, words);
            line.waiting[side] += words;
        }
        std::string& waiting = line.waiting[side];
        if (to && !waiting.empty()) {
            const ssize_t put = to.write(waiting.data(), waiting.size());
            if (put > 0) waiting.erase(0, static_cast<size_t>(put));
        }
        if (got < 0) close(line);
    }

    TcpWorld& world_;
    size_t target_;
    Socket listener_;
    std::vector<std::byte> interface_;
    std::deque<Line> lines_;
};

// From the first peer of one world to the second of another, or of the same.
class Path {
  public:
    Path(TcpWorld& from, TcpWorld& to) : tap(to, 1), from_(from), to_(to) {
        EXPECT_EQ(from.peer(0).interface->create_endpoint(tap.address(), &endpoint), UCS_OK);
    }
    template <typename Condition>
    void until(Condition&& condition) {
        from_.until([&] {
            tap.carry();
            if (&to_ != &from_) to_.progress();
            return condition();
        });
    }
    // A message, when it has been sent or cannot be.
    ucs_status_t send(const std::string& text) {
        ucs_status_t status = UCS_ERR_NO_RESOURCE;
        until([&] {
            status = endpoint->am_short(1, 7, text.data(), static_cast<uint32_t>(text.size()));
            return status != UCS_ERR_NO_RESOURCE;
        });
        return status;
    }
    bool has_received(size_t count) const { return to_.peer(1).received.size() == count; }

    Wiretap tap;
    std::unique_ptr<Endpoint> endpoint;

  private:
    TcpWorld& from_;
    TcpWorld& to_;
};

// A message, a put and the answer to a get, all of the same text. @return was it heard?
std::array<bool, 2> is_heard(const Settings& settings) {
    TcpWorld world(2, settings);
    Path path(world, world);
    Buffer source(world.peer(0), 65536), target(world.peer(1), 65536), into(world.peer(0), 65536);
    for (size_t at = 0; at + kSecretText.size() < source.size(); at += kSecretText.size()) {
        kSecretText.copy(source.data() + at, kSecretText.size());
    }
    const RemoteKey key = target.key_for(world.peer(0));
    EXPECT_EQ(path.send(kSecretText), UCS_OK);
    Waiter put, got;
    const Iov from[] = {source.iov(0, source.size())}, to[] = {into.iov(0, into.size())};
    put.done = path.endpoint->put_zcopy(from, target.address(), key, &put) == UCS_OK;
    EXPECT_EQ(path.endpoint->get_zcopy(to, target.address(), key, &got), UCS_INPROGRESS);
    path.until([&] { return put.done && got.done && path.has_received(1); });
    EXPECT_EQ(world.peer(1).received[0].data.substr(8), kSecretText);
    EXPECT_EQ(target.text(), source.text());
    EXPECT_EQ(into.text(), source.text());
    std::array<bool, 2> heard{};
    for (const Wiretap::Line& line : path.tap.lines()) {
        for (const Side side : {kConnects, kListens}) {
            EXPECT_GT(line.heard[side].size(), source.size());
            heard[side] |= line.heard[side].find(kSecretText) != std::string::npos;
        }
    }
    return heard;
}

TEST(TcpEncryption, NobodyOnTheWayReadsAnything) {
    EXPECT_EQ(is_heard(kClear), (std::array{true, true}));
    EXPECT_EQ(is_heard(kSecret), (std::array{false, false}));
}

TEST(TcpEncryption, WhatIsChangedOnTheWayEndsTheConnectionAndIsNotDelivered) {
    for (const bool is_last : {false, true}) {
        ucs::LogCapture log(ucs::LogLevel::kError);
        TcpWorld world(2, kSecret);
        Path path(world, world);
        ASSERT_EQ(path.send("before"), UCS_OK);
        path.until([&] { return path.has_received(1); });
        path.tap.on_words = [&](Wiretap::Line&, Side side, std::string& words) {
            if (side == kConnects) (is_last ? words.back() : words.front()) ^= 1;
        };
        EXPECT_EQ(path.send("changed"), UCS_OK);
        EXPECT_EQ(path.send("after"), UCS_OK);
        path.until([&] { return !world.peer(0).failures.empty(); });
        EXPECT_EQ(world.peer(0).failures[0].status, UCS_ERR_CONNECTION_RESET);
        EXPECT_TRUE(path.has_received(1));
        EXPECT_TRUE(log.contains("is not what was sent"));
        world.expect_traffic(0, 1);
    }
}

TEST(TcpEncryption, AnAnswerThatIsChangedFailsWhoWaitsForIt) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    TcpWorld world(2, kSecret);
    Path path(world, world);
    ASSERT_EQ(path.send("before"), UCS_OK);
    path.until([&] { return path.has_received(1); });
    Buffer target(world.peer(1), 64, 't'), into(world.peer(0), 64, '.');
    path.tap.on_words = [&](Wiretap::Line&, Side side, std::string& words) {
        if (side == kListens) words[words.size() / 2] ^= 1;
    };
    Waiter got;
    const Iov to[] = {into.iov(0, into.size())};
    ASSERT_EQ(path.endpoint->get_zcopy(to, target.address(), target.key_for(world.peer(0)), &got),
              UCS_INPROGRESS);
    path.until([&] { return got.done; });
    EXPECT_LT(got.status, 0);
    EXPECT_EQ(into.text(), std::string(64, '.'));
}

TEST(TcpEncryption, WhatWasHeardIsWorthNothingLater) {
    TcpWorld world(2, kSecret);
    Path path(world, world);
    ASSERT_EQ(path.send("once"), UCS_OK);
    path.until([&] { return path.has_received(1); });
    RawPeer thief(world, 1);
    thief.send(path.tap.lines().front().heard[kConnects]);
    world.until([&] { return (thief.read(), thief.is_closed()); });
    EXPECT_TRUE(path.has_received(1));
    EXPECT_EQ(path.send("twice"), UCS_OK);
    path.until([&] { return path.has_received(2); });
}

// @return what is logged as an error or a warning where they find that they do not fit
std::vector<std::string> refusal(const Settings& caller, const Settings& called) {
    ucs::LogCapture log(ucs::LogLevel::kWarn);
    TcpWorld from(2, caller), to(2, called);
    Path path(from, to);
    EXPECT_EQ(path.send(kSecretText), UCS_ERR_REJECTED);
    path.until([&] { return !from.peer(0).failures.empty(); });
    EXPECT_EQ(from.peer(0).failures[0].status, UCS_ERR_REJECTED);
    EXPECT_TRUE(to.peer(1).received.empty());
    EXPECT_EQ(path.tap.lines().size(), 1u);  // nobody tries again
    std::vector<std::string> lines;
    for (const auto& entry : log.entries()) lines.push_back(entry.text);
    return lines;
}

TEST(TcpEncryption, OneEndAloneIsRefusedInOneLineAtEither) {
    for (const auto& [caller, called, told, heard] :
         {std::tuple{kSecret, kClear, "this worker encrypts and it does not",
                     "encrypts and this worker does not"},
          std::tuple{kClear, kSecret, "it encrypts and this worker does not",
                     "does not encrypt and this worker does"}}) {
        const std::vector<std::string> lines = refusal(caller, called);
        ASSERT_EQ(lines.size(), 2u);
        EXPECT_NE(lines[0].find(heard), std::string::npos) << lines[0];
        EXPECT_NE(lines[1].find(told), std::string::npos) << lines[1];
        for (const std::string& line : lines) {
            EXPECT_NE(line.find("UCX_TCP_ENCRYPT"), std::string::npos);
        }
    }
}

TEST(TcpEncryption, AnotherJobKeyIsRefused) {
    const Settings other = {{"TCP_JOB_KEY", "another word"}};
    const std::vector<std::string> lines = refusal(kSecret, with(kSecret, other));
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("UCX_TCP_JOB_KEY"), std::string::npos);
}

TEST(TcpEncryption, NobodyOnTheWayCanTakeItOutOfTheHandshake) {
    for (const auto& [caller, called] : {std::tuple{kSecret, kClear}, {kClear, kSecret}}) {
        TcpWorld from(2, caller), to(2, called);
        Path path(from, to);
        path.tap.on_words = [&](Wiretap::Line& line, Side side, std::string& words) {
            if (side == kConnects && line.heard[side].size() == words.size()) {
                words[offsetof(Hello, flags)] ^= tcp::wire::kEncrypts;
            }
        };
        EXPECT_EQ(path.send(kSecretText), UCS_ERR_REJECTED);
        EXPECT_TRUE(to.peer(1).received.empty());
        for (const Wiretap::Line& line : path.tap.lines()) {
            EXPECT_EQ(line.heard[kConnects].find(kSecretText), std::string::npos);
        }
    }
}

// It knows the keys, and passes over what it does not know of capabilities.
TEST(TcpEncryption, AListenerThatDoesNotKnowOfItIsRefused) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    TcpWorld world(2, kSecret);
    Impostor older(world);
    std::unique_ptr<Endpoint> endpoint;
    ASSERT_EQ(world.peer(0).interface->create_endpoint(older.address(), &endpoint), UCS_OK);
    EXPECT_EQ(endpoint->am_short(1, 7, nullptr, 0), UCS_ERR_NO_RESOURCE);
    const auto hello = older.hear<Hello>();
    const tcp::wire::Challenge challenge = older.challenge();
    older.say(challenge);
    older.hear<tcp::wire::Proof>();
    Welcome welcome = tcp::AuthenticatedPeer::answer(Answer::kWelcome);
    welcome.max_frame = static_cast<uint32_t>(world.tcp(0).max_message());
    welcome.association = 1;
    const auto key = tcp::wire::key_of(world.listener(1).secret, "our common word");
    welcome.seal = tcp::wire::server_proof(key, hello, challenge, welcome);
    older.say(welcome);
    older.expect_given_up();
    EXPECT_TRUE(log.contains("this worker encrypts and it does not"));
    endpoint.reset();
}

TEST(TcpEncryption, EachConnectionHasAKeyOfItsOwn) {
    const tcp::wire::Key key = tcp::wire::key_of({1, 2}, "our common word");
    Hello hello{}, other_hello{};
    tcp::wire::Challenge challenge{}, other_challenge{};
    other_hello.nonce = other_challenge.nonce = ucs::net::new_nonce();
    const auto used = tcp::wire::encryption_key(key, hello, challenge);
    EXPECT_EQ(used, tcp::wire::encryption_key(key, hello, challenge));
    EXPECT_NE(used, tcp::wire::encryption_key(key, other_hello, challenge));
    EXPECT_NE(used, tcp::wire::encryption_key(key, hello, other_challenge));
    // Nothing of the handshake that is seen or handed on.
    EXPECT_NE(used, tcp::wire::client_proof(key, hello, challenge));
    EXPECT_NE(used, tcp::wire::session_key(key, hello, challenge));
}

TEST(TcpEncryption, WithoutAJobKeyNoInterfaceOpens) {
    ucs::LogCapture log(ucs::LogLevel::kError);
    TcpWorld world(1);
    std::unique_ptr<MemoryDomain> domain;
    ASSERT_EQ(tcp::component().open_domain("lo", &domain), UCS_OK);
    ucs::config::Source source;
    std::string error;
    ASSERT_EQ(source.modify("TCP_ENCRYPT", "y", error), UCS_OK);
    ucs::Random random(1);
    AmTable table;
    const InterfaceParams params{world.clock, random, table, [](void*, Endpoint*, ucs_status_t) {},
                                 nullptr,     1,      1,     &source};
    std::unique_ptr<Interface> interface;
    EXPECT_EQ(domain->open_interface("tcp", params, &interface), UCS_ERR_INVALID_PARAM);
    EXPECT_TRUE(log.contains("UCX_TCP_ENCRYPT needs UCX_TCP_JOB_KEY"));
}

// The first line breaks when one end has said so much. @return what both said until it stood
std::array<size_t, 2> break_after(Side side, size_t limit) {
    TcpWorld world(2, kSecret);
    Path path(world, world);
    path.tap.on_words = [&](Wiretap::Line& line, Side who, std::string&) {
        if (line.number == 1 && who == side && line.heard[side].size() >= limit) {
            Wiretap::close(line);
        }
    };
    EXPECT_EQ(path.endpoint->am_short(1, 0, nullptr, 0), UCS_ERR_NO_RESOURCE);
    path.until([&] {
        // Of two attempts the listener takes the first until it notices that it is broken.
        world.clock.advance(std::chrono::milliseconds(5));
        return world.tcp(0).open_connections() == 1;
    });
    const auto& first = path.tap.lines().front().heard;
    const std::array whole{first[kConnects].size(), first[kListens].size()};
    EXPECT_EQ(path.tap.lines().size(), first[side].size() >= limit ? 2u : 1u);
    EXPECT_EQ(path.send("here"), UCS_OK);
    path.until([&] { return path.has_received(1); });
    EXPECT_TRUE(world.peer(0).failures.empty());
    EXPECT_EQ(world.tcp(1).handshakes(), 0u);
    return whole;
}

TEST(TcpEncryption, AHandshakeThatBreaksAnywhereIsMadeAnew) {
    const std::array<size_t, 2> whole = break_after(kConnects, ~size_t{0});
    for (const Side side : {kConnects, kListens}) {
        ASSERT_GT(whole[side], 200u);
        for (size_t limit = 1; limit <= whole[side]; limit += 40) {
            SCOPED_TRACE(limit);
            break_after(side, limit);
        }
    }
}

// The kernel tells only of what it has still, not of what has been read and decrypted together.
TEST(TcpEncryption, WhatCameTogetherIsHandledThoughNothingFollows) {
    constexpr size_t kCount = 12;
    TcpWorld world(2, with(kSecret, {{"TCP_RX_SEG_SIZE", "12k"}, {"TCP_MAX_POLL", "1"}}));
    Endpoint& endpoint = world.connect(0, 1);
    world.expect_traffic(0, 1);
    world.peer(1).runs = false;
    for (size_t i = 0; i < kCount; ++i) send_bcopy(world, endpoint, 1, std::string(1500, 'y'));
    world.peer(0).runs = false;
    world.peer(1).runs = true;
    world.until([&] { return world.peer(1).received.size() == 1 + kCount; });
}

// Somebody of the job, whose proof is good, and who is to encrypt now.
class Partner : public RawPeer {
  public:
    explicit Partner(TcpWorld& world) : RawPeer(world, 1) {
        Hello said = hello();
        said.flags = tcp::wire::kEncrypts;
        const auto key = tcp::wire::key_of(world.listener(1).secret, "our common word");
        EXPECT_EQ(shake_hands(said, nullptr, key).answer, Answer::kEncrypt);
    }
};

TEST(TcpEncryption, WhoFallsSilentIsPutOutInTime) {
    TcpWorld world(2, with(kSecret, {{"TCP_HELLO_TIMEOUT", "50ms"}}));
    Partner silent(world);
    world.expect_traffic(0, 1);
    EXPECT_EQ(world.tcp(1).handshakes(), 1u);
    EXPECT_FALSE(silent.is_closed());
    world.clock.advance(std::chrono::milliseconds(60));
    world.until([&] { return silent.is_closed(); });
    EXPECT_EQ(world.tcp(1).handshakes(), 0u);
}

TEST(TcpEncryption, WhoGoesOnInClearIsPutOut) {
    TcpWorld world(2, kSecret);
    Partner plain(world);
    plain.send(tcp::wire::FrameHeader{0, tcp::wire::FrameType::kMessage, 1, tcp::wire::kMark});
    plain.send(std::string(200, 'x'));
    world.until([&] { return (plain.read(), plain.is_closed()); });
    EXPECT_TRUE(world.peer(1).received.empty());
    EXPECT_EQ(world.tcp(1).open_connections(), 0u);
    EXPECT_EQ(world.tcp(1).handshakes(), 0u);
    world.expect_traffic(0, 1);
}

}  // namespace
}  // namespace uct::test

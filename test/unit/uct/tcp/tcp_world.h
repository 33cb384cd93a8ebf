// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "uct/tcp/interface/tcp_interface.h"
#include "uct/tcp/network/options.h"
#include "uct/tcp/wire/address.h"
#include "uct/tcp/wire/format.h"
#include "uct/tcp/wire/proof.h"
#include "unit/uct/world.h"

// A World over TCP with a look inside, and peers that do not keep to the protocol.
namespace uct::test {

// What all connections need to be encrypted.
inline const Settings kEncrypted = {{"TCP_ENCRYPT", "y"}, {"TCP_JOB_KEY", "our common word"}};

inline Settings with(Settings one, const Settings& other) {
    one.insert(one.end(), other.begin(), other.end());
    return one;
}

class TcpWorld : public World {
  public:
    explicit TcpWorld(unsigned peers = 2, const Settings& settings = {})
        : World({"tcp", "tcp"}, peers, settings) {}

    tcp::TcpInterface& tcp(size_t index) {
        return static_cast<tcp::TcpInterface&>(*peer(index).interface);
    }
    tcp::ListenerAddress listener(size_t index) {
        return *tcp::ListenerAddress::read(peer(index).interface_address());
    }
    tcp::DeviceAddress device(size_t index) {
        return *tcp::DeviceAddress::read(peer(index).device_address());
    }
    // A message from one to the other arrives: both work.
    void expect_traffic(size_t from, size_t to) {
        Endpoint& endpoint = connect(from, to);
        const size_t before = peer(to).received.size();
        send_bcopy(*this, endpoint, 1, "still here");
        until([&] { return peer(to).received.size() == before + 1; });
        EXPECT_EQ(peer(to).received.back().data, "still here");
        EXPECT_EQ(flush(*this, endpoint), UCS_OK);
        destroy(endpoint);
    }
    // Peer 0 goes with its endpoint to peer 1, which reads in a thread of its own until it has that
    // many messages or a failure.
    //
    // @return whether it read all the time: who leaves waits a moment for it, and no longer
    bool leave_while_read(Endpoint& there, size_t messages) {
        using Clock = std::chrono::steady_clock;
        Peer& receiver = peer(1);
        Clock::duration longest{};
        std::thread reader([&] {
            const auto limit = Clock::now() + std::chrono::seconds(60);
            auto last = Clock::now();
            while (receiver.received.size() < messages && receiver.failures.empty() &&
                   last < limit) {
                receiver.interface->progress();
                const auto now = Clock::now();
                longest = std::max(longest, now - last);
                last = now;
            }
        });
        destroy(there);
        peer(0).interface.reset();
        reader.join();
        return longest < std::chrono::milliseconds(50);
    }
};

// A second descriptor of a socket, to look at it.
inline ucs::net::Socket copy_of(int descriptor) {
    return ucs::net::Socket(dup(descriptor));
}

// A socket to a peer's listener, driven by hand.
class RawPeer {
  public:
    RawPeer(TcpWorld& world, size_t target) : world_(world), target_(target) {
        const auto listener = world.listener(target);
        const ucs::net::SocketAddress address(world.device(target).ip, listener.port, 0);
        socket_.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(connect(socket_.get(), address.get(), address.length()), 0);
        const int yes = 1;
        setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }

    // What a peer of the job would say.
    tcp::wire::Hello hello() const {
        const auto listener = world_.listener(target_);
        tcp::wire::Hello hello{};
        hello.magic = tcp::wire::kMagic;
        hello.version = tcp::wire::kVersion;
        hello.oldest = tcp::wire::kOldestVersion;
        hello.sender = 0x1234567;
        hello.association = next_link_++;
        hello.receiver = listener.id;
        hello.max_frame = static_cast<uint32_t>(world_.tcp(target_).max_message());
        return hello;
    }
    template <typename T>
    void send(const T& value) {
        send(std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
    }
    void send(const std::string& bytes) {
        const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        EXPECT_EQ(sent, static_cast<ssize_t>(bytes.size()));
    }
    // Bytes that have arrived.
    std::string read() {
        char buffer[4096];
        const ssize_t got = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
        return got > 0 ? std::string(buffer, static_cast<size_t>(got)) : std::string();
    }
    bool is_closed() {
        char byte;
        const ssize_t got = recv(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
        return got == 0 || (got < 0 && errno != EAGAIN);
    }
    // Says Hello. @return the challenge, unless the connection ends
    std::optional<tcp::wire::Challenge> ask(const tcp::wire::Hello& hello) {
        hello_ = hello;
        send(hello);
        return read_one<tcp::wire::Challenge>();
    }
    // Proves to know a key: by default, what the address and no job key give.
    void prove(const tcp::wire::Challenge& challenge, std::optional<tcp::wire::Key> key = {}) {
        challenge_ = challenge;
        key_ = key ? *key : tcp::wire::key_of(world_.listener(target_).secret, "");
        send(tcp::wire::client_proof(key_, hello_, challenge_));
    }
    // Shakes hands, and waits for the answer. @param rest  what came behind it
    tcp::wire::Welcome shake_hands(const tcp::wire::Hello& hello, std::string* rest = nullptr,
                                   std::optional<tcp::wire::Key> key = {}) {
        const auto challenge = ask(hello);
        if (!challenge) return {};
        EXPECT_EQ(challenge->magic, tcp::wire::kMagic);
        EXPECT_EQ(challenge->answer, tcp::wire::Answer::kProve);
        prove(*challenge, key);
        const auto welcome = read_one<tcp::wire::Welcome>();
        if (!welcome) return {};
        EXPECT_EQ(welcome->magic, tcp::wire::kMagic);
        if (rest != nullptr) *rest = std::exchange(unread_, {}) + read();
        return *welcome;
    }
    // Of the session that the handshake began.
    tcp::wire::Key session_key() const { return tcp::wire::session_key(key_, hello_, challenge_); }
    bool is_sealed(const tcp::wire::Welcome& welcome) const {
        return ucs::net::are_equal(welcome.seal,
                                   tcp::wire::server_proof(key_, hello_, challenge_, welcome));
    }
    // The next bytes, unless the connection ends before they are all here.
    template <typename T>
    std::optional<T> read_one() {
        world_.until([&] {
            unread_ += read();
            return unread_.size() >= sizeof(T) || is_closed();
        });
        if (unread_.size() < sizeof(T)) return std::nullopt;
        T value;
        std::memcpy(&value, unread_.data(), sizeof(T));
        unread_.erase(0, sizeof(T));
        return value;
    }
    // Shakes hands properly, and is welcome.
    void enter() {
        std::string rest;
        ASSERT_EQ(shake_hands(hello(), &rest).answer, tcp::wire::Answer::kWelcome);
        ASSERT_EQ(rest, "");
    }
    void close() { socket_.reset(); }
    int socket_number() const { return socket_.get(); }

  private:
    TcpWorld& world_;
    size_t target_;
    ucs::Descriptor socket_;
    std::string unread_;
    tcp::wire::Key key_{};
    tcp::wire::Hello hello_{};
    tcp::wire::Challenge challenge_{};
    static inline uint32_t next_link_ = 1;
};

// Somebody listens at a peer's address who is not that peer. Driven by hand.
class Impostor {
  public:
    explicit Impostor(TcpWorld& world) : world_(world) {
        EXPECT_EQ(ucs::net::Socket::open(AF_INET, &listener_), UCS_OK);
        EXPECT_EQ(listener_.bind({world.device(1).ip, 0, 0}), UCS_OK);
        EXPECT_EQ(listener_.listen(), UCS_OK);
        address_.resize(tcp::ListenerAddress::kLength);
        tcp::ListenerAddress where = world.listener(1);
        where.port = listener_.local().port();
        where.id ^= 1;
        where.write(address_);
    }
    RemoteAddress address() {
        RemoteAddress remote = world_.address_of(1);
        remote.interface = address_;
        return remote;
    }
    template <typename T>
    T hear() {
        T value{};
        size_t got = 0;
        world_.until([&] {
            if (!socket_ && listener_.accept(&socket_) != UCS_OK) return false;
            const ssize_t more =
                socket_.receive(reinterpret_cast<char*>(&value) + got, sizeof(T) - got);
            got += more > 0 ? static_cast<size_t>(more) : 0;
            return got == sizeof(T);
        });
        const auto* bytes = reinterpret_cast<const char*>(&value);
        heard_.append(bytes, got);
        return value;
    }
    template <typename T>
    void say(const T& value) {
        EXPECT_EQ(socket_.send(&value, sizeof(value)), ssize_t{sizeof(value)});
    }
    tcp::wire::Challenge challenge() const {
        tcp::wire::Challenge challenge{};
        challenge.magic = tcp::wire::kMagic;
        challenge.version = tcp::wire::kVersion;
        challenge.oldest = tcp::wire::kOldestVersion;
        challenge.answer = tcp::wire::Answer::kProve;
        return challenge;
    }
    // Who called has given up, and does not try again.
    void expect_given_up() {
        world_.until([&] { return !world_.peer(0).failures.empty(); });
        ASSERT_EQ(world_.peer(0).failures.size(), 1u);
        EXPECT_EQ(world_.peer(0).failures[0].status, UCS_ERR_REJECTED);
        ucs::net::Socket again;
        EXPECT_NE(listener_.accept(&again), UCS_OK);
    }
    const std::string& heard() const { return heard_; }

  private:
    TcpWorld& world_;
    ucs::net::Socket listener_, socket_;
    std::vector<std::byte> address_;
    std::string heard_;
};

}  // namespace uct::test

// SPDX-License-Identifier: BSD-3-Clause
#include "tools/bench/channel.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace tools {
namespace {

using ucs::net::Socket;
using ucs::net::SocketAddress;

constexpr uint32_t kLongest = 16 << 20;
constexpr std::chrono::seconds kConnectTimeout{10};
constexpr int kForEver = -1;

bool would_block() {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

[[noreturn]] void fail(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, uint16_t port, int flags) {
    addrinfo hints{};
    hints.ai_flags = flags;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                  std::to_string(port).c_str(), &hints, &list);
    if (error != 0) throw std::runtime_error(fmt::format("{}: {}", host, gai_strerror(error)));
    return {list, freeaddrinfo};
}

Socket open_socket(const addrinfo& address) {
    Socket socket;
    if (Socket::open(address.ai_family, &socket) != UCS_OK) fail("socket");
    return socket;
}

std::optional<SocketAddress> address_of(const addrinfo& address) {
    return SocketAddress::from({address.ai_addr, address.ai_addrlen});
}

}  // namespace

Channel Channel::connect(const std::string& host, uint16_t port,
                         const std::function<void()>& on_refused) {
    bool is_told = false;
    const Addresses addresses = resolve(host, port, 0);
    const auto deadline = std::chrono::steady_clock::now() + kConnectTimeout;
    for (;;) {
        for (const addrinfo* address = addresses.get(); address != nullptr;
             address = address->ai_next) {
            const auto to = address_of(*address);
            Socket socket = open_socket(*address);
            if (!to || socket.connect(*to) != UCS_INPROGRESS) continue;
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(
                deadline - std::chrono::steady_clock::now());
            const bool is_decided =
                socket.wait(POLLOUT, std::max(static_cast<int>(left.count()), 0));
            errno = is_decided ? socket.pending_error() : ETIMEDOUT;
            if (errno != 0) continue;
            socket.set_option(IPPROTO_TCP, TCP_NODELAY, 1);
            return Channel(std::move(socket));
        }
        if (errno != ECONNREFUSED || std::chrono::steady_clock::now() > deadline) {
            fail(fmt::format("{}:{}", host, port));
        }
        if (!std::exchange(is_told, true)) on_refused();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

Channel Channel::listen(const std::string& host, uint16_t port) {
    const Addresses addresses = resolve(host, port, AI_PASSIVE);
    const auto own = address_of(*addresses);
    Socket socket = open_socket(*addresses);
    if (!own || socket.bind(*own) != UCS_OK || socket.listen() != UCS_OK) {
        fail(fmt::format("port {}", port));
    }
    return Channel(std::move(socket));
}
Channel Channel::accept_one() const {
    Socket caller;
    while (socket_.accept(&caller) != UCS_OK) {
        if (!would_block()) fail("accept");
        socket_.wait(POLLIN, kForEver);
    }
    return Channel(std::move(caller));
}

bool Channel::send(const Json& message) {
    const std::string text = message.dump();
    const uint32_t length = htonl(static_cast<uint32_t>(text.size()));
    std::string frame(reinterpret_cast<const char*>(&length), sizeof(length));
    frame += text;
    for (size_t sent = 0; sent < frame.size();) {
        const ssize_t n = socket_.send(frame.data() + sent, frame.size() - sent);
        if (n >= 0) {
            sent += static_cast<size_t>(n);
        } else if (would_block()) {
            socket_.wait(POLLOUT, kForEver);
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return false;
        } else {
            fail("the other process");
        }
    }
    return true;
}

bool Channel::read(void* data, size_t length) {
    auto* bytes = static_cast<char*>(data);
    for (size_t got = 0; got < length;) {
        const ssize_t n = socket_.receive(bytes + got, length - got);
        if (n > 0) {
            got += static_cast<size_t>(n);
        } else if (n == 0 || errno == ECONNRESET) {
            return false;
        } else if (would_block()) {
            socket_.wait(POLLIN, kForEver);
        } else {
            fail("the other process");
        }
    }
    return true;
}

std::optional<Json> Channel::receive() {
    uint32_t length = 0;
    if (!read(&length, sizeof(length))) return std::nullopt;
    length = ntohl(length);
    if (length > kLongest) throw std::runtime_error("the other process is no swiftlane");
    std::string text(length, '\0');
    if (!read(text.data(), text.size())) return std::nullopt;
    return Json::parse(text);
}

Json Channel::expect() {
    auto message = receive();
    if (!message) throw std::runtime_error("the other process is gone");
    return *std::move(message);
}
bool Channel::is_gone() const {
    char byte;
    const ssize_t n = recv(socket_.descriptor(), &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && !would_block());
}

std::string to_hex(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

std::string from_hex(const std::string& text) {
    std::string bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    }
    return bytes;
}

}  // namespace tools

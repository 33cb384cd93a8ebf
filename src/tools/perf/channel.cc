// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/channel.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace tools::perf {
namespace {

constexpr uint32_t kLongest = 16 << 20;
constexpr std::chrono::seconds kPatience{10};

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

int open_socket(const addrinfo& address) {
    const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket");
    return fd;
}

}  // namespace

Channel::~Channel() {
    if (fd_ >= 0) close(fd_);
}

Channel Channel::connect(const std::string& host, uint16_t port) {
    const Addresses addresses = resolve(host, port, 0);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
        for (const addrinfo* address = addresses.get(); address != nullptr;
             address = address->ai_next) {
            Channel channel(open_socket(*address));
            if (::connect(channel.fd_, address->ai_addr, address->ai_addrlen) != 0) continue;
            const int on = 1;
            setsockopt(channel.fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            return channel;
        }
        if (errno != ECONNREFUSED || std::chrono::steady_clock::now() > deadline) {
            fail(fmt::format("{}:{}", host, port));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

Channel Channel::listen(const std::string& host, uint16_t port) {
    const Addresses addresses = resolve(host, port, AI_PASSIVE);
    Channel listener(open_socket(*addresses));
    const int on = 1;
    setsockopt(listener.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener.fd_, addresses->ai_addr, addresses->ai_addrlen) != 0 ||
        ::listen(listener.fd_, 1) != 0) {
        fail(fmt::format("port {}", port));
    }
    return listener;
}

uint16_t Channel::port() const {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("socket");
    return ntohs(address.ss_family == AF_INET6
                     ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                     : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Channel Channel::accept_one() const {
    int fd;
    do {
        fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) fail("accept");
    return Channel(fd);
}

void Channel::send(const Json& message) {
    const std::string text = message.dump();
    const uint32_t length = htonl(static_cast<uint32_t>(text.size()));
    std::string frame(reinterpret_cast<const char*>(&length), sizeof(length));
    frame += text;
    for (size_t sent = 0; sent < frame.size();) {
        const ssize_t n = ::send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail("the other process");
        sent += static_cast<size_t>(n);
    }
}

bool Channel::read(void* data, size_t length) {
    auto* bytes = static_cast<char*>(data);
    for (size_t got = 0; got < length;) {
        const ssize_t n = recv(fd_, bytes + got, length - got, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0 || (n < 0 && errno == ECONNRESET)) return false;
        if (n < 0) fail("the other process");
        got += static_cast<size_t>(n);
    }
    return true;
}

std::optional<Json> Channel::receive() {
    uint32_t length = 0;
    if (!read(&length, sizeof(length))) return std::nullopt;
    length = ntohl(length);
    if (length > kLongest) throw std::runtime_error("the other process is no swiftlane perf");
    std::string text(length, '\0');
    if (!read(text.data(), text.size())) return std::nullopt;
    return Json::parse(text);
}

Json Channel::expect() {
    auto message = receive();
    if (!message) throw std::runtime_error("the other process is gone");
    return *std::move(message);
}

void Channel::shut_down() {
    shutdown(fd_, SHUT_RDWR);
}

bool Channel::is_gone() const {
    char byte;
    const ssize_t n = recv(fd_, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace tools::perf

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ucs/log/log.h"

namespace ucp::wireup {
namespace {

ucs_status_t status_of(int error) {
    switch (error) {
        case ECONNREFUSED:
            return UCS_ERR_NOT_CONNECTED;
        case ECONNRESET:
        case ECONNABORTED:
        case EPIPE:
            return UCS_ERR_CONNECTION_RESET;
        case EHOSTUNREACH:
        case EHOSTDOWN:
        case ENETUNREACH:
        case ENETDOWN:
        case ETIMEDOUT:
        case EAFNOSUPPORT:
            return UCS_ERR_UNREACHABLE;
        case EADDRINUSE:
            return UCS_ERR_BUSY;
        case EADDRNOTAVAIL:
        case EINVAL:
            return UCS_ERR_INVALID_ADDR;
        case EACCES:
        case EPERM:
            return UCS_ERR_REJECTED;
        default:
            return UCS_ERR_IO_ERROR;
    }
}

bool would_block(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

std::optional<SocketAddress> SocketAddress::from(const ucs_sock_addr_t& address) {
    if (address.addr == nullptr) return {};
    size_t length = 0;
    if (address.addr->sa_family == AF_INET) length = sizeof(sockaddr_in);
    if (address.addr->sa_family == AF_INET6) length = sizeof(sockaddr_in6);
    if (length == 0 || address.addrlen < length) return {};
    SocketAddress result;
    std::memcpy(&result.storage_, address.addr, length);
    result.length_ = static_cast<socklen_t>(length);
    return result;
}

std::string SocketAddress::text() const {
    char host[INET6_ADDRSTRLEN] = "?";
    if (family() == AF_INET) {
        const auto* in = reinterpret_cast<const sockaddr_in*>(&storage_);
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        return fmt::format("{}:{}", host, ntohs(in->sin_port));
    }
    const auto* in = reinterpret_cast<const sockaddr_in6*>(&storage_);
    inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
    return fmt::format("[{}]:{}", host, ntohs(in->sin6_port));
}

ucs_status_t Socket::open(int family, Socket* socket) {
    Socket made;
    made.descriptor_ = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!made.is_open()) return status_of(errno);
    *socket = std::move(made);
    return UCS_OK;
}

void Socket::close() {
    if (is_open()) ::close(descriptor_);
    descriptor_ = -1;
}

ucs_status_t Socket::bind(const SocketAddress& address) {
    const int on = 1;
    // A server that restarts need not wait for the connections of its former life to be forgotten.
    setsockopt(descriptor_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return ::bind(descriptor_, address.get(), address.length()) == 0 ? UCS_OK : status_of(errno);
}

ucs_status_t Socket::listen() {
    return ::listen(descriptor_, SOMAXCONN) == 0 ? UCS_OK : status_of(errno);
}

ucs_status_t Socket::accept(Socket* socket) {
    Socket made;
    made.descriptor_ = accept4(descriptor_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (!made.is_open()) return UCS_ERR_NO_RESOURCE;
    *socket = std::move(made);
    return UCS_OK;
}

ucs_status_t Socket::connect(const SocketAddress& address) {
    if (::connect(descriptor_, address.get(), address.length()) == 0 || errno == EINPROGRESS) {
        return UCS_INPROGRESS;
    }
    return status_of(errno);
}

ucs_status_t Socket::error() const {
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    return error == 0 ? UCS_OK : status_of(error);
}

ssize_t Socket::read(void* buffer, size_t room) {
    const ssize_t got = recv(descriptor_, buffer, room, 0);
    if (got > 0) return got;
    if (got == 0) return UCS_ERR_CONNECTION_RESET;
    return would_block(errno) ? 0 : status_of(errno);
}

ssize_t Socket::write(const void* bytes, size_t length) {
    const ssize_t put = send(descriptor_, bytes, length, MSG_NOSIGNAL);
    if (put >= 0) return put;
    return would_block(errno) ? 0 : status_of(errno);
}

void Socket::finish() {
    if (is_open()) shutdown(descriptor_, SHUT_WR);
}

SocketAddress Socket::local() const {
    SocketAddress result;
    result.length_ = sizeof(result.storage_);
    getsockname(descriptor_, reinterpret_cast<sockaddr*>(&result.storage_), &result.length_);
    return result;
}

SocketAddress Socket::peer() const {
    SocketAddress result;
    result.length_ = sizeof(result.storage_);
    getpeername(descriptor_, reinterpret_cast<sockaddr*>(&result.storage_), &result.length_);
    return result;
}

}  // namespace ucp::wireup

// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/net/socket.h"

#include <poll.h>

#include <cerrno>
#include <utility>

namespace ucs::net {

namespace {

bool would_block(int error) {
    return error == EAGAIN || error == EWOULDBLOCK;
}

}  // namespace

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

ucs_status_t Socket::open(int family, Socket* socket) {
    Socket made(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!made) return status_of(errno);
    *socket = std::move(made);
    return UCS_OK;
}

bool Socket::set_option(int level, int option, int value) const {
    return setsockopt(descriptor(), level, option, &value, sizeof(value)) == 0;
}

ucs_status_t Socket::bind(const SocketAddress& address, Reuse reuse) {
    if (reuse == Reuse::kYes) set_option(SOL_SOCKET, SO_REUSEADDR, 1);
    return ::bind(descriptor(), address.get(), address.length()) == 0 ? UCS_OK : status_of(errno);
}

ucs_status_t Socket::listen() {
    return ::listen(descriptor(), SOMAXCONN) == 0 ? UCS_OK : status_of(errno);
}

ucs_status_t Socket::accept(Socket* socket) const {
    Socket made(static_cast<int>(to_end(
        [&] { return accept4(descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); })));
    if (!made) return UCS_ERR_NO_RESOURCE;
    *socket = std::move(made);
    return UCS_OK;
}

ucs_status_t Socket::connect(const SocketAddress& address) {
    // Interrupted, it goes on all the same.
    if (::connect(descriptor(), address.get(), address.length()) == 0 || errno == EINPROGRESS ||
        errno == EINTR) {
        return UCS_INPROGRESS;
    }
    return status_of(errno);
}

int Socket::pending_error() const {
    int error = 0;
    socklen_t length = sizeof(error);
    return getsockopt(descriptor(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

ucs_status_t Socket::error() const {
    const int error = pending_error();
    return error == 0 ? UCS_OK : status_of(error);
}

ssize_t Socket::read(void* buffer, size_t room) {
    const ssize_t got = receive(buffer, room);
    if (got > 0) return got;
    if (got == 0) return UCS_ERR_CONNECTION_RESET;
    return would_block(errno) ? 0 : status_of(errno);
}

ssize_t Socket::write(const void* bytes, size_t length) {
    const ssize_t put = send(bytes, length);
    if (put >= 0) return put;
    return would_block(errno) ? 0 : status_of(errno);
}

bool Socket::wait(short events, int milliseconds) const {
    pollfd interest{descriptor(), events, 0};
    return poll(&interest, 1, milliseconds) > 0;
}

void Socket::finish() {
    if (is_open()) shutdown(descriptor(), SHUT_WR);
}

void Socket::shut_down() {
    if (is_open()) shutdown(descriptor(), SHUT_RDWR);
}

void Socket::reset_on_close() {
    const linger at_once{1, 0};
    if (is_open()) setsockopt(descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

SocketAddress Socket::local() const {
    return SocketAddress::written_by([&](sockaddr* address, socklen_t* length) {
        return getsockname(descriptor(), address, length);
    });
}

SocketAddress Socket::peer() const {
    return SocketAddress::written_by([&](sockaddr* address, socklen_t* length) {
        return getpeername(descriptor(), address, length);
    });
}

}  // namespace ucs::net

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "ucs/net/socket.h"
#include "uct/tcp/network/tls.h"

namespace uct::tcp {

// What goes over a socket in both directions: in clear, or from some point on encrypted.
class SocketStream {
  public:
    SocketStream() = default;
    explicit SocketStream(ucs::net::Socket socket) : socket_(std::move(socket)) {}

    // To look at. What is read and written goes through the stream.
    const ucs::net::Socket& socket() const { return socket_; }
    bool is_open() const { return socket_.is_open(); }
    explicit operator bool() const { return is_open(); }
    int descriptor() const { return socket_.descriptor(); }
    int pending_error() const { return socket_.pending_error(); }
    ucs::net::SocketAddress local() const { return socket_.local(); }
    ucs::net::SocketAddress peer() const { return socket_.peer(); }

    void close() {
        tls_.reset();
        socket_.close();
    }
    void finish() { socket_.finish(); }
    void shut_down() { socket_.shut_down(); }
    void reset_on_close() { socket_.reset_on_close(); }

    // All that follows is encrypted; tls() tells whether that stands. @return false: no memory
    bool encrypt(std::shared_ptr<TlsContext> context, Tls::Side side, const wire::Key& key) {
        tls_ = Tls::begin(std::move(context), socket_.descriptor(), side, key);
        return tls_ != nullptr;
    }
    // Null: in clear.
    Tls* tls() const { return tls_.get(); }

    // As of Socket, but for how much may be sent at once.
    ssize_t send(std::span<const iovec> pieces, Tls::BufferOwner owner = Tls::BufferOwner::kOurs) {
        if (tls_) [[unlikely]]
            return tls_->send(pieces, owner);
        return pieces.size() == 1 ? socket_.send(pieces[0].iov_base, pieces[0].iov_len)
                                  : socket_.send(pieces);
    }
    ssize_t receive(std::span<const iovec> pieces, Tls::BufferOwner owner) {
        if (tls_) [[unlikely]]
            return tls_->receive(pieces, owner);
        return socket_.receive(pieces);
    }
    ssize_t receive(void* buffer, size_t room) {
        if (!tls_) [[likely]]
            return socket_.receive(buffer, room);
        const iovec piece{buffer, room};
        return tls_->receive({&piece, 1}, Tls::BufferOwner::kOurs);
    }
    // @return whether all of it has been sent; for what is short, before anything else is
    template <typename Message>
    bool say(const Message& message) {
        const iovec piece{const_cast<Message*>(&message), sizeof(message)};
        return send({&piece, 1}) == ssize_t{sizeof(message)} && backlog() == 0;
    }

    // Bytes that were sent, and that the kernel has not taken.
    size_t backlog() const { return tls_ ? tls_->backlog() : 0; }
    // @return whether the kernel has taken all
    bool flush() { return !tls_ || tls_->flush(); }
    // Is there something to receive that the kernel does not tell of?
    bool has_unread() const { return tls_ && tls_->has_unread(); }

  private:
    ucs::net::Socket socket_;
    std::unique_ptr<Tls> tls_;
};

}  // namespace uct::tcp

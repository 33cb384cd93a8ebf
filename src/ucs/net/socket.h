// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include "ucs/net/address.h"
#include "ucs/sys/descriptor.h"
#include "ucs/type/status.h"

namespace ucs::net {

// A TCP socket that never blocks. Owns its descriptor.
//
// Calls that return a status leave the cause in errno where they fail. send() and receive() are for
// those who look at errno themselves.
class Socket {
  public:
    Socket() = default;
    explicit Socket(int descriptor) : descriptor_(descriptor) {}

    static ucs_status_t open(int family, Socket* socket);
    void close() { descriptor_.reset(); }
    bool is_open() const { return static_cast<bool>(descriptor_); }
    explicit operator bool() const { return is_open(); }
    int descriptor() const { return descriptor_.get(); }

    // @return false if the kernel refuses, with errno
    bool set_option(int level, int option, int value) const;
    // kYes: a port that connections of a former life still hold is free to be listened on.
    enum class Reuse : bool { kNo, kYes };
    // @return UCS_OK; UCS_ERR_BUSY: taken; UCS_ERR_INVALID_ADDR: not one of ours; IO_ERROR
    ucs_status_t bind(const SocketAddress& address, Reuse reuse = Reuse::kYes);
    ucs_status_t listen();
    // @return UCS_OK, or UCS_ERR_NO_RESOURCE: nobody calls, or no descriptor is left
    ucs_status_t accept(Socket* socket) const;
    // @return UCS_INPROGRESS: writable when decided, then error() says how; or an error
    ucs_status_t connect(const SocketAddress& address);
    // What happened to the socket since the last call.
    ucs_status_t error() const;
    // The same as an errno; 0: nothing.
    int pending_error() const;

    // @return bytes; 0: none now; UCS_ERR_CONNECTION_RESET at the end; another error
    ssize_t read(void* buffer, size_t room);
    // @return bytes, which may be 0, or an error
    ssize_t write(const void* bytes, size_t length);
    // As the system's calls: bytes, 0 at the end of what comes, or -1 and errno, but not EINTR.
    ssize_t receive(void* buffer, size_t room) {
        return to_end([&] { return recv(descriptor(), buffer, room, 0); });
    }
    ssize_t receive(std::span<const iovec> pieces) {
        msghdr message = of(pieces);
        return to_end([&] { return recvmsg(descriptor(), &message, 0); });
    }
    ssize_t send(const void* bytes, size_t length) {
        return to_end([&] { return ::send(descriptor(), bytes, length, MSG_NOSIGNAL); });
    }
    ssize_t send(std::span<const iovec> pieces) {
        const msghdr message = of(pieces);
        return to_end([&] { return sendmsg(descriptor(), &message, MSG_NOSIGNAL); });
    }

    // Wait until it can be read or written; the one call here that waits. @return false: not yet
    bool wait(short events, int milliseconds) const;

    // What was written still goes out; nothing more will.
    void finish();
    // Nothing goes out or comes in from here on; what has come can still be read.
    void shut_down();
    // When it is closed, what has not gone out is thrown away, and the peer sees a reset.
    void reset_on_close();

    // Not known: an empty address.
    SocketAddress local() const;
    SocketAddress peer() const;

    // A call of the system's, made again as often as a signal interrupts it.
    template <typename Call>
    static ssize_t to_end(Call call) {
        for (;;) {
            const ssize_t result = call();
            if (result >= 0 || errno != EINTR) return result;
        }
    }

  private:
    static msghdr of(std::span<const iovec> pieces) {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(pieces.data());
        message.msg_iovlen = pieces.size();
        return message;
    }

    Descriptor descriptor_;
};

// The cause of a failed call on a socket.
ucs_status_t status_of(int error);

}  // namespace ucs::net

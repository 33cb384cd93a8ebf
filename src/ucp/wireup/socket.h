// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "ucp/api/ucp.h"

namespace ucp::wireup {

/** Where a socket is: an address of IPv4 or IPv6 with its port. */
class SocketAddress {
  public:
    /** @return nothing for other families, or a length that is not the family's */
    static std::optional<SocketAddress> from(const ucs_sock_addr_t& address);

    int family() const { return storage_.ss_family; }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    socklen_t length() const { return length_; }
    const sockaddr_storage& storage() const { return storage_; }
    std::string text() const;

  private:
    friend class Socket;
    sockaddr_storage storage_{};
    socklen_t length_ = 0;
};

/** A TCP socket that never blocks. Owns its descriptor. */
class Socket {
  public:
    Socket() = default;
    ~Socket() { close(); }
    Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }

    static ucs_status_t open(int family, Socket* socket);
    void close();
    bool is_open() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }

    /** @return UCS_OK; UCS_ERR_BUSY: taken; UCS_ERR_INVALID_ADDR: not one of ours; IO_ERROR */
    ucs_status_t bind(const SocketAddress& address);
    ucs_status_t listen();
    /** @return UCS_OK, or UCS_ERR_NO_RESOURCE: nobody calls */
    ucs_status_t accept(Socket* socket);
    /** @return UCS_INPROGRESS: writable when decided, then error() says how; or an error */
    ucs_status_t connect(const SocketAddress& address);
    /** What happened to the socket since the last call. */
    ucs_status_t error() const;
    /** @return bytes; 0: none now; UCS_ERR_CONNECTION_RESET at the end; another error */
    ssize_t read(void* buffer, size_t room);
    ssize_t write(const void* bytes, size_t length);
    /** What was written still goes out; nothing more will. */
    void finish();

    SocketAddress local() const;
    SocketAddress peer() const;

  private:
    int descriptor_ = -1;
};

}  // namespace ucp::wireup

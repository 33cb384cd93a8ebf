// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/socket.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "ucs/log/log.h"

namespace uct::tcp {

namespace {

void set(int socket, int level, int option, int value, const char* name) {
    if (setsockopt(socket, level, option, &value, sizeof(value)) != 0) {
        ucs::log_debug("socket option {} = {}: {}", name, value, std::strerror(errno));
    }
}

/** Sent again without an answer, and nothing heard for so long: the way is in doubt. */
constexpr unsigned kSilence = 200;  // milliseconds, as the kernel counts

int whole_seconds(ucs::Duration span) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(
        std::min(span, ucs::Duration(std::chrono::hours(9))));
    return std::max(1, static_cast<int>(seconds.count()));
}

void set_keep_alive(int socket, const Config& config) {
    if (config.keepidle != ucs::kForever) {
        set(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
        set(socket, IPPROTO_TCP, TCP_KEEPIDLE, whole_seconds(config.keepidle), "TCP_KEEPIDLE");
        set(socket, IPPROTO_TCP, TCP_KEEPINTVL, whole_seconds(config.keepintvl), "TCP_KEEPINTVL");
        set(socket, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(config.keepcnt), "TCP_KEEPCNT");
    }
    const ucs::Duration patience = user_timeout(config);
    if (patience == ucs::kForever) return;
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(
        std::min(patience, ucs::Duration(std::chrono::hours(24))));
    set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(milliseconds.count()),
        "TCP_USER_TIMEOUT");
}

void set_buffers(int socket, const Config& config) {
    constexpr size_t kMost = 1u << 30;
    if (config.sndbuf) {
        set(socket, SOL_SOCKET, SO_SNDBUF,
            static_cast<int>(std::min<size_t>(*config.sndbuf, kMost)), "SO_SNDBUF");
    }
    if (config.rcvbuf) {
        set(socket, SOL_SOCKET, SO_RCVBUF,
            static_cast<int>(std::min<size_t>(*config.rcvbuf, kMost)), "SO_RCVBUF");
    }
}

Descriptor open_socket(const IpAddress& address) {
    return Descriptor(socket(address.version == 4 ? AF_INET : AF_INET6,
                             SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

}  // namespace

ucs::Duration user_timeout(const Config& config) {
    if (config.user_timeout) return *config.user_timeout;
    constexpr ucs::Duration kLong = std::chrono::hours(24);
    if (config.keepidle >= kLong || config.keepintvl >= kLong) return ucs::kForever;
    return config.keepidle + config.keepintvl * config.keepcnt;
}

void tune(int socket, const Config& config) {
    if (config.nodelay) set(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
    set_keep_alive(socket, config);
}

void limit_send_ahead(int socket, const Config& config) {
    if (config.send_ahead > INT_MAX) return;
    set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<int>(config.send_ahead),
        "TCP_NOTSENT_LOWAT");
}

size_t longest_segment(int socket) {
    int bytes = 0;
    socklen_t length = sizeof(bytes);
    return getsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &bytes, &length) == 0
               ? static_cast<size_t>(bytes)
               : 0;
}

Descriptor open_listener(const NetworkDevice& device, const Config& config, uint64_t start,
                         uint16_t* port, std::string* error) {
    const auto [first, last] = config.port_range;
    const unsigned count = static_cast<unsigned>(last - first) + 1;
    int cause = 0;
    for (unsigned i = 0; i < count; ++i) {
        const auto wanted = static_cast<uint16_t>(first + (start + i) % count);
        Descriptor listener = open_socket(device.address);
        if (listener) set_buffers(listener.get(), config);  // connections inherit them
        const SocketAddress address(device.address, wanted, device.index);
        SocketAddress bound;
        if (listener && bind(listener.get(), address.data(), address.length) == 0 &&
            listen(listener.get(), SOMAXCONN) == 0 &&
            getsockname(listener.get(), bound.data(), &bound.length) == 0) {
            *port = bound.port();
            return listener;
        }
        cause = errno;
        ucs::log_diag("{}: cannot listen on {} port {}: {}{}", device.name, device.address.text(),
                      wanted, std::strerror(cause),
                      i + 1 < count ? "; the next port is tried" : "");
    }
    *error = fmt::format(
        "{}: no port of {}-{} can be listened on at {} (the last: {}): free one, or widen "
        "UCX_TCP_PORT_RANGE (0 takes any free port)",
        device.name, first, last, device.address.text(), std::strerror(cause));
    return {};
}

Descriptor start_connect(const NetworkDevice& device, const SocketAddress& to, bool on_link,
                         const Config& config, int* cause) {
    Descriptor made = open_socket(device.address);
    if (!made) {
        *cause = errno;
        return {};
    }
    set_buffers(made.get(), config);
    tune(made.get(), config);
    // Ports are chosen when connecting, so that many connections may share one.
    set(made.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, "IP_BIND_ADDRESS_NO_PORT");
    const SocketAddress own(device.address, 0, device.index);
    if (bind(made.get(), own.data(), own.length) != 0) {
        *cause = errno;
        return {};
    }
    if (on_link) {
        setsockopt(made.get(), SOL_SOCKET, SO_BINDTODEVICE, device.name.data(),
                   static_cast<socklen_t>(device.name.size()));
    }
    *cause = connect(made.get(), to.data(), to.length) == 0 ? 0 : errno;
    if (*cause == EINPROGRESS) {
        *cause = 0;
        if (!config.conn_nb) {
            pollfd writable{made.get(), POLLOUT, 0};
            const auto limit = std::chrono::ceil<std::chrono::milliseconds>(
                std::min(config.conn_timeout, ucs::Duration(std::chrono::hours(1))));
            poll(&writable, 1, static_cast<int>(limit.count()));
        }
    }
    if (*cause != 0) made.reset();
    return made;
}

size_t under_way(int socket) {
    int bytes = 0;
    return socket >= 0 && ioctl(socket, SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes) : 0;
}

bool is_silent(int socket, ucs::Duration* round_trip) {
    if (under_way(socket) == 0) return false;
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
    if (round_trip != nullptr) *round_trip = std::chrono::microseconds(info.tcpi_rtt);
    return (info.tcpi_retransmits >= 1 || info.tcpi_probes >= 2) &&
           info.tcpi_last_ack_recv >= kSilence;
}

int pending_error(int socket) {
    int cause = 0;
    socklen_t length = sizeof(cause);
    return getsockopt(socket, SOL_SOCKET, SO_ERROR, &cause, &length) == 0 ? cause : errno;
}

}  // namespace uct::tcp

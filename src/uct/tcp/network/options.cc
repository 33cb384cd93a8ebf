// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/options.h"

#include <linux/sockios.h>
#include <netinet/in.h>
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

void set_value(const Socket& socket, int level, int option, int value, const char* name) {
    if (!socket.set_option(level, option, value)) {
        ucs::log_debug("socket option {} = {}: {}", name, value, std::strerror(errno));
    }
}

// What newer kernels (6.15) know and older headers do not.
constexpr int kRtoMax = 44;  // TCP_RTO_MAX_MS

const std::string kOfSystem = "system", kWithinHost = "reno";

bool ask(const Socket& socket, tcp_info* info) {
    socklen_t length = sizeof(*info);
    return getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_INFO, info, &length) == 0;
}

int whole_seconds(ucs::Duration span) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(
        std::min(span, ucs::Duration(std::chrono::hours(9))));
    return static_cast<int>(seconds.count());
}

void set_keep_alive(const Socket& socket, const Config& config) {
    if (config.keepidle == ucs::kForever) return;
    set_value(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
    set_value(socket, IPPROTO_TCP, TCP_KEEPIDLE, whole_seconds(config.keepidle), "TCP_KEEPIDLE");
    set_value(socket, IPPROTO_TCP, TCP_KEEPINTVL, whole_seconds(config.keepintvl), "TCP_KEEPINTVL");
    // A question is a packet like any other: it may stay without an answer for as long.
    const ucs::Duration patience = user_timeout(config);
    const int least = patience == ucs::kForever
                          ? 1
                          : (whole_seconds(patience) - 1) / whole_seconds(config.keepintvl) + 1;
    constexpr int kMost = 127;  // the kernel's bound
    const int count = std::min(std::max(static_cast<int>(config.keepcnt), least), kMost);
    set_value(socket, IPPROTO_TCP, TCP_KEEPCNT, count, "TCP_KEEPCNT");
}

// The kernel repeats what is not answered ever more seldom. Two such packets, which fall into two
// short losses of a link, would look like one long silence: so they are to be many.
void repeat_often(const Socket& socket, const Config& config) {
    constexpr int kInPatience = 8;
    constexpr auto kLeast = std::chrono::milliseconds(1000),
                   kMost = std::chrono::milliseconds(120000);
    const ucs::Duration patience = user_timeout(config);
    if (patience == ucs::kForever) return;
    const auto span = std::chrono::ceil<std::chrono::milliseconds>(patience / kInPatience);
    set_value(socket, IPPROTO_TCP, kRtoMax,
              static_cast<int>(std::clamp(span, kLeast, kMost).count()), "TCP_RTO_MAX_MS");
}

void set_buffers(Socket& socket, const Config& config) {
    if (config.sndbuf) {
        set_value(socket, SOL_SOCKET, SO_SNDBUF, static_cast<int>(*config.sndbuf), "SO_SNDBUF");
    }
    if (config.rcvbuf) {
        set_value(socket, SOL_SOCKET, SO_RCVBUF, static_cast<int>(*config.rcvbuf), "SO_RCVBUF");
    }
}

// Before a connection stands: packets that bbr has begun to space stay spaced.
// @return false, with errno, if the kernel refuses it
bool set_congestion_control(const Socket& socket, const NetworkDevice& device,
                            const Config& config) {
    // Nothing is congested within a host, where spaced packets only wait. Every kernel has reno,
    // and allows it to everybody.
    const std::string& name = config.congestion != "auto" ? config.congestion
                              : device.loopback           ? kWithinHost
                                                          : kOfSystem;
    return name == kOfSystem || setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_CONGESTION,
                                           name.data(), static_cast<socklen_t>(name.size())) == 0;
}

}  // namespace

ucs::Duration user_timeout(const Config& config) {
    if (config.user_timeout) return *config.user_timeout;
    constexpr ucs::Duration kLong = std::chrono::hours(24);
    if (config.keepidle >= kLong || config.keepintvl >= kLong) return ucs::kForever;
    return config.keepidle + config.keepintvl * config.keepcnt;
}

void tune(const Socket& socket, const Config& config) {
    if (config.nodelay) set_value(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
    if (config.busy_poll != 0) {
        set_value(socket, SOL_SOCKET, SO_BUSY_POLL, static_cast<int>(config.busy_poll),
                  "SO_BUSY_POLL");
    }
    set_keep_alive(socket, config);
    repeat_often(socket, config);
}

void limit_send_ahead(const Socket& socket, const Config& config) {
    // Within a host what is sent is received at once, and waits only for a peer that is busy: it
    // finds more to read then.
    constexpr size_t kToOtherHosts = 128 << 10;
    const bool within_host = socket.local().ip() == socket.peer().ip();
    const size_t bytes = config.send_ahead ? static_cast<size_t>(*config.send_ahead)
                         : within_host     ? SIZE_MAX
                                           : kToOtherHosts;
    if (bytes > INT_MAX) return;
    set_value(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, static_cast<int>(bytes), "TCP_NOTSENT_LOWAT");
}

size_t longest_segment(const Socket& socket) {
    int bytes = 0;
    socklen_t length = sizeof(bytes);
    return getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_MAXSEG, &bytes, &length) == 0
               ? static_cast<size_t>(bytes)
               : 0;
}

Socket open_listener(const NetworkDevice& device, const Config& config, uint64_t start,
                     uint16_t* port, std::string* error) {
    const auto [first, last] = config.port_range;
    const unsigned count = static_cast<unsigned>(last - first) + 1;
    int cause = 0;
    for (unsigned i = 0; i < count; ++i) {
        const auto wanted = static_cast<uint16_t>(first + (start + i) % count);
        Socket listener;
        const bool is_open = Socket::open(device.address.family(), &listener) == UCS_OK;
        if (is_open) set_buffers(listener, config);  // connections inherit all of this
        if (is_open && !set_congestion_control(listener, device, config)) {
            *error = fmt::format(
                "UCX_TCP_CONGESTION={}: {}; what this host allows is in "
                "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
                config.congestion, std::strerror(errno));
            return {};
        }
        const SocketAddress address(device.address, wanted, device.index);
        if (is_open && listener.bind(address, Socket::Reuse::kNo) == UCS_OK &&
            listener.listen() == UCS_OK) {
            *port = listener.local().port();
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

Socket start_connect(const NetworkDevice& device, const SocketAddress& to, bool on_link,
                     const Config& config, int* cause) {
    Socket made;
    if (Socket::open(device.address.family(), &made) != UCS_OK) {
        *cause = errno;
        return {};
    }
    set_buffers(made, config);
    set_congestion_control(made, device, config);  // a listener has tried it
    tune(made, config);
    // Ports are chosen when connecting, so that many connections may share one.
    set_value(made, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1, "IP_BIND_ADDRESS_NO_PORT");
    if (made.bind({device.address, 0, device.index}, Socket::Reuse::kNo) != UCS_OK) {
        *cause = errno;
        return {};
    }
    if (on_link) {
        setsockopt(made.descriptor(), SOL_SOCKET, SO_BINDTODEVICE, device.name.data(),
                   static_cast<socklen_t>(device.name.size()));
    }
    if (made.connect(to) != UCS_INPROGRESS) {
        *cause = errno;
        return {};
    }
    *cause = 0;
    if (!config.conn_nb) {
        const auto limit = std::chrono::ceil<std::chrono::milliseconds>(config.conn_timeout);
        made.wait(POLLOUT, static_cast<int>(limit.count()));
    }
    return made;
}

size_t under_way(const Socket& socket) {
    int bytes = 0;
    return socket && ioctl(socket.descriptor(), SIOCOUTQ, &bytes) == 0 ? static_cast<size_t>(bytes)
                                                                       : 0;
}

ucs::Duration time_without_answer(const Socket& socket) {
    tcp_info info{};
    return ask(socket, &info) ? std::chrono::milliseconds(info.tcpi_last_ack_recv)
                              : ucs::Duration(0);
}

Answers Answers::of(const Socket& socket) {
    Answers answers;
    answers.was_asked = true;
    answers.bytes = under_way(socket);
    answers.is_awaited = answers.bytes != 0;
    tcp_info info{};
    if (!answers.is_awaited || !ask(socket, &info)) return answers;
    answers.packets = std::max<unsigned>(info.tcpi_retransmits, info.tcpi_probes);
    answers.quiet = std::chrono::milliseconds(info.tcpi_last_ack_recv);
    answers.round_trip = std::chrono::microseconds(info.tcpi_rtt);
    answers.is_silent =
        (info.tcpi_retransmits >= 1 || info.tcpi_probes >= 2) && answers.quiet >= kSilence;
    return answers;
}

bool Silence::lasts(const Answers& answers, ucs::Time now, ucs::Duration patience) {
    if (answers.packets == 0) {
        over();
        return false;
    }
    // That nothing was heard before the first of them was sent says nothing of them.
    time_.look(now, patience);
    time_.at_most(answers.quiet);
    return answers.packets >= kEnough && time_.length() >= patience;
}

}  // namespace uct::tcp

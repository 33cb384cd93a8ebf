// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/silence.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

namespace uct::tcp {

Unanswered Unanswered::of(const Socket& socket) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (under_way(socket) == 0 ||
        getsockopt(socket.descriptor(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) {
        return {};
    }
    return {std::max<unsigned>(info.tcpi_retransmits, info.tcpi_probes),
            std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

bool Silence::lasts(const Unanswered& unanswered, ucs::Time now, ucs::Duration patience) {
    if (unanswered.packets == 0) {
        over();
        return false;
    }
    // What was heard before the first of them was sent says nothing of them.
    since_ = since_ == ucs::kNever ? now : std::max(since_, now - unanswered.quiet);
    return unanswered.packets >= kEnough && now - since_ >= patience;
}

}  // namespace uct::tcp

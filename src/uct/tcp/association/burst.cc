// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/association/burst.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>

namespace uct::tcp {

namespace {

// Longer messages are worth a packet each.
constexpr size_t kMostGathered = 2048;
// Who finds nothing more to read for so long acknowledges: until then an answer may carry it.
constexpr ucs::Duration kPatience = std::chrono::microseconds(5);

bool set(const SocketStream& stream, int option, int value) {
    return stream.socket().set_option(IPPROTO_TCP, option, value);
}

}  // namespace

void OutgoingBurst::begin(unsigned first, size_t segment) {
    first_ = first;
    longest_ = std::min(segment / 2, kMostGathered);
}

// It is one of those that may be gathered, or that others may wait for; or it is long.
uint16_t OutgoingBurst::next_of_many(size_t length) {
    if (first_ == 0) return wire::kMark;
    if (length > longest_) {
        count_ = 0;
        if (gathers()) push();
        return wire::kMark;
    }
    // The last that leaves at once has the mark already, as it may be all that the peer gets before
    // it acknowledges.
    if (count_ > first_ && !gathers() && set(stream_, TCP_NODELAY, 0)) {
        all_.gathering.push_back(*this);
    }
    return wire::kBurstMark;
}

void OutgoingBurst::push() {
    unlink();
    set(stream_, TCP_NODELAY, 1);
}

void IncomingBurst::on_read(ucs::Time now) {
    if (is_linked()) unlink();
    due_ = now + kPatience;
    all_.unanswered.push_back(*this);
}

void IncomingBurst::acknowledge() {
    unlink();
    set(stream_, TCP_QUICKACK, 1);
}

void Bursts::on_progress(const ucs::Clock& clock) {
    while (!gathering.empty()) gathering.front().push();
    if (unanswered.empty()) return;
    const ucs::Time now = clock.now();
    while (!unanswered.empty() && unanswered.front().is_due(now)) unanswered.front().acknowledge();
}

void Bursts::settle() {
    while (!gathering.empty()) gathering.front().push();
    while (!unanswered.empty()) unanswered.front().acknowledge();
}

}  // namespace uct::tcp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <ostream>

// The system calls that TCP makes in this process, counted: functions in place of the C library's.
namespace uct::test {

struct SystemCalls {
    // What the kernel is told of when to send.
    struct Told {
        unsigned to_gather = 0;
        unsigned to_push = 0;
        unsigned to_acknowledge = 0;
        bool operator==(const Told&) const = default;
    };

    std::atomic<unsigned> reads = 0;  // of sockets
    std::atomic<unsigned> sends = 0;  // of messages
    std::atomic<unsigned> looks = 0;  // epoll_wait
    std::atomic<unsigned> questions =
        0;                             // what is known of the answers to what a connection has sent
    std::atomic<unsigned> others = 0;  // options, changes of the epoll set, alarms
    std::atomic<size_t> moved = 0;     // bytes that the kernel took and gave
    Told told;
    std::atomic<bool> is_counting = true;
    // The kernel is made to say that it has just heard of the peer.
    bool is_answered = false;

    void forget() { reads = sends = looks = questions = others = 0; }
};
extern SystemCalls system_calls;

inline void PrintTo(const SystemCalls::Told& what, std::ostream* out) {
    *out << "gather " << what.to_gather << ", push " << what.to_push << ", acknowledge "
         << what.to_acknowledge;
}

}  // namespace uct::test

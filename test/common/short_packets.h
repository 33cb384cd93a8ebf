// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>

#include <cstdlib>
#include <thread>

namespace ucs::test {

// Runs in a thread with a network of its own, whose loopback has packets as short as an Ethernet's:
// usually one takes 64 KiB, so that hardly anything is ever cut.
// @return false if it did not run: that takes the right to make such a network, and the tool ip
template <typename Body>
bool with_short_packets(Body&& body) {
    bool is_there = false;
    std::thread([&] {
        is_there = unshare(CLONE_NEWNET) == 0 &&
                   std::system("ip link set lo mtu 1500 up >/dev/null 2>&1") == 0;
        if (is_there) body();
    }).join();
    return is_there;
}

}  // namespace ucs::test

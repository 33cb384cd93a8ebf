// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "uct/tcp/network/config.h"
#include "uct/tcp/network/device.h"

namespace uct::tcp {

// Options of every connection: delay, keep-alive, how often what is not answered is sent again.
// What the kernel refuses is logged.
void tune(const Socket& socket, const Config& config);
// Of a connection for large transfers: UCX_TCP_SEND_AHEAD.
void limit_send_ahead(const Socket& socket, const Config& config);
// Bytes that a connection carries in one packet, at most.
size_t longest_segment(const Socket& socket);

// A listening socket on the device's address, on a port of the range that is free.
// @param start  which port of the range to try first; the others follow in turn
// @param error  says which port failed and why, and what to do
Socket open_listener(const NetworkDevice& device, const Config& config, uint64_t start,
                     uint16_t* port, std::string* error);

// Begin to connect. The connection leaves from the device's own address; towards other hosts of its
// network from the device itself, so that two devices of one network are two ways.
// @param cause  0 if the connection is made or on its way, or an errno
Socket start_connect(const NetworkDevice& device, const SocketAddress& to, bool on_link,
                     const Config& config, int* cause);

// How long a peer's kernel may leave packets unanswered before the peer counts as dead.
ucs::Duration user_timeout(const Config& config);

// Bytes that the other end's kernel has not acknowledged.
size_t under_way(const Socket& socket);

// What the kernel knows of the answers to what a connection has sent.
struct Answers {
    // A connection is silent at the earliest so long after the last answer.
    static constexpr ucs::Duration kSilence = std::chrono::milliseconds(200);

    bool is_awaited = false;     // there are bytes that the other end's kernel has not acknowledged
    bool was_asked = false;      // the kernel, for what follows
    bool is_silent = false;      // they were sent again, and nothing was heard for kSilence
    uint64_t bytes = 0;          // that are not acknowledged
    unsigned packets = 0;        // sent again, or sent as probes, since the last answer
    ucs::Duration quiet{};       // since the last answer, if one is awaited
    ucs::Duration round_trip{};  // in the kernel's opinion

    // Two system calls; one if no answer is awaited.
    static Answers of(const Socket& socket);
};
inline bool is_silent(const Socket& socket) {
    return Answers::of(socket).is_silent;
}

// How long the kernel has had no acknowledgement, also of a connection that it has given up.
ucs::Duration time_without_answer(const Socket& socket);

// How long something has lasted, as far as this process looked on: without what is ucs::unseen().
class ObservedTime {
  public:
    bool is_running() const { return last_look_ != ucs::kNever; }
    // Begins, unless it runs.
    void look(ucs::Time now, ucs::Duration too_long) {
        if (is_running()) length_ += now - last_look_ - ucs::unseen(last_look_, now, too_long);
        last_look_ = now;
    }
    void begin_anew(ucs::Time now) {
        length_ = {};
        last_look_ = now;
    }
    void over() {
        length_ = {};
        last_look_ = ucs::kNever;
    }
    void at_least(ucs::Duration length) { length_ = std::max(length_, length); }
    void at_most(ucs::Duration length) { length_ = std::min(length_, length); }
    ucs::Duration length() const { return length_; }

  private:
    ucs::Time last_look_ = ucs::kNever;
    ucs::Duration length_{};
};

// Tells a peer whose host is gone from one whose program does not read: the kernel of the second
// answers, with a window of nought, for as long as it takes.
//
// The kernel's own time-out (TCP_USER_TIMEOUT) does not: it ends a connection whose window stays
// closed although every probe is answered.
class Silence {
  public:
    // @return whether nothing was answered for so long, while this process looked on
    bool lasts(const Answers& answers, ucs::Time now, ucs::Duration patience);
    void over() { time_.over(); }

  private:
    // One packet may be lost: that many are not.
    static constexpr unsigned kEnough = 2;

    ObservedTime time_;
};

}  // namespace uct::tcp

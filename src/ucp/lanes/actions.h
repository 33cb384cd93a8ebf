// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ucp/lanes/sink.h"

namespace ucp::lanes {

// What the events so far have led to and the sink has not been asked for yet, in order.
class Actions {
  public:
    enum class Kind : std::uint8_t {
        kSend,
        kCreate,
        kConnect,
        kDestroy,
        kKeep,
        kTake,
        kDropKept,
        kStartSwitch,
        kOpenWindow,
        kOpenGate,
        kStopAndMark,
        kFlush,
        kOpenEarly,
        kResume,
        kFail,
        kClosed,
        kNotify,
    };

    explicit Actions(Sink& sink) : sink_(sink) {}

    void add(Kind kind, Peer peer) { waiting_.push_back({kind, peer}); }
    // Of the kinds that have a message, or an address in it.
    void add(Kind kind, Peer peer, Message message);
    // With a message of the link's round that has no fields.
    void add(Kind kind, const Link& link, MessageType type);
    void send(Peer peer, Message message) { add(Kind::kSend, peer, std::move(message)); }
    void send(const Link& link, MessageType type) { add(Kind::kSend, link, type); }
    void fail(Peer peer, ucs_status_t status);
    void drop_kept(const PeerId& id);
    void notify(Peer peer, const Change& change);

    // Asks the sink for all of it. From inside one of its calls, which may be an event by itself,
    // this does nothing: the loop that made the call goes on with what was added.
    void carry_out();

  private:
    struct Action {
        Kind kind;
        Peer peer;
        Message message{};
        Change change{};
        ucs_status_t status = UCS_OK;
        PeerId kept_for{};
    };

    void carry_out(const Action& action);

    Sink& sink_;
    std::vector<Action> waiting_;
    bool is_running_ = false;
};

}  // namespace ucp::lanes

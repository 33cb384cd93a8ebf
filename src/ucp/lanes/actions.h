// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "ucp/lanes/sink.h"

namespace ucp::lanes {

// Room for `count` in all. Throws before anything has changed.
template <typename T>
void reserve_for(std::vector<T>& items, std::size_t count) {
    if (items.capacity() < count) items.reserve(std::max(count, 2 * items.capacity()));
}

// What the events so far have led to and the sink has not been asked for yet, in order.
class Actions {
  public:
    explicit Actions(Sink& sink) : sink_(sink) { waiting_.reserve(kRoom); }

    // A function of the sink's that takes the peer and, with it, a message or an address in it.
    template <auto kCall>
    void add(Peer peer, Message message = {}) {
        const auto call = [](Sink& sink, const Action& action) {
            if constexpr (std::is_invocable_v<decltype(kCall), Sink&, Peer>) {
                (sink.*kCall)(action.peer);
            } else if constexpr (std::is_invocable_v<decltype(kCall), Sink&, Peer, Message>) {
                (sink.*kCall)(action.peer, action.message);
            } else {
                (sink.*kCall)(action.peer, action.message.address);
            }
        };
        waiting_.push_back({call, peer, std::move(message)});
    }
    // With a message of the link's round that has no fields.
    template <auto kCall>
    void add(const Link& link, MessageType type) {
        Message message;
        message.type = type;
        message.epoch = link.epoch;
        add<kCall>(link.peer, std::move(message));
    }
    void send(Peer peer, Message message) { add<&Sink::send>(peer, std::move(message)); }
    void send(const Link& link, MessageType type) { add<&Sink::send>(link, type); }
    void fail(Peer peer, ucs_status_t status);
    void drop_kept(const PeerId& id);
    void notify(Peer peer, const Change& change);

    // Asks the sink for all of it. From inside one of its calls, which may be an event by itself,
    // this does nothing: the loop that made the call goes on with what was added.
    // A call that finds no memory (std::bad_alloc) has done nothing: it and all behind it wait for
    // the next time, and its endpoint fails if that is so for kMostTries on end.
    void carry_out();
    bool are_running() const { return is_running_; }
    bool are_waiting() const { return !waiting_.empty() && !is_running_; }
    // For events about so many links at a time: nothing may be left out in the middle of one.
    void make_room(std::size_t links) { reserve_for(waiting_, kRoom + links); }

  private:
    struct Action {
        void (*call)(Sink& sink, const Action& action);
        Peer peer;
        Message message{};
        Change change{};
        ucs_status_t status = UCS_OK;
        PeerId kept_for{};
    };

    static constexpr std::size_t kRoom = 64;
    static constexpr unsigned kMostTries = 1000;

    Sink& sink_;
    std::vector<Action> waiting_;
    bool is_running_ = false;
    unsigned tries_ = 0;  // of the first one that waits
};

}  // namespace ucp::lanes

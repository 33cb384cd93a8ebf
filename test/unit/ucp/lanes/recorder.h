// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ucp/lanes/negotiator.h"

namespace lanes_test {

// Writes down what the negotiator wants and does none of it: the test plays the world.
class Recorder : public ucp::lanes::Sink {
  public:
    using Peer = ucp::lanes::Peer;
    using Message = ucp::lanes::Message;

    // Worker ids are ten times the peer handle.
    ucp::lanes::PeerId identify(Peer peer) override { return {peer * 10, 0}; }
    ucp::lanes::Pool pool_of(Peer peer) override {
        return peer >= first_near ? ucp::lanes::Pool::kHost : ucp::lanes::Pool::kDevice;
    }
    void send(Peer peer, const Message& message) override {
        add(peer, name(message.type));
        last = message;
    }
    void create_lane(Peer peer) override { add(peer, "create"); }
    void connect_lane(Peer peer, std::span<const std::uint8_t> address) override {
        add(peer, "connect");
        connected_to.assign(address.begin(), address.end());
    }
    void destroy_lane(Peer peer) override { add(peer, "destroy"); }
    void keep_lane(Peer peer) override { add(peer, "keep"); }
    void take_lane(Peer peer) override { add(peer, "take"); }
    void drop_kept_lane(const ucp::lanes::PeerId& peer) override { add(peer.worker / 10, "drop"); }
    bool makes_room(const ucp::lanes::PeerId& kept, Peer) override {
        return kept.worker / 10 != elsewhere;
    }
    void start_tx_switch(Peer peer, const Message& mark) override { add(peer, "switch"); }
    void open_tx_window(Peer peer) override { add(peer, "window"); }
    void open_rx_gate(Peer peer) override { add(peer, "gate"); }
    void stop_tx_and_mark(Peer peer, const Message& dmark) override { add(peer, "stop"); }
    void flush_lane(Peer peer) override { add(peer, "flush"); }
    void open_early(Peer peer) override { add(peer, "early"); }
    void resume_tx(Peer peer) override { add(peer, "resume"); }
    void fail_endpoint(Peer peer, ucs_status_t) override { write(peer, "fail"); }
    void closed(Peer peer) override { add(peer, "closed"); }
    void notify(Peer, const ucp::lanes::Change&) override {}

    // What was wanted since the last call: "peer:action peer:action".
    std::string take() { return std::exchange(log_, {}); }

    Message last;
    std::vector<std::uint8_t> connected_to;
    Peer first_near = ~Peer{0};  // from this one on peers are of the same host
    Peer elsewhere = 0;          // the lane kept for it is of another adapter than all others
    unsigned failures = 0;       // so many calls find no memory from now on

  private:
    void add(Peer peer, const std::string& what) {
        if (failures != 0) {
            --failures;
            throw std::bad_alloc();
        }
        write(peer, what);
    }
    void write(Peer peer, const std::string& what) {
        if (!log_.empty()) log_ += ' ';
        log_ += std::to_string(peer) + ":" + what;
    }

    std::string log_;
};

}  // namespace lanes_test

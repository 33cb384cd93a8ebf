// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "ucp/lanes/negotiator.h"
#include "unit/ucp/lanes/config.h"

namespace lanes_test {

using ucp::lanes::Change;
using ucp::lanes::Config;
using ucp::lanes::config_of_tests;
using ucp::lanes::LaneKind;
using ucp::lanes::Link;
using ucp::lanes::LinkState;
using ucp::lanes::Message;
using ucp::lanes::Negotiator;
using ucp::lanes::Peer;
using ucp::lanes::PeerId;
using ucp::lanes::Pool;
using ucp::lanes::Score;
using ucp::lanes::Time;

class Cluster;

// So many seeds of a simulation, or events in them: all, or the part that SIMULATIONS_PART (10: a
// tenth) leaves. Sanitizers take ten times as long.
std::uint64_t part_of(std::uint64_t all);

// A worker with one endpoint to each other node: the negotiator, and the least that its embedding
// code must do to move numbered messages over two lanes. The peer handle is the other node's index.
class Node : public ucp::lanes::Sink {
  public:
    Node(Cluster& cluster, std::size_t index, std::uint64_t worker, const Config& config);

    void send_data(Peer peer, std::uint64_t count);
    void put(Peer peer);

    PeerId identify(Peer peer) override;
    // Where there are slots for them (Config::host_cap), every second node is of the same host.
    Pool pool_of(Peer peer) override;
    void send(Peer peer, const Message& message) override;
    void create_lane(Peer peer) override;
    void connect_lane(Peer peer, std::span<const std::uint8_t> address) override;
    void destroy_lane(Peer peer) override;
    void keep_lane(Peer peer) override;
    void take_lane(Peer peer) override;
    void drop_kept_lane(const PeerId& peer) override;
    bool makes_room(const PeerId&, Peer) override { return true; }
    void start_tx_switch(Peer peer, const Message& mark) override;
    void open_tx_window(Peer peer) override { pump(peer); }
    void open_rx_gate(Peer peer) override;
    void stop_tx_and_mark(Peer peer, const Message& dmark) override;
    void flush_lane(Peer peer) override;
    void open_early(Peer peer) override;
    void resume_tx(Peer peer) override { pump(peer); }
    void fail_endpoint(Peer peer, ucs_status_t status) override;
    void closed(Peer peer) override;
    void notify(Peer peer, const Change& change) override;

    struct Packet {
        enum class Kind { kControl, kData, kPut } kind;
        LaneKind lane;
        std::uint64_t lane_uid;  // of the receiver's dedicated lane
        std::uint64_t number;
        std::vector<std::uint8_t> bytes;
        ucp::lanes::Epoch after = 0;  // an ordered message: the round whose DMARK it comes after
        std::uint64_t life = 0;       // how many endpoints to the receiver the sender had before
    };
    // @return false if the packet's dedicated lane is gone
    bool arrive(Peer from, const Packet& packet);
    void on_arrived(Peer to);  // one of this node's packets left the dedicated lane
    void lane_broke(Peer to, std::uint64_t remote_uid);

    // In slots, or parked; without the kept ones.
    std::uint64_t lanes_alive() const;
    std::uint32_t slots() const { return negotiator.config().cap + negotiator.config().host_cap; }
    // Its transport has lost the lane kept for that peer, if there is one.
    void lose_kept(Peer peer);

    struct Endpoint {
        // Of the dedicated lane. 0: there is none.
        std::uint64_t uid = 0;
        std::uint64_t remote_uid = 0;
        bool connected = false;
        std::uint64_t was_connected_to = 0;  // a lane that was kept
        bool flushing = false;
        std::uint64_t on_dedicated = 0;  // posted there and not yet arrived
        std::uint64_t wanted = 0;        // messages the program has sent
        std::uint64_t posted = 0;
        std::uint64_t delivered = 0;
        std::deque<Packet> held;
        std::deque<Packet> early;
        std::size_t most_early = 0;
        std::size_t most_held = 0;
        bool failed = false;
        bool broken = false;     // one end forgot it once: a new one took its place, with a gap
        std::uint64_t life = 0;  // endpoints before this one
        std::uint64_t delivered_life = 0;  // of the sender of what was delivered
        std::uint64_t lane_life = 0;       // of the endpoint that the lane is for
        bool closed = false;
    };
    std::map<Peer, Endpoint> endpoints;
    struct Kept {
        std::uint64_t uid;
        std::uint64_t remote_uid;
    };
    std::map<Peer, Kept> kept;
    // The node's own clock beside the simulation's time: it shows another time, and runs fast or
    // slow by so many parts in a million.
    struct Clock {
        Time ahead = 0;
        std::int64_t fast = 0;

        Time at(Time time) const;
        // The first time at which it shows this or more.
        Time when(Time shown) const;
    };
    Clock clock;
    // Brings the negotiator to the present, with the timers that are due.
    void advance();
    // Of the negotiator, in the simulation's time.
    Time next_deadline() const { return clock.when(negotiator.next_deadline()); }
    std::uint64_t lanes_made = 0;
    std::uint64_t strangers = 0;  // lanes taken back whose peer had another one
    Negotiator negotiator;
    std::size_t index;
    std::uint64_t worker;
    Time no_lanes_until = 0;  // its adapter makes none until then
    bool dead = false;
    bool asleep = false;  // its program computes: it lives, and calls nothing

  private:
    bool usable(Peer peer) const;
    // Null: there is no lane, or it is for an endpoint before this one.
    ucp::lanes::Switch* direction_to(Peer peer);
    void pump(Peer peer);
    void post(Peer peer, Packet packet);
    void deliver(Peer from, const Packet& packet);
    void try_flushed(Peer peer);

    Cluster& cluster_;
};

// A discrete simulation of nodes whose lanes are FIFO with random delays. Every check that fails is
// a line in `errors`. A function of the seed.
class Cluster {
  public:
    Cluster(std::size_t nodes, const Config& config, std::uint64_t seed);

    Node& operator[](std::size_t i) { return *nodes_[i]; }
    std::size_t size() const { return nodes_.size(); }
    Time now() const { return now_; }
    std::mt19937_64& random() { return random_; }
    Time delay(Time least, Time most);

    void at(Time when, std::function<void()> what);
    void after(Time delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }
    // Runs what is due until `end`, and the negotiators' timers.
    void run(Time end);

    // What each end measures, given to the negotiators every `interval` from now on; the program
    // may change it.
    void sample_every(Time interval);
    std::map<std::pair<std::size_t, std::size_t>, Score> measured;

    // The node's program computes until `end`; then it finds what came meanwhile, lane by lane.
    void sleep(std::size_t node, Time end);
    // What an adapter tells its program after `delay`: heard when that makes progress.
    void tell(std::size_t node, Time delay, std::function<void()> what);

    // The node stops. Others notice when they send to it, `notice` later.
    void kill(std::size_t victim);
    void noticed(std::size_t observer, std::size_t victim);
    // The node loses its endpoint to that peer and lives; whoever sends to it next finds a new one.
    void forget(std::size_t node, std::size_t peer);
    Time notice = 3'000'000;

    void wire(std::size_t from, std::size_t to, Node::Packet packet);
    void error(const std::string& what);

    bool established(std::size_t a, std::size_t b);
    std::uint64_t switches() const;
    // Pairs (a < b) with a dedicated lane at both ends.
    std::vector<std::pair<std::size_t, std::size_t>> matched();
    // All links are Idle or Established at both ends alike, nothing is held, all data arrived.
    void check_quiet();

    std::vector<std::string> errors;
    std::uint64_t next_uid = 1;
    // Called for each transition: tests kill, demote or close at a chosen step.
    std::function<void(std::size_t node, Peer peer, const Change& change)> on_change;
    // Called before each delivery and each transition.
    std::function<void()> on_step;
    // Until then some messages of the network take up to as long.
    Time slow_until = 0;
    // A message in 32 takes about as long as one of these, an eighth less or more, or anything up
    // to the longest, most of them little: the tails of a busy network, around the times that
    // timers have.
    std::vector<Time> tails;
    // Chance, in percent, that a lane cannot be made.
    unsigned create_failures = 0;
    // Lanes that the adapter of a node has at most, the kept ones included.
    std::size_t most_lanes = SIZE_MAX;

  private:
    struct Due {
        Time when;
        std::uint64_t order;
        std::function<void()> what;
        bool operator>(const Due& other) const {
            return std::pair(when, order) > std::pair(other.when, other.order);
        }
    };

    // What waits for a node that sleeps.
    struct Waiting {
        bool is_dedicated;
        std::function<void()> what;
    };

    void check();
    Time tail();
    void sample(Time interval);
    void wake(std::size_t node);
    void process(std::size_t from, std::size_t to, const Node::Packet& packet);

    std::vector<std::unique_ptr<Node>> nodes_;
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    std::map<std::size_t, std::deque<Waiting>> inboxes_;
    std::map<std::tuple<std::size_t, std::size_t, LaneKind>, Time> last_arrival_;
    std::mt19937_64 random_;
    Time now_ = 0;
    std::uint64_t order_ = 0;
};

}  // namespace lanes_test

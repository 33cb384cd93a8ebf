// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ucp/lanes/negotiator.h"
#include "unit/ucp/lanes/config.h"
#include "unit/ucp/lanes/encoder.h"

namespace lanes_test::explore {

using ucp::lanes::Change;
using ucp::lanes::Config;
using ucp::lanes::config_of_tests;
using ucp::lanes::Epoch;
using ucp::lanes::LinkState;
using ucp::lanes::Message;
using ucp::lanes::MessageType;
using ucp::lanes::Negotiator;
using ucp::lanes::Peer;
using ucp::lanes::PeerId;
using ucp::lanes::Score;
using ucp::lanes::Time;

// What may happen in the world, and how often at most.
struct Limits {
    unsigned data = 0;      // messages in each direction of each pair that has a score
    unsigned failures = 0;  // lanes that cannot be made
    unsigned closes = 0;
    unsigned deaths = 0;
    unsigned forgets = 0;  // endpoints closed by force
    unsigned breaks = 0;   // lanes that fail
    unsigned fulls = 0;    // lanes without room
    unsigned ticks = 0;    // of each node: its clock reaches its next deadline
    unsigned all_ticks = ~0u;
    unsigned changes = 0;  // of scores
    unsigned policies = 0;
    bool asynchronous = false;  // the sink's calls are answered later
};

struct Plan {
    std::size_t nodes = 2;
    Config config = config_of_tests();
    Limits limits;
    std::map<std::pair<std::size_t, std::size_t>, Score> scores;  // of (from, to), at the beginning
    std::vector<Score> values = {0, 100, 1000};                   // what they may change to
};

// One thing that can happen next.
struct Event {
    enum class Kind : std::uint8_t {
        // These happen sooner or later.
        kMeasure,    // the first score of a direction
        kScalable,   // the oldest message on the scalable lane is processed
        kDedicated,  // on the dedicated lane
        kSettle,
        kCreated,
        kReady,
        kDestroyed,
        kMarked,
        kFlushed,
        kNotice,
        // These need not.
        kFail,
        kSend,
        kChange,
        kPolicy,
        kClose,
        kDie,
        kForget,
        kBreak,
        kFull,
        kTick,
    };
    Kind kind;
    std::uint8_t node;
    std::uint8_t peer;
    std::uint8_t value = 0;

    bool is_due() const { return kind <= Kind::kNotice; }
};
std::string describe(const Event& event);

// Pairs of what a link was and what happened to it, at either end.
using Reached = std::set<std::pair<LinkState, std::string>>;

// A few workers, the lanes between them as queues, and nothing that chance decides: what happens
// next is chosen from outside. Clocks are independent of each other.
class World {
  public:
    explicit World(const Plan& plan);
    ~World();

    // What can happen now, in an order that depends on the state alone.
    std::vector<Event> events() const;
    void apply(const Event& event);
    // All of the state that has influence on what follows, the same for states that differ only in
    // names (of rounds and of lanes) and in where a clock began.
    void encode(Encoder& out) const;

    // The world goes on by itself, first come first served, for so long on each clock.
    void run_on(Time time);
    // Nothing is under way any more: both ends of each link agree, and nothing was lost.
    void check_quiet();

    // The first that was found wrong; empty if nothing was.
    std::string error;
    // False while a path is gone again that was checked before.
    bool is_checked = true;
    Reached* reached = nullptr;

  private:
    class Node;
    friend class Node;
    struct Packet {
        Message message;
        std::uint64_t number = 0;    // of data; 0: it is a control message
        std::uint64_t lane_uid = 0;  // of the receiver's dedicated lane
        Epoch after = 0;             // an ordered message: the round whose DMARK it comes after
    };

    void fail(const std::string& what);
    void deliver(std::size_t from, std::size_t to, bool is_dedicated);
    void check();

    const Plan& plan_;
    Limits left_;
    std::vector<std::unique_ptr<Node>> nodes_;
    // By sender and receiver.
    std::map<std::pair<std::size_t, std::size_t>, std::list<Packet>> scalable_, dedicated_;
    std::map<std::pair<std::size_t, std::size_t>, Score> to_measure_;
    std::uint64_t next_uid_ = 1;
};

}  // namespace lanes_test::explore

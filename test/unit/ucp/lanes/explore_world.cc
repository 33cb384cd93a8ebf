// SPDX-License-Identifier: BSD-3-Clause
#include "unit/ucp/lanes/explore_world.h"

#include <algorithm>
#include <cstring>

#include "unit/ucp/lanes/arena.h"

namespace lanes_test::explore {

using ucp::lanes::kNever;
using ucp::lanes::LaneKind;
using ucp::lanes::Link;
using ucp::lanes::Policy;
using ucp::lanes::Round;
using ucp::lanes::Switch;
using Kind = Event::Kind;

namespace {

std::vector<std::uint8_t> address_of(std::uint64_t uid) {
    std::vector<std::uint8_t> address(sizeof(uid));
    std::memcpy(address.data(), &uid, sizeof(uid));
    return address;
}

std::uint64_t uid_of(std::span<const std::uint8_t> address) {
    std::uint64_t uid = 0;
    if (address.size() == sizeof(uid)) std::memcpy(&uid, address.data(), sizeof(uid));
    return uid;
}

// In which states of a link it can hear of its own lane, or get a message of its latest round. What
// is not here can come in all states, or depends on times.
bool is_possible(LinkState state, const std::string& what) {
    using enum LinkState;
    static const std::map<std::string, std::set<LinkState>> kPossible{
        {"ACCEPT", {kIdle, kRequested, kWithdrawing}},
        {"DENY", {kIdle, kRequested, kWithdrawing}},
        {"LANE", {kIdle, kCommitted, kCreating, kConnecting, kReleasing}},
        {"READY", {kIdle, kConnecting, kReady, kReleasing}},
        {"WITHDRAW", {kIdle, kCommitted, kCreating, kConnecting, kReady, kReleasing}},
        {"MARK", {kIdle, kSwitching, kDemoting, kReleasing}},
        {"MARK_ACK", {kIdle, kSwitching, kDemoting, kReleasing}},
        {"DMARK", {kSwitching, kEstablished, kDemoting}},
        {"DMARK_ACK", {kIdle, kDemoting}},
        {"FLUSHED", {kIdle, kDemoting}},
        {"lane made", {kCreating, kReleasing}},
        {"lane not made", {kCreating, kReleasing}},
        {"lane connected", {kConnecting}},
        {"lane not connected", {kConnecting}},
        {"lane gone", {kReleasing}},
        {"lane full", {kSwitching, kEstablished}},
        {"MARK posted", {kSwitching, kReleasing}},
        {"DMARK posted", {kDemoting}},
        {"flushed", {kDemoting}},
    };
    const auto found = kPossible.find(what);
    return found == kPossible.end() || found->second.contains(state);
}

}  // namespace

std::string describe(const Event& event) {
    static constexpr const char* kNames[] = {
        "measure", "scalable", "dedicated", "settle", "created", "ready",  "destroyed",
        "marked",  "flushed",  "notice",    "fail",   "send",    "change", "policy",
        "close",   "die",      "forget",    "break",  "full",    "tick"};
    return std::string(kNames[static_cast<std::size_t>(event.kind)]) + " " +
           std::to_string(event.node) + "-" + std::to_string(event.peer) +
           (event.value != 0 ? "=" + std::to_string(event.value) : "");
}

// --- a worker and the least that its embedding code must do

class World::Node final : public ucp::lanes::Sink {
  public:
    enum class Lane : std::uint8_t {
        kNone,
        kCreating,
        kTaking,
        kConnecting,
        kKeeping,
        kDestroying,
    };

    struct Endpoint {
        std::uint64_t uid = 0;  // of the dedicated lane; 0: there is none
        std::uint64_t remote_uid = 0;
        std::uint64_t was_connected_to = 0;  // a lane that was kept
        bool connected = false;
        Lane due = Lane::kNone;          // what the sink still owes
        std::uint64_t connect_to = 0;    // kConnecting
        std::optional<Message> marking;  // a marker that waits for room, and which
        bool is_dmark = false;
        bool flushing = false;
        std::uint64_t wanted = 0;
        std::uint64_t posted = 0;
        std::uint64_t delivered = 0;
        std::list<Packet> held, early;
        bool failed = false;
        bool told = false;    // its peer will notice that it failed
        bool broken = false;  // one end forgot the other: a new one took its place, with a gap
        bool closing = false;
    };
    struct Kept {
        std::uint64_t uid, remote_uid;
        Epoch epoch;
        Time since;
    };

    Node(World& of, std::size_t at, const Config& config)
        : world(of), index(at), worker(10 + at), negotiator(config, worker, *this) {}

    PeerId identify(Peer peer) override { return {10 + peer, 0}; }

    bool usable(Peer peer) const {
        const auto found = endpoints.find(peer);
        return !dead && (found == endpoints.end() || !found->second.failed);
    }

    static Packet control(const Message& message) {
        Packet packet;
        packet.message = message;
        return packet;
    }
    void send(Peer peer, const Message& message) override {
        if (usable(peer)) world.scalable_[{index, peer}].push_back(control(message));
    }

    void create_lane(Peer peer) override { bring_in(peer, Lane::kCreating); }

    void take_lane(Peer peer) override {
        const auto found = kept.extract(peer);
        if (found.empty()) return world.fail("no kept lane to take");
        endpoints[peer].uid = found.mapped().uid;
        endpoints[peer].was_connected_to = found.mapped().remote_uid;
        bring_in(peer, Lane::kTaking);
    }

    void bring_in(Peer peer, Lane what) {
        Endpoint& endpoint = endpoints[peer];
        if (what == Lane::kCreating) {
            if (kept.contains(peer)) world.fail("a new lane beside a kept one");
            if (endpoint.uid != 0) world.fail("a second lane");
            endpoint.uid = world.next_uid_++;
        }
        if (lanes_alive() > negotiator.config().cap + negotiator.parked()) {
            world.fail("a lane above the cap");
        }
        later(peer, what);
    }

    void connect_lane(Peer peer, std::span<const std::uint8_t> address) override {
        endpoints[peer].connect_to = uid_of(address);
        later(peer, Lane::kConnecting);
    }

    void keep_lane(Peer peer) override {
        Endpoint& endpoint = endpoints[peer];
        if (endpoint.uid == 0 || !endpoint.connected) world.fail("no lane to keep");
        expect_unused(peer, "kept");
        later(peer, Lane::kKeeping);
    }

    void destroy_lane(Peer peer) override {
        if (endpoints[peer].uid == 0) world.fail("no lane to destroy");
        expect_unused(peer, "destroyed");
        later(peer, Lane::kDestroying);
    }

    void drop_kept_lane(const PeerId& peer) override {
        if (kept.erase(peer.worker - 10) == 0) world.fail("no kept lane to drop");
    }

    bool makes_room(const PeerId&, Peer) override { return true; }

    void expect_unused(Peer peer, const std::string& how) {
        const Endpoint& endpoint = endpoints[peer];
        const Node& other = *world.nodes_[peer];
        const auto theirs = other.endpoints.find(index);
        const bool is_lost = endpoint.failed || endpoint.broken || other.dead ||
                             (theirs != other.endpoints.end() && theirs->second.failed);
        if (is_lost) return;
        const auto& queue = world.dedicated_[{peer, index}];
        const bool has_messages = std::ranges::any_of(
            queue, [&](const Packet& packet) { return packet.lane_uid == endpoint.uid; });
        if (has_messages) world.fail(how + " with messages on it");
        if (!endpoint.held.empty()) world.fail(how + " with held messages");
        if (!endpoint.early.empty()) world.fail(how + " with early messages");
    }

    void later(Peer peer, Lane what) {
        // A lane may go before it is connected.
        const Lane before = endpoints[peer].due;
        const bool is_over = before == Lane::kConnecting && what == Lane::kDestroying;
        if (before != Lane::kNone && !is_over) world.fail("two things at once of one lane");
        endpoints[peer].due = what;
        if (!world.plan_.limits.asynchronous && !may_fail(what)) finish(peer, true);
    }
    bool may_fail(Lane what) const {
        return world.left_.failures != 0 && what <= Lane::kConnecting;
    }

    // The sink does what it owes.
    void finish(Peer peer, bool is_good) {
        Endpoint& endpoint = endpoints[peer];
        const Lane what = std::exchange(endpoint.due, Lane::kNone);
        const Link* link = negotiator.find(peer);
        note(peer, what <= Lane::kTaking       ? is_good ? "lane made" : "lane not made"
                   : what == Lane::kConnecting ? is_good ? "lane connected" : "lane not connected"
                                               : "lane gone");
        switch (what) {
            case Lane::kCreating:
            case Lane::kTaking: {
                if (!is_good) endpoint.uid = endpoint.was_connected_to = 0;
                const ucs_status_t why =
                    what == Lane::kCreating ? UCS_ERR_NO_RESOURCE : UCS_ERR_NO_ELEM;
                negotiator.on_lane_created(peer, is_good ? UCS_OK : why, address_of(endpoint.uid));
                break;
            }
            case Lane::kConnecting: {
                if (link == nullptr) break;
                const bool is_stranger = endpoint.was_connected_to != 0 &&
                                         endpoint.was_connected_to != endpoint.connect_to;
                is_good = is_good && !is_stranger;
                if (is_good && link->state == LinkState::kConnecting) {
                    endpoint.remote_uid = endpoint.connect_to;
                    endpoint.connected = true;
                }
                negotiator.on_lane_ready(peer, is_good ? UCS_OK : UCS_ERR_ALREADY_EXISTS);
                break;
            }
            case Lane::kKeeping:
                kept[peer] = {endpoint.uid, endpoint.remote_uid, link ? link->epoch : 0, now};
                drop_lane(endpoint);
                negotiator.on_lane_destroyed(peer);
                break;
            case Lane::kDestroying:
                drop_lane(endpoint);
                negotiator.on_lane_destroyed(peer);
                break;
            case Lane::kNone:
                break;
        }
        if (!endpoint.closing) pump(peer);
    }

    static void drop_lane(Endpoint& endpoint) {
        endpoint.uid = endpoint.remote_uid = endpoint.was_connected_to = 0;
        endpoint.connected = endpoint.flushing = false;
        endpoint.marking.reset();
        endpoint.held.clear();
        endpoint.early.clear();
    }

    void start_tx_switch(Peer peer, const Message& mark) override { begin(peer, mark, false); }
    void stop_tx_and_mark(Peer peer, const Message& dmark) override { begin(peer, dmark, true); }
    void begin(Peer peer, const Message& marker, bool is_dmark) {
        Endpoint& endpoint = endpoints[peer];
        if (endpoint.marking) world.fail("two markers at once");
        endpoint.marking = marker;
        endpoint.is_dmark = is_dmark;
        if (is_dmark) pump(peer);
        if (!world.plan_.limits.asynchronous) post_marker(peer);
    }

    void post_marker(Peer peer) {
        Endpoint& endpoint = endpoints[peer];
        const Message marker = *std::exchange(endpoint.marking, std::nullopt);
        if (!usable(peer) || negotiator.switch_of(peer) == nullptr) return;
        note(peer, endpoint.is_dmark ? "DMARK posted" : "MARK posted");
        if (endpoint.is_dmark) {
            post_dedicated(peer, control(marker));
            endpoint.flushing = true;
        } else {
            send(peer, marker);
        }
        negotiator.on_marker_posted(peer);
        pump(peer);
        if (endpoint.flushing && !world.plan_.limits.asynchronous) flushed(peer);
    }

    void flush_lane(Peer) override {}  // it includes the marker, and begins with that
    void flushed(Peer peer) {
        endpoints[peer].flushing = false;
        note(peer, "flushed");
        negotiator.on_flushed(peer);
    }

    void open_tx_window(Peer peer) override { pump(peer); }
    void resume_tx(Peer peer) override { pump(peer); }
    void open_rx_gate(Peer peer) override { open(peer, &Endpoint::held); }
    void open_early(Peer peer) override { open(peer, &Endpoint::early); }
    void open(Peer peer, std::list<Packet> Endpoint::*which) {
        std::list<Packet> packets = std::exchange(endpoints[peer].*which, {});
        for (const Packet& packet : packets) {
            const bool is_dedicated = which == &Endpoint::held;
            take(peer, packet, is_dedicated ? LaneKind::kDedicated : LaneKind::kScalable);
        }
    }

    void fail_endpoint(Peer peer, ucs_status_t) override {
        Endpoint& endpoint = endpoints[peer];
        endpoint.closing = false;  // it ends with the error
        if (endpoint.broken) {
            endpoint.posted = endpoint.wanted;
            return;
        }
        endpoint.failed = true;
        endpoint.told = true;
    }
    void closed(Peer peer) override {
        if (!endpoints[peer].closing) return;  // of the whole worker
        endpoints[peer].closing = false;
        closes_heard.insert(peer);
        to_forget.insert(peer);
    }
    void notify(Peer, const Change&) override {}

    void post_dedicated(Peer peer, Packet packet) {
        const Endpoint& endpoint = endpoints[peer];
        if (endpoint.uid == 0 || !endpoint.connected) world.fail("a message without a lane");
        packet.lane_uid = endpoint.remote_uid;
        world.dedicated_[{index, peer}].push_back(std::move(packet));
    }

    void pump(Peer peer) {
        Endpoint& endpoint = endpoints[peer];
        while (usable(peer) && endpoint.posted < endpoint.wanted) {
            Switch* direction = negotiator.switch_of(peer);
            if (direction != nullptr && !direction->tx.may_post()) return;
            const LaneKind lane = direction ? direction->tx.lane() : LaneKind::kScalable;
            const bool is_ordered = direction != nullptr && direction->tx.is_ordered();
            if (direction != nullptr) direction->tx.posted();
            Packet packet;
            packet.number = ++endpoint.posted;
            if (is_ordered) packet.after = negotiator.find(peer)->epoch;
            if (lane == LaneKind::kDedicated) {
                post_dedicated(peer, std::move(packet));
            } else {
                world.scalable_[{index, peer}].push_back(std::move(packet));
            }
        }
    }

    void arrive(Peer from, const Packet& packet, LaneKind lane) {
        Endpoint& endpoint = endpoints[from];
        if (endpoint.failed) return;
        if (lane == LaneKind::kDedicated) {
            if (endpoint.uid != packet.lane_uid || !endpoint.connected) {
                const Endpoint& sender = world.nodes_[from]->endpoints[index];
                if (sender.broken) {
                    to_break.insert(from);
                } else if (!sender.failed) {
                    world.fail("a message to no lane");
                }
                return;
            }
            const Switch* direction = negotiator.switch_of(from);
            const bool is_open = direction && direction->rx.delivers(LaneKind::kDedicated);
            if (!is_open || !endpoint.held.empty()) {
                endpoint.held.push_back(packet);
                return;
            }
        }
        if (packet.after != 0) {
            using Order = Negotiator::Order;
            const Order order = negotiator.order_of(from, packet.after);
            if (order == Order::kDrop) {
                if (!endpoint.broken) world.fail("an ordered message of no round");
                return;
            }
            if (order == Order::kHold || !endpoint.early.empty()) {
                endpoint.early.push_back(packet);
                if (endpoint.early.size() > negotiator.config().window) {
                    world.fail("more than the window was kept");
                }
                return;
            }
        }
        take(from, packet, lane);
    }

    // That happens to the link in its state.
    void note(Peer peer, const std::string& what) {
        if (world.reached == nullptr) return;
        const Arena::Outside outside;
        const Link* link = negotiator.find(peer);
        const LinkState state = link ? link->state : LinkState::kIdle;
        world.reached->insert({state, what});
        if (!is_possible(state, what)) {
            world.fail(std::string(name(state)) + " cannot meet: " + what);
        }
    }

    void take(Peer from, const Packet& packet, LaneKind lane) {
        Endpoint& endpoint = endpoints[from];
        if (packet.number == 0) {
            const Link* link = negotiator.find(from);
            const Epoch epoch = packet.message.epoch;
            const bool is_old = link != nullptr && epoch != link->epoch && epoch != 0;
            note(from,
                 std::string(name(packet.message.type)) + (is_old ? " of another round" : ""));
            is_unsettled = true;
            if (negotiator.on_message(from, packet.message) != UCS_OK) {
                world.fail(std::string("violation: ") + name(packet.message.type));
            }
            return;
        }
        if (endpoint.broken) {
            if (packet.number <= endpoint.delivered) world.fail("data doubled or out of order");
            endpoint.delivered = packet.number;
            return;
        }
        const Switch* direction = negotiator.switch_of(from);
        const LaneKind open = direction ? direction->rx.lane() : LaneKind::kScalable;
        if (open != lane) world.fail("data of the closed lane");
        if (++endpoint.delivered != packet.number) world.fail("data out of order");
    }

    std::size_t lanes_alive() const {
        return static_cast<std::size_t>(std::count_if(
            endpoints.begin(), endpoints.end(), [](const auto& at) { return at.second.uid != 0; }));
    }

    void advance(Time to) {
        now = std::max(now, to);
        is_unsettled = false;
        for (const auto& [peer, link] : negotiator.links()) {
            if (link.patience_ends <= now) note(peer, "patience over");
            if (link.timer <= now) note(peer, "timer");
        }
        negotiator.advance(now);
    }

    World& world;
    const std::size_t index;
    const std::uint64_t worker;
    std::map<Peer, Endpoint> endpoints;
    std::map<Peer, Kept> kept;
    std::set<Peer> closes_heard, to_forget;
    std::set<Peer> to_break;  // whoever sent to a lane that is gone will notice
    Negotiator negotiator;
    Time now = 0;
    unsigned ticks = 0;
    bool is_unsettled = false;
    bool dead = false;
};

// --- the world

World::World(const Plan& plan) : plan_(plan), left_(plan.limits), to_measure_(plan.scores) {
    for (std::size_t i = 0; i < plan.nodes; ++i) {
        nodes_.push_back(std::make_unique<Node>(*this, i, plan.config));
        nodes_.back()->ticks = plan.limits.ticks;
    }
    for (auto& node : nodes_) {
        for (std::size_t peer = 0; peer < plan.nodes; ++peer) {
            if (peer != node->index) node->endpoints[peer];
        }
    }
}

World::~World() = default;

void World::fail(const std::string& what) {
    if (error.empty()) error = what;
}

std::vector<Event> World::events() const {
    std::vector<Event> all;
    for (const auto& node : nodes_) {
        const auto self = static_cast<std::uint8_t>(node->index);
        if (node->dead) continue;
        const auto add = [&](Kind kind, std::size_t peer, unsigned value = 0) {
            all.push_back(
                {kind, self, static_cast<std::uint8_t>(peer), static_cast<std::uint8_t>(value)});
        };
        if (node->is_unsettled || node->negotiator.is_behind()) add(Kind::kSettle, self);
        for (const auto& [peer, endpoint] : node->endpoints) {
            const std::pair to_self(peer, node->index), from_self(node->index, peer);
            const auto waits = [&](const auto& queues, const auto& pair) {
                const auto found = queues.find(pair);
                return found != queues.end() && !found->second.empty();
            };
            const bool is_peer_dead = nodes_[peer]->dead;
            const bool is_closed = endpoint.closing || node->closes_heard.contains(peer);
            if (to_measure_.contains(from_self) && !endpoint.failed && !is_closed) {
                add(Kind::kMeasure, peer);
            }
            if (waits(scalable_, to_self)) add(Kind::kScalable, peer);
            if (waits(dedicated_, to_self)) add(Kind::kDedicated, peer);
            using Lane = Node::Lane;
            if (endpoint.due != Lane::kNone) {
                const Kind kind = endpoint.due <= Lane::kTaking       ? Kind::kCreated
                                  : endpoint.due == Lane::kConnecting ? Kind::kReady
                                                                      : Kind::kDestroyed;
                add(kind, peer);
                if (node->may_fail(endpoint.due)) add(Kind::kFail, peer);
            }
            if (endpoint.marking) add(Kind::kMarked, peer);
            if (endpoint.flushing) add(Kind::kFlushed, peer);
            // Whoever sends to the dead, or to who has failed, hears of it.
            const Node::Endpoint& theirs = nodes_[peer]->endpoints.at(node->index);
            const bool sends = waits(scalable_, from_self) || waits(dedicated_, from_self);
            if (!endpoint.failed && ((is_peer_dead && sends) || theirs.told)) {
                add(Kind::kNotice, peer);
            }
            if (nodes_[peer]->to_break.contains(node->index)) add(Kind::kNotice, peer, 1);
            if (endpoint.failed) continue;

            if (endpoint.wanted < plan_.limits.data && plan_.scores.contains(from_self) &&
                !is_closed) {
                add(Kind::kSend, peer);
            }
            if (plan_.scores.contains(from_self) && !to_measure_.contains(from_self) &&
                !is_closed) {
                for (unsigned i = 0; left_.changes != 0 && i < plan_.values.size(); ++i) {
                    const Link* link = node->negotiator.find(peer);
                    if (plan_.values[i] != (link ? link->local : 0)) add(Kind::kChange, peer, i);
                }
            }
            if (left_.policies != 0) {
                for (const unsigned policy : {0u, 1u, 2u}) {
                    const Link* link = node->negotiator.find(peer);
                    const Policy now = link ? link->policy : Policy::kAuto;
                    if (static_cast<unsigned>(now) != policy) add(Kind::kPolicy, peer, policy);
                }
            }
            if (left_.closes != 0 && !is_closed) add(Kind::kClose, peer);
            if (left_.forgets != 0) add(Kind::kForget, peer);
            if (left_.breaks != 0 && endpoint.connected && endpoint.due == Lane::kNone) {
                add(Kind::kBreak, peer);
            }
            const Link* own = node->negotiator.find(peer);
            if (left_.fulls != 0 && own != nullptr && ucp::lanes::Rounds::may_demote(*own)) {
                add(Kind::kFull, peer);
            }
        }
        if (left_.deaths != 0) add(Kind::kDie, self);
        if (node->ticks != 0 && left_.all_ticks != 0 && !node->is_unsettled &&
            node->negotiator.next_deadline() != kNever) {
            add(Kind::kTick, self);
        }
    }
    return all;
}

void World::apply(const Event& event) {
    Node& node = *nodes_[event.node];
    const Peer peer = event.peer;
    Node::Endpoint& endpoint = node.endpoints[peer];
    switch (event.kind) {
        case Kind::kMeasure: {
            const auto score = to_measure_.extract({node.index, peer}).mapped();
            const ucp::lanes::Measured measured{peer, score, 0};
            node.note(peer, "score");
            node.negotiator.on_scores({&measured, 1});
            break;
        }
        case Kind::kScalable:
            deliver(peer, node.index, false);
            break;
        case Kind::kDedicated:
            deliver(peer, node.index, true);
            break;
        case Kind::kSettle:
            node.is_unsettled = false;
            node.negotiator.settle();
            break;
        case Kind::kCreated:
        case Kind::kReady:
        case Kind::kDestroyed:
            node.finish(peer, true);
            break;
        case Kind::kFail:
            --left_.failures;
            node.finish(peer, false);
            break;
        case Kind::kMarked:
            node.post_marker(peer);
            break;
        case Kind::kFlushed:
            node.flushed(peer);
            break;
        case Kind::kNotice:
            if (event.value == 1) {
                nodes_[peer]->to_break.erase(node.index);
                node.note(peer, "lane failed");
                node.negotiator.on_lane_failed(peer, UCS_ERR_ENDPOINT_TIMEOUT);
                break;
            }
            nodes_[peer]->endpoints[node.index].told = false;
            endpoint.failed = true;
            endpoint.closing = false;
            node.note(peer, "peer died");
            node.negotiator.on_peer_died(peer);
            scalable_.erase({node.index, peer});
            dedicated_.erase({node.index, peer});
            break;
        case Kind::kSend:
            ++endpoint.wanted;
            node.pump(peer);
            break;
        case Kind::kChange: {
            --left_.changes;
            const ucp::lanes::Measured measured{peer, plan_.values[event.value], 0};
            node.note(peer, "score");
            node.negotiator.on_scores({&measured, 1});
            break;
        }
        case Kind::kPolicy:
            --left_.policies;
            node.note(peer, "policy");
            node.negotiator.set_policy(peer, static_cast<Policy>(event.value));
            break;
        case Kind::kClose:
            --left_.closes;
            endpoint.closing = true;
            node.note(peer, "close");
            node.negotiator.on_close(peer);
            break;
        case Kind::kDie:
            --left_.deaths;
            node.dead = true;
            for (const auto& other : nodes_) {
                scalable_.erase({node.index, other->index});
                dedicated_.erase({node.index, other->index});
                to_measure_.erase({node.index, other->index});
            }
            break;
        case Kind::kForget: {
            --left_.forgets;
            Node::Endpoint& theirs = nodes_[peer]->endpoints[node.index];
            endpoint.broken = theirs.broken = true;
            endpoint.closing = false;
            endpoint.posted = endpoint.wanted;
            node.note(peer, "peer died");
            node.negotiator.on_peer_died(peer);
            break;
        }
        case Kind::kBreak:
            --left_.breaks;
            node.note(peer, "lane failed");
            node.negotiator.on_lane_failed(peer, UCS_ERR_ENDPOINT_TIMEOUT);
            break;
        case Kind::kFull:
            --left_.fulls;
            node.note(peer, "lane full");
            node.negotiator.on_lane_full(peer);
            break;
        case Kind::kTick:
            --node.ticks;
            --left_.all_ticks;
            node.advance(node.negotiator.next_deadline());
            break;
    }
    // The program's closed endpoint goes, as the sink was told that it may.
    for (const auto& at : nodes_) {
        for (const Peer gone : std::exchange(at->to_forget, {})) at->negotiator.forget(gone);
    }
    if (is_checked) check();
}

void World::deliver(std::size_t from, std::size_t to, bool is_dedicated) {
    auto& queue = (is_dedicated ? dedicated_ : scalable_)[{from, to}];
    const Packet packet = std::move(queue.front());
    queue.pop_front();
    nodes_[to]->arrive(from, packet, is_dedicated ? LaneKind::kDedicated : LaneKind::kScalable);
}

void World::check() {
    for (const auto& node : nodes_) {
        if (node->dead) continue;
        const Negotiator& negotiator = node->negotiator;
        const Config& config = negotiator.config();
        if (!negotiator.consistent()) fail("inconsistent");
        if (node->lanes_alive() > config.cap + negotiator.parked()) fail("above the cap");
        if (node->lanes_alive() + node->kept.size() > config.cap + config.max_parked) {
            fail("more lanes than slots and places beside them");
        }
    }
}

// --- the encoding

void World::encode(Encoder& out) const {
    out.clear();
    const auto add_message = [&](std::pair<std::size_t, std::size_t> pair, const Message& message) {
        out.add_enum(message.type);
        out.add_round(pair, message.epoch);
        out.add(message.local);
        out.add(message.estimate);
        out.add(message.floor.score);
        out.add(message.floor.id.low * 16 + message.floor.id.high);
        out.add_round(pair, message.kept);
        out.add_enum(message.deny);
        out.add_enum(message.withdraw);
        out.add(message.window);
        out.add_lane(uid_of(message.address));
    };
    const auto add_packets = [&](std::pair<std::size_t, std::size_t> pair,
                                 const std::list<Packet>& packets) {
        out.add(packets.size());
        for (const Packet& packet : packets) {
            out.add(packet.number);
            out.add_lane(packet.lane_uid);
            out.add_round(pair, packet.after);
            if (packet.number == 0) add_message(pair, packet.message);
        }
    };
    for (const unsigned left :
         {left_.failures, left_.closes, left_.deaths, left_.forgets, left_.breaks, left_.fulls,
          left_.changes, left_.policies, left_.all_ticks}) {
        out.add(left);
    }
    for (const auto& [pair, score] : to_measure_) out.add(1 + pair.first * 16 + pair.second);
    for (const auto& node : nodes_) {
        const Config& config = node->negotiator.config();
        const Time now = node->now;
        out.add(node->dead);
        if (node->dead) continue;
        out.add(node->is_unsettled);
        out.add(node->negotiator.is_behind());
        out.add(node->ticks);
        for (const auto& [peer, endpoint] : node->endpoints) {
            const auto pair = std::minmax({node->index, static_cast<std::size_t>(peer)});
            out.add_lane(endpoint.uid);
            out.add_lane(endpoint.remote_uid);
            out.add_lane(endpoint.was_connected_to);
            out.add_enum(endpoint.due);
            out.add_lane(endpoint.due == Node::Lane::kConnecting ? endpoint.connect_to : 0);
            out.add(endpoint.marking.has_value() ? 1 + endpoint.is_dmark : 0);
            if (endpoint.marking) add_message(pair, *endpoint.marking);
            out.add(endpoint.connected | endpoint.flushing << 1 | endpoint.failed << 2 |
                    endpoint.told << 3 | endpoint.broken << 4 | endpoint.closing << 5 |
                    node->closes_heard.contains(peer) << 6 | node->to_break.contains(peer) << 7);
            out.add(endpoint.wanted);
            out.add(endpoint.posted);
            out.add(endpoint.delivered);
            add_packets(pair, endpoint.held);
            add_packets(pair, endpoint.early);
            const auto kept = node->kept.find(peer);
            out.add(kept != node->kept.end());
            if (kept != node->kept.end()) {
                out.add_lane(kept->second.uid);
                out.add_lane(kept->second.remote_uid);
                out.add_round(pair, kept->second.epoch);
                out.add_since(kept->second.since, now, config.keep);
            }
            const Link* link = node->negotiator.find(peer);
            out.add(link != nullptr);
            if (link == nullptr) continue;
            const Round& round = link->round;
            out.add_enum(link->state);
            out.add_enum(link->policy);
            out.add_enum(link->life);
            out.add_enum(link->standing.role);
            out.add_enum(link->patience);
            out.add_since(link->since, now, config.min_residence);
            out.add(link->local);
            out.add(link->advertised);
            out.add(link->remote);
            out.add(link->unheard << 1 | link->owes_score);
            if (link->advertised != 0) out.add_since(link->advertised_at, now, config.refresh);
            if (link->remote != 0) out.add_until(link->remote_due, now);
            out.add_round(pair, link->epoch);
            out.add(link->estimate);
            out.add(link->denials);
            out.add(link->denials != 0 ? link->denied_score : 0);
            out.add_since(link->asked_at, now, config.retry_after);
            out.add_until(link->retry_at, now);
            out.add(link->denied_floor.has_value());
            if (link->denied_floor) {
                out.add(link->denied_floor->score);
                out.add(link->denied_floor->id.low * 16 + link->denied_floor->id.high);
            }
            out.add(link->deferred.has_value());
            if (link->deferred) {
                out.add_round(pair, link->deferred->epoch);
                out.add(link->deferred->estimate);
                out.add(link->deferred->floor.score);
                out.add(link->deferred->floor.id.low * 16 + link->deferred->floor.id.high);
                out.add_round(pair, link->deferred->kept);
                out.add(link->waits_long);
            }
            out.add_until(link->timer, now);
            out.add_until(link->patience_ends, now);
            out.add(link->pings);
            if (link->pings != 0) out.add_since(link->pinged_at, now, config.patience);
            if (link->remote != 0) out.add_since(link->heard_at, now, 2 * config.refresh);
            out.add_enum(round.lane);
            out.add_enum(round.peer);
            out.add_enum(round.acknowledged);
            out.add_enum(round.slot);
            out.add(round.flushed | round.broken << 1);
            out.add_round(pair, round.kept);
            out.add(round.window);
            out.add_lane(uid_of(round.address));
            out.add_enum(round.direction.tx.state());
            out.add(round.direction.tx.may_post());
            out.add_enum(round.direction.rx.lane());
        }
    }
    for (const auto* queues : {&scalable_, &dedicated_}) {
        for (const auto& [pair, packets] : *queues) {
            if (packets.empty()) continue;
            out.add(1 + pair.first * 16 + pair.second);
            add_packets(std::minmax(pair.first, pair.second), packets);
        }
        out.add(0);
    }
}

// --- the end

void World::run_on(Time time) {
    left_ = {};
    std::vector<Time> ends;
    for (const auto& node : nodes_) {
        node->ticks = 0;
        ends.push_back(node->now + time);
    }
    constexpr unsigned kMost = 200'000;
    for (unsigned step = 0; error.empty(); ++step) {
        if (step == kMost) return fail("the world does not come to rest");
        const std::vector<Event> all = events();
        const auto due = std::ranges::find_if(all, &Event::is_due);
        if (due != all.end()) {
            apply(*due);
            continue;
        }
        // Clocks go at the same pace.
        Node* next = nullptr;
        Time least = time;
        for (const auto& node : nodes_) {
            const Time deadline = node->negotiator.next_deadline();
            const Time begin = ends[node->index] - time;
            if (node->dead || deadline >= begin + least) continue;
            next = node.get();
            least = deadline > begin ? deadline - begin : 0;
        }
        if (next == nullptr) return;
        next->advance(next->negotiator.next_deadline());
        check();
    }
}

void World::check_quiet() {
    for (const auto& node : nodes_) {
        if (node->dead) continue;
        for (const auto& [peer, endpoint] : node->endpoints) {
            const Node& other = *nodes_[peer];
            const Link* link = node->negotiator.find(peer);
            const Link* theirs = other.negotiator.find(node->index);
            const LinkState state = link ? link->state : LinkState::kIdle;
            const LinkState their_state = theirs ? theirs->state : LinkState::kIdle;
            if (other.dead) {
                if (state != LinkState::kIdle) fail("a slot for the dead");
                continue;
            }
            if (state != LinkState::kIdle && state != LinkState::kEstablished) {
                fail(std::string("stuck in ") + name(state));
            }
            if (state != their_state) fail("the ends disagree");
            if (link && theirs && link->score() != theirs->score()) fail("scores that differ");
            if (link && link->deferred) fail("a request never answered");
            if (endpoint.closing) fail("never closed");
            if (!endpoint.held.empty() || !endpoint.early.empty()) fail("messages held for ever");
            if (endpoint.failed || endpoint.broken) continue;
            const Node::Endpoint& receiver = other.endpoints.at(node->index);
            if (receiver.failed) continue;
            if (endpoint.posted != endpoint.wanted) fail("a send without end");
            if (receiver.delivered != endpoint.wanted) fail("lost data");
        }
    }
}

}  // namespace lanes_test::explore

// SPDX-License-Identifier: BSD-3-Clause
#include "unit/ucp/lanes/cluster.h"

#include <algorithm>
#include <cstdlib>

namespace lanes_test {

using ucp::lanes::kNever;
using ucp::lanes::Switch;

namespace {
constexpr Time kMicrosecond = 1000;
constexpr std::size_t kErrorsKept = 20;
constexpr std::int64_t kMillion = 1'000'000;
}  // namespace

std::uint64_t part_of(std::uint64_t all) {
    const char* text = std::getenv("SIMULATIONS_PART");
    const std::uint64_t part = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
    return std::max<std::uint64_t>(all / std::max<std::uint64_t>(part, 1), 1);
}

// --- Node

Node::Node(Cluster& cluster, std::size_t index_of, std::uint64_t worker_id, const Config& config)
    : negotiator(config, worker_id, *this), index(index_of), worker(worker_id), cluster_(cluster) {}

PeerId Node::identify(Peer peer) {
    return {cluster_[peer].worker, 0};
}

Pool Node::pool_of(Peer peer) {
    const bool is_near = cluster_[peer].index % 2 == index % 2;
    return is_near && negotiator.config().host_cap != 0 ? Pool::kHost : Pool::kDevice;
}

Time Node::Clock::at(Time time) const {
    const auto gained = static_cast<std::int64_t>(time) * fast / kMillion;
    return ahead + time + static_cast<Time>(gained);
}

Time Node::Clock::when(Time shown) const {
    if (shown == kNever || (ahead == 0 && fast == 0)) return shown;
    if (shown <= ahead) return 0;
    Time time = (shown - ahead) * kMillion / static_cast<Time>(kMillion + fast);
    while (at(time) < shown) ++time;
    while (time > 0 && at(time - 1) >= shown) --time;
    return time;
}

void Node::advance() {
    negotiator.advance(clock.at(cluster_.now()));
}

bool Node::usable(Peer peer) const {
    const auto found = endpoints.find(peer);
    return !dead && (found == endpoints.end() || !found->second.failed);
}

Switch* Node::direction_to(Peer peer) {
    const Endpoint& endpoint = endpoints[peer];
    return endpoint.lane_life == endpoint.life ? negotiator.switch_of(peer) : nullptr;
}

void Node::send(Peer peer, const Message& message) {
    Packet packet{Packet::Kind::kControl, LaneKind::kScalable, 0, 0, {}};
    packet.bytes.resize(encoded_size(message));
    if (encode(message, packet.bytes) != packet.bytes.size()) cluster_.error("encode");
    post(peer, std::move(packet));
}

void Node::post(Peer peer, Packet packet) {
    if (!usable(peer)) return;
    Endpoint& endpoint = endpoints[peer];
    packet.life = endpoint.life;
    if (packet.lane == LaneKind::kDedicated) {
        if (endpoint.uid == 0 || !endpoint.connected) cluster_.error("post without a lane");
        packet.lane_uid = endpoint.remote_uid;
        ++endpoint.on_dedicated;
    }
    cluster_.wire(index, peer, std::move(packet));
}

void Node::create_lane(Peer peer) {
    const bool fails = cluster_.delay(0, 100) < cluster_.create_failures ||
                       cluster_.now() < no_lanes_until ||
                       lanes_alive() + kept.size() >= cluster_.most_lanes;
    if (lanes_alive() >= slots() + negotiator.parked()) {
        cluster_.error("a lane above the cap");
    }
    if (kept.contains(peer)) cluster_.error("a new lane beside a kept one");
    const std::uint64_t uid = cluster_.next_uid++;
    if (!fails) endpoints[peer].uid = uid;
    endpoints[peer].lane_life = endpoints[peer].life;
    lanes_made += !fails;
    cluster_.tell(index, cluster_.delay(0, 200 * kMicrosecond), [this, peer, uid, fails] {
        if (dead) return;
        std::vector<std::uint8_t> address(8);
        for (std::size_t i = 0; i < 8; ++i) address[i] = static_cast<std::uint8_t>(uid >> (8 * i));
        negotiator.on_lane_created(peer, fails ? UCS_ERR_NO_RESOURCE : UCS_OK, address);
    });
}

void Node::connect_lane(Peer peer, std::span<const std::uint8_t> address) {
    std::uint64_t remote = 0;
    for (std::size_t i = 0; i < 8; ++i) remote |= std::uint64_t{address[i]} << (8 * i);
    const std::uint64_t uid = endpoints[peer].uid;
    cluster_.tell(index, cluster_.delay(0, 100 * kMicrosecond), [this, peer, remote, uid] {
        if (dead || !negotiator.find(peer)) return;
        Endpoint& endpoint = endpoints[peer];
        if (endpoint.uid != uid) return;  // that lane has gone meanwhile
        const bool is_stranger =
            endpoint.was_connected_to != 0 && endpoint.was_connected_to != remote;
        if (!is_stranger && negotiator.find(peer)->state == LinkState::kConnecting) {
            endpoint.remote_uid = remote;
            endpoint.connected = true;
        }
        strangers += is_stranger;
        negotiator.on_lane_ready(peer, is_stranger ? UCS_ERR_ALREADY_EXISTS : UCS_OK);
    });
}

void Node::keep_lane(Peer peer) {
    const Endpoint& endpoint = endpoints[peer];
    if (endpoint.uid == 0 || !endpoint.connected) cluster_.error("no lane to keep");
    if (endpoint.on_dedicated != 0) cluster_.error("kept with operations");
    if (!endpoint.held.empty()) cluster_.error("kept with held messages");
    if (!endpoint.early.empty()) cluster_.error("kept with early messages");
    cluster_.tell(index, cluster_.delay(0, 100 * kMicrosecond), [this, peer] {
        if (dead) return;
        Endpoint& owner = endpoints[peer];
        kept[peer] = {owner.uid, owner.remote_uid};
        owner.uid = owner.remote_uid = owner.was_connected_to = 0;
        owner.connected = owner.flushing = false;
        negotiator.on_lane_destroyed(peer);
    });
}

void Node::take_lane(Peer peer) {
    if (lanes_alive() >= slots() + negotiator.parked()) {
        cluster_.error("a kept lane above the cap");
    }
    const auto found = kept.extract(peer);
    Endpoint& endpoint = endpoints[peer];
    endpoint.lane_life = endpoint.life;
    if (!found.empty()) {
        endpoint.uid = found.mapped().uid;
        endpoint.was_connected_to = found.mapped().remote_uid;
    }
    cluster_.tell(index, cluster_.delay(0, 20 * kMicrosecond), [this, peer, uid = endpoint.uid] {
        if (dead) return;
        std::vector<std::uint8_t> address(8);
        for (std::size_t i = 0; i < 8; ++i) address[i] = static_cast<std::uint8_t>(uid >> (8 * i));
        negotiator.on_lane_created(peer, uid != 0 ? UCS_OK : UCS_ERR_NO_ELEM, address);
    });
}

void Node::drop_kept_lane(const PeerId& peer) {
    const auto found = std::ranges::find_if(
        kept, [&](const auto& entry) { return cluster_[entry.first].worker == peer.worker; });
    if (found == kept.end()) {
        cluster_.error("no kept lane to drop");
    } else {
        kept.erase(found);
    }
}

void Node::lose_kept(Peer peer) {
    if (dead || asleep || kept.erase(peer) == 0) return;
    negotiator.on_kept_lane_lost({cluster_[peer].worker, 0});
}

void Node::destroy_lane(Peer peer) {
    Endpoint& endpoint = endpoints[peer];
    const bool peer_lives = !endpoint.failed && !endpoint.broken && !cluster_[peer].dead &&
                            !cluster_[peer].endpoints[index].failed;
    if (endpoint.uid == 0) cluster_.error("no lane to destroy");
    if (peer_lives && endpoint.on_dedicated != 0) cluster_.error("destroyed with operations");
    if (peer_lives && !endpoint.held.empty()) cluster_.error("destroyed with held messages");
    if (peer_lives && !endpoint.early.empty()) cluster_.error("destroyed with early messages");
    cluster_.tell(index, cluster_.delay(0, 100 * kMicrosecond), [this, peer] {
        if (dead) return;
        Endpoint& gone = endpoints[peer];
        gone.uid = gone.remote_uid = gone.on_dedicated = gone.was_connected_to = 0;
        gone.connected = gone.flushing = false;
        gone.held.clear();
        gone.early.clear();
        negotiator.on_lane_destroyed(peer);
    });
}

void Node::start_tx_switch(Peer peer, const Message& mark) {
    const std::uint64_t uid = endpoints[peer].uid;
    cluster_.tell(index, cluster_.delay(0, 50 * kMicrosecond), [this, peer, mark, uid] {
        if (!usable(peer) || !negotiator.switch_of(peer) || endpoints[peer].uid != uid) return;
        send(peer, mark);
        negotiator.on_marker_posted(peer);
        pump(peer);
    });
}

void Node::stop_tx_and_mark(Peer peer, const Message& dmark) {
    const std::uint64_t uid = endpoints[peer].uid;
    cluster_.tell(index, cluster_.delay(0, 50 * kMicrosecond), [this, peer, dmark, uid] {
        if (!usable(peer) || !negotiator.switch_of(peer) || endpoints[peer].uid != uid) return;
        Packet packet{Packet::Kind::kControl, LaneKind::kDedicated, 0, 0, {}};
        packet.bytes.resize(encoded_size(dmark));
        encode(dmark, packet.bytes);
        post(peer, std::move(packet));
        negotiator.on_marker_posted(peer);
        endpoints[peer].flushing = true;
    });
}

// The flush includes the marker, so it starts when that is posted.
void Node::flush_lane(Peer) {}

void Node::try_flushed(Peer peer) {
    Endpoint& endpoint = endpoints[peer];
    if (!endpoint.flushing || endpoint.on_dedicated != 0) return;
    endpoint.flushing = false;
    negotiator.on_flushed(peer);
}

// Its transport gives up: the peer's lane is gone.
void Node::lane_broke(Peer to, std::uint64_t remote_uid) {
    if (dead || endpoints[to].remote_uid != remote_uid) return;
    advance();
    negotiator.on_lane_failed(to, UCS_ERR_ENDPOINT_TIMEOUT);
}

void Node::on_arrived(Peer to) {
    if (dead || endpoints[to].on_dedicated == 0) return;
    --endpoints[to].on_dedicated;
    try_flushed(to);
}

void Node::open_rx_gate(Peer peer) {
    Endpoint& endpoint = endpoints[peer];
    while (!endpoint.held.empty()) {
        const Packet packet = std::move(endpoint.held.front());
        endpoint.held.pop_front();
        deliver(peer, packet);
    }
}

void Node::open_early(Peer peer) {
    Endpoint& endpoint = endpoints[peer];
    while (!endpoint.early.empty()) {
        const Packet packet = std::move(endpoint.early.front());
        endpoint.early.pop_front();
        deliver(peer, packet);
    }
}

// The other end's transport notices its broken lane a little later.
void Node::fail_endpoint(Peer peer, ucs_status_t) {
    // What was sent to who forgot it ends with the error, and what follows has a new endpoint.
    if (endpoints[peer].broken) {
        ++endpoints[peer].life;
        endpoints[peer].posted = endpoints[peer].wanted;
        return;
    }
    endpoints[peer].failed = true;
    cluster_.after(cluster_.notice, [this, peer] { cluster_.noticed(peer, index); });
}

void Node::closed(Peer peer) {
    if (endpoints[peer].closed) cluster_.error("closed twice");
    endpoints[peer].closed = true;
}

void Node::notify(Peer peer, const Change& change) {
    if (cluster_.on_step) cluster_.on_step();
    if (cluster_.on_change) cluster_.on_change(index, peer, change);
}

void Node::send_data(Peer peer, std::uint64_t count) {
    if (asleep) return;
    endpoints[peer].wanted += count;
    pump(peer);
}

void Node::put(Peer peer) {
    const Switch* direction = direction_to(peer);
    if (asleep || !usable(peer) || direction == nullptr) return;
    using State = ucp::lanes::TxDirection::State;
    const State state = direction->tx.state();
    if (state != State::kMarking && state != State::kWindowed && state != State::kDedicated) return;
    post(peer, {Packet::Kind::kPut, LaneKind::kDedicated, 0, 0, {}});
}

void Node::pump(Peer peer) {
    Endpoint& endpoint = endpoints[peer];
    while (usable(peer) && endpoint.posted < endpoint.wanted) {
        Switch* direction = direction_to(peer);
        if (direction != nullptr && !direction->tx.may_post()) return;
        const LaneKind lane = direction ? direction->tx.lane() : LaneKind::kScalable;
        const bool is_ordered = direction != nullptr && direction->tx.is_ordered();
        if (direction != nullptr) direction->tx.posted();
        const auto after = is_ordered ? negotiator.find(peer)->epoch : ucp::lanes::Epoch{0};
        post(peer, {Packet::Kind::kData, lane, 0, ++endpoint.posted, {}, after});
    }
}

bool Node::arrive(Peer from, const Packet& packet) {
    Endpoint& endpoint = endpoints[from];
    if (endpoint.failed) return true;
    if (packet.lane == LaneKind::kDedicated) {
        if (endpoint.uid != packet.lane_uid || !endpoint.connected) {
            const Endpoint& sender = cluster_[from].endpoints[index];
            if (!sender.failed && !sender.broken) cluster_.error("sent to no lane");
            return false;
        }
        const Switch* direction = negotiator.switch_of(from);
        const bool open = direction && direction->rx.delivers(LaneKind::kDedicated);
        if (packet.kind != Packet::Kind::kPut && (!open || !endpoint.held.empty())) {
            endpoint.held.push_back(packet);
            endpoint.most_held = std::max(endpoint.most_held, endpoint.held.size());
            return true;
        }
    }
    if (packet.after != 0) {
        using Order = Negotiator::Order;
        const Order order = negotiator.order_of(from, packet.after);
        if (order == Order::kDrop) {
            if (!endpoint.broken) cluster_.error("an ordered message of no round");
            return true;
        }
        if (order == Order::kHold || !endpoint.early.empty()) {
            endpoint.early.push_back(packet);
            endpoint.most_early = std::max(endpoint.most_early, endpoint.early.size());
            return true;
        }
    }
    deliver(from, packet);
    return true;
}

void Node::deliver(Peer from, const Packet& packet) {
    if (packet.kind == Packet::Kind::kPut) return;
    if (packet.kind == Packet::Kind::kControl) {
        Message message;
        if (decode(packet.bytes, message) != UCS_OK) cluster_.error("decode");
        if (negotiator.on_message(from, message) != UCS_OK) {
            cluster_.error(std::string("violation: ") + name(message.type));
        }
        return;
    }
    const Switch* direction = negotiator.switch_of(from);
    const LaneKind open = direction ? direction->rx.lane() : LaneKind::kScalable;
    Endpoint& endpoint = endpoints[from];
    if (endpoint.broken) {
        // What an endpoint before it had sent may come late, or never.
        if (packet.life < endpoint.delivered_life) return;
        if (packet.life == endpoint.delivered_life && packet.number <= endpoint.delivered) {
            cluster_.error("data doubled or out of order");
        }
        endpoint.delivered_life = packet.life;
        endpoint.delivered = packet.number;
        return;
    }
    if (open != packet.lane) cluster_.error("data from the closed lane");
    if (++endpoint.delivered != packet.number) cluster_.error("data out of order");
}

std::uint64_t Node::lanes_alive() const {
    return static_cast<std::uint64_t>(std::count_if(
        endpoints.begin(), endpoints.end(), [](const auto& at) { return at.second.uid != 0; }));
}

// --- Cluster

Cluster::Cluster(std::size_t nodes, const Config& config, std::uint64_t seed) : random_(seed) {
    for (std::size_t i = 0; i < nodes; ++i) {
        // The ids' order is no function of the index.
        const std::uint64_t worker = (random_() << 8) | i;
        nodes_.push_back(std::make_unique<Node>(*this, i, worker, config));
    }
}

Time Cluster::delay(Time least, Time most) {
    return least + random_() % (most - least + 1);
}

void Cluster::at(Time when, std::function<void()> what) {
    due_.push({std::max(when, now_), order_++, std::move(what)});
}

void Cluster::run(Time end) {
    while (true) {
        Time next = due_.empty() ? kNever : due_.top().when;
        for (const auto& node : nodes_) {
            if (!node->dead && !node->asleep) next = std::min(next, node->next_deadline());
        }
        if (next > end) break;
        now_ = std::max(now_, next);
        for (const auto& node : nodes_) {
            if (!node->dead && !node->asleep && node->next_deadline() <= now_) node->advance();
        }
        if (!due_.empty() && due_.top().when <= now_) {
            const auto what = due_.top().what;
            due_.pop();
            what();
        }
        check();
    }
    now_ = end;
}

void Cluster::check() {
    for (const auto& node : nodes_) {
        if (node->dead) continue;
        const Negotiator& negotiator = node->negotiator;
        if (node->lanes_alive() > node->slots() + negotiator.parked()) {
            error("above the cap");
        }
        const Config& config = negotiator.config();
        if (node->lanes_alive() + node->kept.size() > node->slots() + config.max_parked) {
            error("more lanes than slots and places beside them");
        }
        if (!node->negotiator.consistent()) error("inconsistent");
    }
}

void Cluster::sample_every(Time interval) {
    after(delay(0, interval), [this, interval] { sample(interval); });
}

void Cluster::sample(Time interval) {
    for (const auto& [pair, score] : measured) {
        const auto& [from, to] = pair;
        Node& node = *nodes_[from];
        if (node.dead || node.asleep || node.endpoints[to].failed || node.endpoints[to].closed)
            continue;
        node.advance();
        node.negotiator.on_score(to, score);
    }
    after(interval, [this, interval] { sample(interval); });
}

void Cluster::kill(std::size_t victim) {
    nodes_[victim]->dead = true;
}

void Cluster::sleep(std::size_t node, Time end) {
    if (nodes_[node]->dead || nodes_[node]->asleep) return;
    nodes_[node]->asleep = true;
    at(end, [this, node] { wake(node); });
}

// Transports are polled one after the other, so the lanes' messages come in any order.
void Cluster::wake(std::size_t node) {
    nodes_[node]->asleep = false;
    std::deque<Waiting> inbox;
    inbox.swap(inboxes_[node]);
    const bool dedicated_first = random_() % 2 == 0;
    if (random_() % 3 != 0) {
        std::stable_sort(inbox.begin(), inbox.end(), [&](const Waiting& a, const Waiting& b) {
            return a.is_dedicated != b.is_dedicated && a.is_dedicated == dedicated_first;
        });
    }
    for (const Waiting& waiting : inbox) {
        if (nodes_[node]->dead) return;
        waiting.what();
        check();
    }
}

void Cluster::tell(std::size_t node, Time delay, std::function<void()> what) {
    after(delay, [this, node, what = std::move(what)] {
        if (nodes_[node]->asleep) {
            inboxes_[node].push_back({false, what});
        } else {
            what();
        }
    });
}

void Cluster::noticed(std::size_t observer, std::size_t victim) {
    Node& node = *nodes_[observer];
    if (node.dead || node.endpoints[victim].failed) return;
    node.endpoints[victim].failed = true;
    node.advance();
    node.negotiator.on_peer_died(victim);
}

void Cluster::forget(std::size_t node, std::size_t peer) {
    Node::Endpoint& own = nodes_[node]->endpoints[peer];
    own.broken = nodes_[peer]->endpoints[node].broken = true;
    own.posted = own.wanted;
    ++own.life;
    nodes_[node]->negotiator.on_peer_died(peer);
}

// Half of them near a timer's time, the others by Pareto's law: a tenth is ten times as long.
Time Cluster::tail() {
    if (random_() % 2 == 0) {
        const Time near = tails[random_() % tails.size()];
        return near - near / 8 + delay(0, near / 4);
    }
    constexpr Time kParts = 1 << 16;
    return std::min(10 * kMicrosecond * kParts / (1 + random_() % kParts),
                    *std::ranges::max_element(tails));
}

void Cluster::wire(std::size_t from, std::size_t to, Node::Packet packet) {
    if (nodes_[to]->dead) {
        after(notice, [this, from, to] { noticed(from, to); });
        return;
    }
    Time& last = last_arrival_[{from, to, packet.lane}];
    const bool ordered = packet.kind != Node::Packet::Kind::kPut;
    Time when = now_ + delay(1 * kMicrosecond, 30 * kMicrosecond);
    if (now_ < slow_until && random_() % 8 == 0) when += delay(0, slow_until - now_);
    if (!tails.empty() && random_() % 32 == 0) when += tail();
    if (ordered) when = last = std::max(when, last);
    at(when, [this, from, to, packet = std::move(packet)] {
        if (on_step) on_step();
        if (nodes_[to]->asleep) {
            const bool is_dedicated = packet.lane == LaneKind::kDedicated;
            inboxes_[to].push_back(
                {is_dedicated, [this, from, to, packet] { process(from, to, packet); }});
            // The adapter has it.
            if (is_dedicated && nodes_[from]->endpoints[to].remote_uid == packet.lane_uid) {
                tell(from, 0, [this, from, to] { nodes_[from]->on_arrived(to); });
            }
            return;
        }
        process(from, to, packet);
        if (packet.lane == LaneKind::kDedicated && !nodes_[to]->dead &&
            nodes_[from]->endpoints[to].remote_uid == packet.lane_uid) {
            tell(from, 0, [this, from, to] { nodes_[from]->on_arrived(to); });
        }
    });
}

void Cluster::process(std::size_t from, std::size_t to, const Node::Packet& packet) {
    Node& receiver = *nodes_[to];
    if (nodes_[from]->dead) return;
    if (receiver.dead) {
        after(notice, [this, from, to] { noticed(from, to); });
        return;
    }
    receiver.negotiator.set_time(receiver.clock.at(now_));
    if (!receiver.arrive(from, packet) && nodes_[from]->endpoints[to].broken) {
        after(notice,
              [this, from, to, uid = packet.lane_uid] { nodes_[from]->lane_broke(to, uid); });
    }
}

void Cluster::error(const std::string& what) {
    if (errors.size() < kErrorsKept) errors.push_back(std::to_string(now_) + ": " + what);
}

bool Cluster::established(std::size_t a, std::size_t b) {
    const Link* link = nodes_[a]->negotiator.find(b);
    return link != nullptr && link->state == LinkState::kEstablished;
}

std::uint64_t Cluster::switches() const {
    std::uint64_t sum = 0;
    for (const auto& node : nodes_) {
        sum += node->negotiator.counters().promotions + node->negotiator.counters().demotions;
    }
    return sum;
}

std::vector<std::pair<std::size_t, std::size_t>> Cluster::matched() {
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t a = 0; a < size(); ++a) {
        if (nodes_[a]->dead) continue;
        for (const auto& [b, link] : nodes_[a]->negotiator.links()) {
            if (a < b && !nodes_[b]->dead && established(a, b) && established(b, a))
                pairs.emplace_back(a, b);
        }
    }
    return pairs;
}

void Cluster::check_quiet() {
    for (std::size_t a = 0; a < size(); ++a) {
        if (nodes_[a]->dead) continue;
        for (auto& [b, endpoint] : nodes_[a]->endpoints) {
            const std::string pair = std::to_string(a) + "-" + std::to_string(b) + ": ";
            const Link* link = nodes_[a]->negotiator.find(b);
            const LinkState state = link ? link->state : LinkState::kIdle;
            if (nodes_[b]->dead) {
                if (state != LinkState::kIdle) error(pair + "a slot for the dead");
                continue;
            }
            if (state != LinkState::kIdle && state != LinkState::kEstablished) {
                error(pair + "stuck in " + name(state));
            }
            if (established(a, b) != established(b, a)) error(pair + "the ends disagree");
            if (link && link->deferred) error(pair + "never answered");
            if (!endpoint.held.empty()) error(pair + "held messages");
            if (!endpoint.early.empty()) error(pair + "early messages");
            if (endpoint.posted != endpoint.wanted && !endpoint.failed) {
                error(pair + "a send without end");
            }
            if (nodes_[b]->endpoints[a].delivered != endpoint.wanted && !endpoint.failed &&
                !endpoint.broken) {
                error(pair + "lost data");
            }
        }
    }
}

}  // namespace lanes_test

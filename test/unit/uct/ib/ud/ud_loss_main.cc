// SPDX-License-Identifier: BSD-3-Clause

// ud_loss [--seeds N] [--first SEED]
//
// ud_verbs between emulated adapters that lose, double and reorder 0, 1, 10 and 30 % of datagrams:
// for each rate so many seeds in which nothing may be lost, doubled or reordered, then the goodput
// of a stream of 4000-byte messages (modelled, on the virtual clock).

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "uct/ib/component.h"
#include "unit/uct/world.h"

namespace uct::test {
namespace {

constexpr double kRates[] = {0, 0.01, 0.1, 0.3};

// Nodes whose programs poll all the time and do nothing else; verbs calls cost them CPU time.
class Hosts {
  public:
    Hosts(unsigned nodes, const softhca::Model& model, const softhca::FaultPlan& faults,
          const Settings& settings)
        : fabric({.nodes = nodes, .model = model, .faults = faults}), busy_(nodes) {
        static const TransportCase kCase = {"ud_verbs", "ud_verbs"};
        for (unsigned i = 0; i < nodes; ++i) {
            fabric.set_current_node(i);
            peers.push_back(std::make_unique<Peer>(ib::component(), kCase, i + 1, clock, settings));
        }
    }
    ~Hosts() {
        endpoints.clear();
        for (auto& peer : peers) {
            peer->interface.reset();
            peer->domain.reset();
        }
    }

    Endpoint& connect(unsigned from, unsigned to) {
        const auto device = peers[to]->device_address();
        const auto interface = peers[to]->interface_address();
        std::unique_ptr<Endpoint> endpoint;
        EXPECT_EQ(peers[from]->interface->create_endpoint({device, interface, {}}, &endpoint),
                  UCS_OK);
        endpoints.push_back(std::move(endpoint));
        return *endpoints.back();
    }

    // @param act  bool(unsigned node): what its program does beside polling; is there more to do?
    // @return false: all is quiet
    template <typename Act>
    bool step(Act&& act) {
        uint64_t next = fabric.next_event_time();
        for (unsigned i = 0; i < peers.size(); ++i) {
            if (busy_[i] <= fabric.now()) {
                const bool is_active = peers[i]->interface->progress() != 0;
                const bool has_more = act(i);
                busy_[i] = fabric.now() + fabric.take_cpu_time(i);
                if (is_active || has_more) next = std::min(next, busy_[i]);
            } else {
                next = std::min(next, busy_[i]);
            }
            const ucs::Time due = peers[i]->interface->next_deadline();
            if (due != ucs::kNever) {
                next = std::min(next, std::max(nanoseconds(due), busy_[i]));
            }
        }
        next = std::min(next, fabric.next_event_time());
        if (next == softhca::VirtualFabric::kNever) return false;
        fabric.advance_to(std::max(next, fabric.now() + 1));
        clock.advance_to(ucs::Time(ucs::Duration(static_cast<int64_t>(fabric.now()))));
        return true;
    }

    softhca::VirtualFabric fabric;
    ucs::VirtualClock clock;
    std::vector<std::unique_ptr<Peer>> peers;
    std::vector<std::unique_ptr<Endpoint>> endpoints;

  private:
    static uint64_t nanoseconds(ucs::Time time) {
        return static_cast<uint64_t>(time.time_since_epoch().count());
    }
    std::vector<uint64_t> busy_;  // until when their processors are
};

softhca::FaultPlan faults_of(double rate, uint64_t seed) {
    softhca::FaultPlan plan;
    plan.ud_drop = plan.ud_duplicate = plan.ud_delay = rate;
    plan.ud_delay_ns = 20000;
    plan.seed = seed;
    return plan;
}

// Messages of all kinds and sizes from one node to another, checked where they arrive.
struct Flow {
    Endpoint* endpoint;
    uint64_t number = 0;
    uint64_t received = 0;
    std::string next;  // to be sent as soon as there is room; empty: not made yet
};

std::string message_of(uint64_t flow, uint64_t number, size_t length) {
    std::string text = pattern(length, static_cast<unsigned>(flow * 7919 + number));
    const uint64_t front[] = {flow, number};
    text.replace(0, sizeof(front), reinterpret_cast<const char*>(front), sizeof(front));
    return text;
}

// @return what went wrong; empty if nothing did
std::string check_seed(double rate, uint64_t seed) {
    constexpr unsigned kNodes = 3;
    constexpr uint64_t kMessages = 60;
    ucs::Random random(seed);
    const auto number = [&](uint64_t least, uint64_t range) {
        return std::to_string(least + random.below(range));
    };
    const char* const mtus[] = {"256", "1024", "2048", "4096"};
    Settings settings = {{"IB_PATH_MTU", mtus[random.below(4)]}};
    if (random.below(2) == 0) settings.push_back({"UD_TX_QUEUE_LEN", number(4, 60)});
    if (random.below(2) == 0) settings.push_back({"UD_MAX_WINDOW", number(4, 253)});
    // Receive queues that overflow: losses of another kind.
    if (random.below(3) == 0) settings.push_back({"UD_RX_QUEUE_LEN", number(16, 64)});
    if (random.below(3) == 0) settings.push_back({"UD_RX_QUEUE_INITIAL", number(16, 16)});
    const auto model = random.below(2) == 0 ? softhca::Model() : softhca::Model::instant();
    Hosts hosts(kNodes, model, faults_of(rate, seed), settings);
    const OperationLimits limits = hosts.peers[0]->interface->attributes().am;

    std::vector<Flow> flows(kNodes * kNodes);
    std::string error;
    uint64_t left = 0;
    for (unsigned from = 0; from < kNodes; ++from) {
        Peer& peer = *hosts.peers[from];
        peer.on_message = [&, from](const Message& message) {
            uint64_t front[2] = {};
            std::memcpy(front, message.data.data(), std::min(message.data.size(), sizeof(front)));
            const bool is_known = front[0] < flows.size() && front[0] % kNodes == from;
            if (!is_known || front[1] != flows[front[0]].received ||
                message.data != message_of(front[0], front[1], message.data.size())) {
                error = fmt::format("flow {}: message {} of {} bytes is wrong, {} was due",
                                    front[0], front[1], message.data.size(),
                                    is_known ? flows[front[0]].received : 0);
                return;
            }
            ++flows[front[0]].received;
            --left;
        };
        for (unsigned to = 0; to < kNodes; ++to) {
            if (from == to || random.below(4) == 0) continue;
            flows[from * kNodes + to].endpoint = &hosts.connect(from, to);
            left += kMessages;
        }
    }
    const auto act = [&](unsigned node) {
        hosts.peers[node]->received.clear();
        bool has_more = false;
        for (unsigned to = 0; to < kNodes; ++to) {
            Flow& flow = flows[node * kNodes + to];
            if (flow.endpoint == nullptr || flow.number == kMessages) continue;
            if (random.below(8) == 0) {
                has_more = true;
                continue;
            }
            const uint64_t name = node * kNodes + to;
            const size_t most = random.below(3) == 0 ? limits.max_bcopy : 300;
            std::string& data = flow.next;
            if (data.empty()) data = message_of(name, flow.number, 16 + random.below(most - 15));
            ucs_status_t status;
            if (data.size() <= 8 + limits.max_short) {
                uint64_t front;
                std::memcpy(&front, data.data(), sizeof(front));
                status = flow.endpoint->am_short(1, front, data.data() + 8,
                                                 static_cast<uint32_t>(data.size() - 8));
            } else {
                status = static_cast<ucs_status_t>(
                    std::min<ssize_t>(0, flow.endpoint->am_bcopy(
                                             1,
                                             [](void* to, void* arg) {
                                                 const auto& text = *static_cast<std::string*>(arg);
                                                 std::memcpy(to, text.data(), text.size());
                                                 return text.size();
                                             },
                                             &data)));
            }
            if (status == UCS_OK) {
                ++flow.number;
                data.clear();
                has_more = true;
            } else if (status != UCS_ERR_NO_RESOURCE) {
                error = fmt::format("flow {}: send failed: {}", name, ucs_status_string(status));
            }
        }
        return has_more;
    };
    const auto unfinished = [&] {
        return left != 0 || std::ranges::any_of(hosts.endpoints, [](auto& endpoint) {
                   return endpoint->flush(nullptr) == UCS_INPROGRESS;
               });
    };
    for (uint64_t steps = 0; error.empty() && unfinished(); ++steps) {
        if (!hosts.step(act) || steps > 5000000) {
            error = fmt::format("{} messages never came", left);
        }
    }
    for (auto& peer : hosts.peers) {
        if (!peer->failures.empty()) error += " an endpoint failed";
    }
    return error;
}

struct Goodput {
    double gigabits = 0;
    double packets_each = 0;
    double microseconds = 0;  // of a short message there and back, in the mean
};

Goodput measure(double rate) {
    constexpr uint64_t kMessages = 20000;
    constexpr size_t kLength = 4000;
    Hosts hosts(2, softhca::Model(), faults_of(rate, 1), {});
    Endpoint& there = hosts.connect(0, 1);
    uint64_t sent = 0, received = 0;
    hosts.peers[1]->on_message = [&](const Message&) { ++received; };
    const auto act = [&](unsigned node) {
        hosts.peers[node]->received.clear();
        while (node == 0 && sent < kMessages &&
               there.am_bcopy(
                   1,
                   [](void* to, void*) {
                       std::memset(to, 1, kLength);
                       return kLength;
                   },
                   nullptr) > 0) {
            ++sent;
        }
        return false;
    };
    while (received < kMessages && hosts.step(act)) {
    }
    Goodput result;
    result.gigabits =
        static_cast<double>(received * kLength * 8) / static_cast<double>(hosts.fabric.now());
    result.packets_each = static_cast<double>(hosts.fabric.counters(0).wqes) / kMessages;

    constexpr unsigned kRounds = 2000;
    unsigned rounds = 0;
    Hosts pair(2, softhca::Model(), faults_of(rate, 1), {});
    Endpoint* ends[] = {&pair.connect(0, 1), &pair.connect(1, 0)};
    for (unsigned node = 0; node < 2; ++node) {
        pair.peers[node]->on_message = [&, node](const Message&) {
            rounds += node == 0;
            ends[node]->am_short(1, 0, nullptr, 0);
        };
    }
    ends[0]->am_short(1, 0, nullptr, 0);
    const auto idle = [&](unsigned node) {
        pair.peers[node]->received.clear();
        return false;
    };
    while (rounds < kRounds && pair.step(idle)) {
    }
    result.microseconds = static_cast<double>(pair.fabric.now()) / 1000 / kRounds;
    return result;
}

}  // namespace
}  // namespace uct::test

int main(int argc, char** argv) {
    uint64_t seeds = 20, first = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string_view name = argv[i];
        if (name == "--seeds") {
            seeds = std::strtoull(argv[i + 1], nullptr, 10);
        } else if (name == "--first") {
            first = std::strtoull(argv[i + 1], nullptr, 10);
        } else {
            std::fprintf(stderr, "ud_loss [--seeds N] [--first SEED]\n");
            return 2;
        }
    }
    uint64_t failed = 0;
    for (const double rate : uct::test::kRates) {
        for (uint64_t seed = first; seed < first + seeds; ++seed) {
            const std::string error = uct::test::check_seed(rate, seed);
            if (error.empty()) continue;
            fmt::print(stderr, "{} %, seed {}: {}\n", rate * 100, seed, error);
            ++failed;
        }
        const auto goodput = uct::test::measure(rate);
        fmt::print(
            "{:>2} % lost, doubled, delayed: {} seeds; modelled: {:.1f} Gb/s, {:.3f} work "
            "requests a packet, {:.2f} us there and back\n",
            rate * 100, seeds, goodput.gigabits, goodput.packets_each, goodput.microseconds);
        std::fflush(stdout);
    }
    fmt::print("{} seeds failed\n", failed);
    return failed == 0 && !testing::Test::HasFailure() ? 0 : 1;
}

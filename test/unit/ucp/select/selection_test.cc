// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>

namespace ucp::select {
namespace {

using uct::DeviceType;
using uct::Reach;

struct Transport {
    std::string_view name;
    DeviceType type;
    Reach reach;
    double latency;
    double overhead;
    double bandwidth;
};

constexpr Transport kTransports[] = {
    {"self", DeviceType::kSelf, Reach::kInterface, 0, 10e-9, 10e9},
    {"sm_fifo", DeviceType::kSharedMemory, Reach::kInterface, 80e-9, 10e-9, 10e9},
    {"sm_ring", DeviceType::kSharedMemory, Reach::kEndpoint, 60e-9, 10e-9, 10e9},
    {"dc_mlx5", DeviceType::kNetwork, Reach::kInterface, 660e-9, 40e-9, 12e9},
    {"rc_mlx5", DeviceType::kNetwork, Reach::kEndpoint, 600e-9, 40e-9, 12e9},
    {"rc_verbs", DeviceType::kNetwork, Reach::kEndpoint, 600e-9, 75e-9, 12e9},
    {"ud_verbs", DeviceType::kNetwork, Reach::kInterface, 650e-9, 105e-9, 11e9},
    {"tcp", DeviceType::kNetwork, Reach::kInterface, 10e-6, 5e-6, 1e9},
};

// A worker's address: words such as "dc_mlx5@1" mean a transport on the device of that number.
class Node {
  public:
    Node(uint64_t uuid, uint64_t host) {
        address_.uuid = uuid;
        address_.host = host;
    }
    Node& add(std::string_view text, double distance = 0) {
        const size_t at = std::min(text.find('@'), text.size());
        const auto* found = std::ranges::find(kTransports, text.substr(0, at), &Transport::name);
        EXPECT_NE(found, std::end(kTransports)) << text;
        AddressEntry entry;
        entry.kind = kind_of(found->name);
        entry.domain = static_cast<uint8_t>(at < text.size() ? text[at + 1] - '0'
                                                             : 20 + static_cast<int>(found->type));
        entry.device_type = found->type;
        entry.reach = found->reach;
        entry.latency = wire_cost(found->latency);
        entry.overhead = wire_cost(found->overhead);
        entry.bandwidth = wire_cost(found->bandwidth);
        entry.distance = wire_cost(distance);
        address_.entries.push_back(entry);
        names_.emplace_back(text);
        return *this;
    }
    Node& add_all(std::initializer_list<std::string_view> words) {
        for (const std::string_view word : words) add(word);
        return *this;
    }
    AddressEntry& entry(std::string_view name) {
        return address_
            .entries[static_cast<size_t>(std::ranges::find(names_, name) - names_.begin())];
    }
    Node& auxiliary(std::string_view name) {
        entry(name).auxiliary = true;
        return *this;
    }
    const WorkerAddress& address() const { return address_; }
    const std::string& name(uint8_t index) const { return names_[index]; }

  private:
    WorkerAddress address_;
    std::vector<std::string> names_;
};

constexpr auto kReachesAll = [](uint8_t, const AddressEntry&) { return true; };

// "local>peer" of the best pair, with "+dedicated" if it has a partner; "none".
std::string choice(const Node& here, const Node& there, Reaches reaches = kReachesAll) {
    std::vector<Candidate> ranked = rank(here.address(), there.address(), reaches);
    if (ranked.empty()) return "none";
    find_partner(here.address(), there.address(), reaches, ranked.front());
    const Candidate& best = ranked.front();
    std::string result = here.name(best.local);
    if (there.name(best.remote) != result) result += ">" + there.name(best.remote);
    if (best.partner_local != kNone) result += "+" + here.name(best.partner_local);
    return result;
}

Outcome outcome_of(const Node& here, const Node& there, std::string_view local,
                   std::string_view remote) {
    const Options options{.max_rails = 1, .max_rail_ratio = 4};
    for (const Candidate& each : explain(here.address(), there.address(), kReachesAll, options)) {
        const bool is_remote =
            each.remote == kNone ? remote.empty() : there.name(each.remote) == remote;
        if (here.name(each.local) == local && is_remote) return each.outcome;
    }
    ADD_FAILURE() << local << " to " << remote << " is no candidate";
    return Outcome::kNotThere;
}

const std::initializer_list<std::string_view> kEverything = {
    "self", "sm_fifo", "sm_ring", "dc_mlx5@0", "rc_mlx5@0", "rc_verbs@0", "ud_verbs@0", "tcp"};

TEST(Selection, PrefersWhatStaysNear) {
    const Node here = Node(1, 7).add_all(kEverything);
    const Node neighbour = Node(2, 7).add_all(kEverything);
    const Node far = Node(3, 8).add_all(kEverything);
    EXPECT_EQ(choice(here, here), "self");
    EXPECT_EQ(choice(here, neighbour), "sm_fifo+sm_ring");
    EXPECT_EQ(choice(here, far), "dc_mlx5@0+rc_mlx5@0");
}

TEST(Selection, UsesTheAdapterInsideAHostIfNothingElseIsLeft) {
    const Node here = Node(1, 7).add_all({"self", "dc_mlx5@0", "rc_mlx5@0"});
    const Node neighbour = Node(2, 7).add_all({"self", "dc_mlx5@0", "rc_mlx5@0"});
    EXPECT_EQ(choice(here, neighbour), "dc_mlx5@0+rc_mlx5@0");
    const Node no_self = Node(1, 7).add_all({"dc_mlx5@0", "rc_mlx5@0"});
    EXPECT_EQ(choice(no_self, no_self), "dc_mlx5@0");
}

TEST(Selection, TakesOnlyWhatBothEndsHave) {
    const Node full = Node(1, 7).add_all(kEverything);
    const struct {
        std::initializer_list<std::string_view> peer;
        const char* choice;
    } kRows[] = {
        {{"dc_mlx5@0"}, "dc_mlx5@0"},
        {{"dc_mlx5@0", "rc_verbs@0"}, "dc_mlx5@0+rc_verbs@0"},
        {{"ud_verbs@0", "rc_verbs@0"}, "ud_verbs@0+rc_verbs@0"},
        {{"ud_verbs@0", "rc_mlx5@1"}, "ud_verbs@0"},
        {{"tcp", "rc_mlx5@0"}, "tcp"},
        {{"tcp", "sm_fifo"}, "tcp"},
        {{"rc_mlx5@0"}, "none"},
        {{"self"}, "none"},
        {{}, "none"},
    };
    for (const auto& row : kRows) {
        const Node peer = Node(2, 8).add_all(row.peer);
        EXPECT_EQ(choice(full, peer), row.choice);
        EXPECT_EQ(choice(peer, full), row.choice);
    }
}

TEST(Selection, AsksTheTransportWhomItReaches) {
    const Node here = Node(1, 7).add_all(kEverything);
    const Node neighbour = Node(2, 7).add_all(kEverything);
    const auto no_shared_memory = [](uint8_t, const AddressEntry& remote) {
        return remote.device_type != DeviceType::kSharedMemory;
    };
    EXPECT_EQ(choice(here, neighbour, no_shared_memory), "dc_mlx5@0+rc_mlx5@0");
    const auto no_rc = [](uint8_t, const AddressEntry& remote) {
        return remote.reach == Reach::kInterface;
    };
    EXPECT_EQ(choice(here, neighbour, no_rc), "sm_fifo");
}

TEST(Selection, AuxiliaryTransportsServeTheirDedicatedOnes) {
    const auto node = [](uint64_t uuid, std::initializer_list<std::string_view> words) {
        return Node(uuid, uuid).add_all(words);
    };
    const Node here = node(1, {"ud_verbs@0", "rc_mlx5@0", "tcp"}).auxiliary("ud_verbs@0");
    const Node peer = node(2, {"ud_verbs@0", "rc_mlx5@0", "tcp"}).auxiliary("ud_verbs@0");
    EXPECT_EQ(choice(here, peer), "ud_verbs@0+rc_mlx5@0");
    const Node no_rc = node(3, {"ud_verbs@0", "tcp"});
    EXPECT_EQ(choice(here, no_rc), "tcp");
    EXPECT_EQ(choice(no_rc, here), "tcp");
    EXPECT_EQ(outcome_of(here, no_rc, "ud_verbs@0", "ud_verbs@0"), Outcome::kOnlyAlone);
}

TEST(Selection, TheNearestOfEqualAdaptersWins) {
    const Node here = Node(1, 7).add("dc_mlx5@0", 300e-9).add("dc_mlx5@1", 0);
    const Node peer = Node(2, 8).add("dc_mlx5@0", 0).add("dc_mlx5@1", 300e-9);
    EXPECT_EQ(choice(here, peer), "dc_mlx5@1>dc_mlx5@0");
    EXPECT_EQ(choice(peer, here), "dc_mlx5@0>dc_mlx5@1");
    EXPECT_EQ(outcome_of(here, peer, "dc_mlx5@0", "dc_mlx5@0"), Outcome::kCostlier);
}

TEST(Selection, EqualAdaptersShareThePairs) {
    std::map<std::string, int> used;
    for (uint64_t rank = 2; rank < 402; ++rank) {
        const Node here = Node(1, 1).add_all({"dc_mlx5@0", "dc_mlx5@1"});
        const Node peer = Node(rank, rank).add_all({"dc_mlx5@0", "dc_mlx5@1"});
        ++used[choice(here, peer)];
        EXPECT_EQ(choice(here, peer), choice(peer, here));
    }
    // Devices of one number at both ends: such pairs cross no rail.
    ASSERT_EQ(used.size(), 2u);
    EXPECT_GT(used["dc_mlx5@0"], 150);
    EXPECT_GT(used["dc_mlx5@1"], 150);
}

TEST(Selection, OneAdapterMeetsAllOfThePeers) {
    std::set<std::string> used;
    for (uint64_t rank = 2; rank < 42; ++rank) {
        const Node here = Node(1, 1).add_all({"dc_mlx5@0"});
        const Node peer = Node(rank, rank).add_all({"dc_mlx5@0", "dc_mlx5@1"});
        used.insert(choice(here, peer));
    }
    EXPECT_EQ(used, (std::set<std::string>{"dc_mlx5@0", "dc_mlx5@0>dc_mlx5@1"}));
}

// Both ends see the same ranking of the same pairs, whatever they have and cost.
TEST(Selection, BothEndsRankAlike) {
    std::mt19937 random(5);
    const auto draw = [&](unsigned below) { return random() % below; };
    for (int round = 0; round < 2000; ++round) {
        Node nodes[2] = {Node(draw(1000) + 1, draw(2)), Node(draw(1000) + 1001, draw(2))};
        for (Node& node : nodes) {
            const unsigned count = draw(9);
            for (unsigned index = 0; index < count; ++index) {
                const auto& transport = kTransports[draw(std::size(kTransports))];
                node.add(std::string(transport.name) + "@" + std::to_string(draw(3)),
                         draw(3) * 1.1e-7);
                if (draw(4) == 0) node.entry(node.name(0)).auxiliary = true;
                if (draw(4) == 0) node.entry(node.name(0)).latency = wire_cost(draw(5) * 3.3e-7);
            }
        }
        const WorkerAddress& a = nodes[0].address();
        const WorkerAddress& b = nodes[1].address();
        std::vector<Candidate> forth = rank(a, b, kReachesAll);
        std::vector<Candidate> back = rank(b, a, kReachesAll);
        ASSERT_EQ(forth.size(), back.size());
        for (size_t index = 0; index < forth.size(); ++index) {
            find_partner(a, b, kReachesAll, forth[index]);
            find_partner(b, a, kReachesAll, back[index]);
            EXPECT_EQ(forth[index].local, back[index].remote);
            EXPECT_EQ(forth[index].remote, back[index].local);
            EXPECT_EQ(forth[index].partner_local, back[index].partner_remote);
            EXPECT_EQ(forth[index].partner_remote, back[index].partner_local);
        }
        const Options options{.max_rails = 3, .max_rail_ratio = 4};
        EXPECT_EQ(rails(forth, a, b, options), rails(back, b, a, options));
    }
}

TEST(Rails, HaveDevicesOfTheirOwn) {
    const Node here = Node(1, 1).add_all({"dc_mlx5@0", "dc_mlx5@1", "dc_mlx5@2", "tcp"});
    const Node peer = Node(2, 2).add_all({"dc_mlx5@0", "dc_mlx5@1", "tcp"});
    const std::vector<Candidate> ranked = rank(here.address(), peer.address(), kReachesAll);
    const auto chosen =
        rails(ranked, here.address(), peer.address(), {.max_rails = 4, .max_rail_ratio = 4});
    ASSERT_EQ(chosen.size(), 2u);
    EXPECT_EQ(chosen.front(), 0);
    EXPECT_NE(ranked[chosen[0]].local, ranked[chosen[1]].local);
    EXPECT_NE(ranked[chosen[0]].remote, ranked[chosen[1]].remote);
    EXPECT_EQ(
        rails(ranked, here.address(), peer.address(), {.max_rails = 1, .max_rail_ratio = 4}).size(),
        1u);
}

TEST(Rails, LeaveOutWhatIsMuchSlower) {
    Node here = Node(1, 1).add_all({"tcp@0", "tcp@1"});
    Node peer = Node(2, 2).add_all({"tcp@0", "tcp@1"});
    const auto count = [&] {
        const auto ranked = rank(here.address(), peer.address(), kReachesAll);
        return rails(ranked, here.address(), peer.address(), {.max_rails = 4, .max_rail_ratio = 4})
            .size();
    };
    EXPECT_EQ(count(), 2u);
    here.entry("tcp@1").bandwidth = peer.entry("tcp@1").bandwidth = wire_cost(0.2e9);
    EXPECT_EQ(count(), 1u);
    EXPECT_EQ(rails({}, here.address(), peer.address(), {}).size(), 0u);
}

TEST(Explanation, NamesTheFateOfEachCandidate) {
    const Node here = Node(1, 7).add_all(kEverything);
    const Node far = Node(2, 8).add_all(
        {"self", "sm_fifo", "dc_mlx5@0", "rc_mlx5@0", "rc_verbs@0", "ud_verbs@0"});
    const struct {
        const char* local;
        const char* remote;
        Outcome outcome;
    } kRows[] = {
        {"dc_mlx5@0", "dc_mlx5@0", Outcome::kChosen},
        {"rc_mlx5@0", "rc_mlx5@0", Outcome::kPartner},
        {"rc_verbs@0", "rc_verbs@0", Outcome::kSlower},
        {"ud_verbs@0", "ud_verbs@0", Outcome::kCostlier},
        {"self", "self", Outcome::kOtherWorker},
        {"sm_fifo", "sm_fifo", Outcome::kOtherHost},
        {"sm_ring", "", Outcome::kNotThere},
        {"tcp", "", Outcome::kNotThere},
    };
    for (const auto& row : kRows) {
        EXPECT_EQ(outcome_of(here, far, row.local, row.remote), row.outcome) << row.local;
    }
    EXPECT_EQ(explain(here.address(), far.address(), kReachesAll, {}).size(), std::size(kRows));
    const Node neighbour = Node(3, 7).add_all(kEverything);
    EXPECT_EQ(outcome_of(here, neighbour, "dc_mlx5@0", "dc_mlx5@0"), Outcome::kFarther);
    EXPECT_EQ(outcome_of(here, neighbour, "rc_mlx5@0", "rc_mlx5@0"), Outcome::kNoLane);
    const Node two = Node(1, 1).add_all({"dc_mlx5@0", "dc_mlx5@1"});
    const Node other_two = Node(2, 2).add_all({"dc_mlx5@0", "dc_mlx5@1"});
    const auto all = explain(two.address(), other_two.address(), kReachesAll,
                             {.max_rails = 2, .max_rail_ratio = 4});
    ASSERT_EQ(all.size(), 4u);
    EXPECT_EQ(all[0].outcome, Outcome::kChosen);
    EXPECT_EQ(all[1].outcome, Outcome::kRail);
    EXPECT_EQ(all[2].outcome, Outcome::kTied);
}

TEST(WireCost, KeepsWhatItKept) {
    for (const double cost : {0.0, 1e-9, 600e-9, 1e9, 12.5e9, 3.7}) {
        const float once = wire_cost(cost);
        EXPECT_NEAR(once, cost, cost * 0.005);
        EXPECT_EQ(wire_cost(once), once);
    }
    EXPECT_EQ(wire_cost(-1), 0);
    EXPECT_TRUE(std::isfinite(wire_cost(std::numeric_limits<double>::infinity())));
}

}  // namespace
}  // namespace ucp::select

// SPDX-License-Identifier: BSD-3-Clause

// Adapters that are full all the time, and one operation that fails among others that do not.

#include <array>

#include "system/soft_world.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/lane_state.h"
#include "uct/ib/dc/dc_endpoint.h"
#include "uct/ib/rc/rc_endpoint.h"

namespace ucp::test {
namespace {

enum Lack : unsigned { kInitiator, kSendQueue, kCompletions, kGrant, kLacks };
enum Family : unsigned { kDc, kRc, kFamilies };

// How often somebody was seen waiting on a lane of either kind, by what that lane lacked.
class Shortages {
  public:
    void look(Worker& worker) {
        worker.endpoints().for_each([&](Endpoint& endpoint) {
            look_at(endpoint.scalable());
            if (const LaneState* lane = endpoint.lane_state()) look_at(lane->dedicated.get());
        });
    }
    uint64_t count(Family family, Lack lack) const { return counts_[family][lack]; }

  private:
    void look_at(uct::Endpoint* lane) {
        if (auto* dc = dynamic_cast<uct::ib::DcEndpoint*>(lane); dc != nullptr && !dc->empty()) {
            uct::ib::DciPool& pool = dc->interface().pool();
            const bool has_initiator = dc->dci() != uct::ib::DciPool::kNone;
            counts_[kDc][kInitiator] += !has_initiator && pool.is_scarce();
            counts_[kDc][kSendQueue] += has_initiator && !pool.at(dc->dci()).queue.has_own_room();
            counts_[kDc][kCompletions] += dc->interface().credits().available <= 0;
            counts_[kDc][kGrant] += dc->waits_for_grant();
        }
        if (auto* rc = dynamic_cast<uct::ib::RcEndpoint*>(lane); rc != nullptr && !rc->empty()) {
            counts_[kRc][kSendQueue] += !rc->has_own_room();
            counts_[kRc][kCompletions] += rc->interface().credits().available <= 0;
            counts_[kRc][kGrant] += rc->waits_for_grant();
        }
    }

    std::array<std::array<uint64_t, kLacks>, kFamilies> counts_{};
};

struct Scarcity {
    const char* name;
    SoftWire::Variables variables;
    std::vector<std::pair<Family, Lack>> lacks;  // each must be met
};
void PrintTo(const Scarcity& scarcity, std::ostream* out) {
    *out << scarcity.name;
}

SoftWire::Variables with_timers(SoftWire::Variables variables) {
    variables.push_back({"RC_TIMEOUT", "16us"});
    variables.push_back({"RC_RNR_TIMEOUT", "20us"});
    variables.push_back({"RC_FC_HARD_REQ_TIMEOUT", "1ms"});
    return variables;
}

class BackPressure : public testing::TestWithParam<Scarcity> {};

// Order and loss are checked by the traffic itself; here lanes move as well.
TEST_P(BackPressure, KeepsOrderAndLosesNothing) {
    Shortages shortages;
    for (const bool is_instant : {false, true}) {
        SoftWorld::Options options;
        options.traffic.workers = 4;
        options.traffic.operations = 250;
        options.traffic.max_length = 60000;
        options.config.max_priority_endpoints = 2;
        options.variables = with_timers(GetParam().variables);
        if (is_instant) options.model = softhca::Model::instant();
        SoftWorld world(options);
        for (size_t a = 0; a < 4; ++a) {
            for (size_t b = 0; b < a; ++b) world.join(a, b);
        }
        ucs::Random random(7);
        const auto is_done = [&] {
            for (size_t index = 0; index < 4; ++index) shortages.look(world.cluster.inner(index));
            if (random.below(40) == 0) world.party(random.below(4)).force_switch();
            bool done = true;
            for (size_t index = 0; index < 4; ++index) done &= world.party(index).is_done();
            return done;
        };
        EXPECT_TRUE(world.until(is_done, std::chrono::seconds(2)));
        world.finish({0, 1, 2, 3});
        uint64_t switches = 0;
        for (size_t index = 0; index < 4; ++index) {
            switches += world.cluster.counters(index).promotions;
            EXPECT_EQ(world.cluster.counters(index).failures, 0u);
        }
        EXPECT_GT(switches, 4u);
        if (GetParam().variables.front().first == "RC_RX_QUEUE_LEN") {
            EXPECT_GT(world.wire.fabric().total().rnr, 0u);
        }
    }
    for (const auto& [family, lack] : GetParam().lacks) {
        EXPECT_GT(shortages.count(family, lack), 0u) << "family " << family << " lack " << lack;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Everything, BackPressure,
    testing::Values(
        Scarcity{"OneDci", {{"DC_MLX5_NUM_DCI", "1"}}, {{kDc, kInitiator}}},
        Scarcity{
            "OneDciForAll",
            {{"DC_MLX5_NUM_DCI", "1"}, {"DC_MLX5_TX_POLICY", "rand"}, {"RC_TX_QUEUE_LEN", "8"}},
            {{kDc, kSendQueue}}},
        Scarcity{"SendQueues", {{"RC_TX_QUEUE_LEN", "4"}}, {{kDc, kSendQueue}, {kRc, kSendQueue}}},
        Scarcity{"CompletionQueue",
                 {{"RC_TX_CQ_LEN", "8"}, {"RC_TX_QUEUE_LEN", "8"}},
                 {{kDc, kCompletions}, {kRc, kCompletions}}},
        Scarcity{"ReceiveQueue",
                 {{"RC_RX_QUEUE_LEN", "16"}, {"RC_FC_ENABLE", "n"}, {"RC_RX_QUEUE_INITIAL", "4"}},
                 {}},
        Scarcity{"Grants", {{"RC_FC_WND_SIZE", "2"}}, {{kDc, kGrant}, {kRc, kGrant}}},
        Scarcity{"All",
                 {{"RC_RX_QUEUE_LEN", "16"},
                  {"RC_RX_QUEUE_INITIAL", "4"},
                  {"RC_FC_WND_SIZE", "4"},
                  {"RC_TX_QUEUE_LEN", "4"},
                  {"RC_TX_CQ_LEN", "16"},
                  {"RC_TX_CQ_MODERATION", "3"},
                  {"RC_MAX_RD_ATOMIC", "1"},
                  {"DC_MLX5_NUM_DCI", "1"},
                  {"DC_MLX5_TX_QUOTA", "2"}},
                 {{kDc, kInitiator}, {kRc, kSendQueue}, {kRc, kGrant}}}),
    [](const auto& info) { return std::string(info.param.name); });

class OneBadOperation : public testing::TestWithParam<const char*> {};

// Worker 0 writes to 1 with a key that is no longer valid, while all of its traffic shares one DCI.
TEST_P(OneBadOperation, ReachesItsOwnerOnly) {
    for (const bool is_promoted : {false, true}) {
        SoftWorld::Options options;
        options.traffic.workers = 3;
        options.traffic.operations = ~0u;
        options.variables =
            with_timers({{"DC_MLX5_NUM_DCI", "1"}, {"DC_MLX5_TX_POLICY", GetParam()}});
        SoftWorld world(options);
        Cluster& cluster = world.cluster;
        world.join(0, 2);
        world.join(1, 2);
        EndpointFailure failure, other;
        const ucp_ep_h owner = cluster.connect(0, 1, with_handler(failure));
        const ucp_ep_h back = cluster.connect(1, 0, with_handler(other));
        world.join(0, 1, owner);
        world.join(1, 0, back);
        if (is_promoted) {
            ASSERT_EQ(ucpx_ep_lanes_request(owner, UCPX_LANE_POLICY_DEDICATED), UCS_OK);
            ASSERT_TRUE(world.until(
                [&] { return cluster.lane_state(owner) == UCPX_LANE_STATE_ESTABLISHED; }));
        }

        std::vector<uint64_t> memory(100);
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = memory.data();
        params.length = 800;
        ucp_mem_h handle = nullptr;
        void* packed = nullptr;
        size_t size = 0;
        ASSERT_EQ(ucp_mem_map(cluster.context(1), &params, &handle), UCS_OK);
        ASSERT_EQ(ucp_rkey_pack(cluster.context(1), handle, &packed, &size), UCS_OK);
        ucp_rkey_h key = nullptr;
        ASSERT_EQ(ucp_ep_rkey_unpack(owner, packed, &key), UCS_OK);
        ucp_rkey_buffer_release(packed);
        ucp_mem_unmap(cluster.context(1), handle);

        ASSERT_TRUE(world.until([&] { return world.party(0).totals().messages > 50; }));
        ASSERT_EQ(failure.calls, 0u);
        // Worker 1 may lose its side of a dedicated lane, and answers of worker 0, but nothing
        // else.
        world.party(0).expect_failure(1);
        world.party(1).expect_failure(0);
        std::vector<uint64_t> bytes(100, 0x5a5a5a5a5a5a5a5a);
        const ucs_status_ptr_t put = ucp_put_nbx(
            owner, bytes.data(), 800, reinterpret_cast<uint64_t>(memory.data()), key, &kNothing);
        ucs_status_t status = UCS_PTR_RAW_STATUS(put);
        if (UCS_PTR_IS_PTR(put)) status = UCS_INPROGRESS;
        const ucs_status_ptr_t flush = ucp_ep_flush_nbx(owner, &kNothing);
        ASSERT_TRUE(world.until([&] { return failure.calls != 0; })) << is_promoted;
        // A put may end when its bytes were copied; the flush tells what became of it.
        if (status == UCS_INPROGRESS) status = cluster.finish(put);
        const ucs_status_t flushed = cluster.finish(flush);
        EXPECT_TRUE(status < 0 || flushed < 0);
        EXPECT_EQ(memory, std::vector<uint64_t>(100));
        world.party(0).forgive(1);
        world.party(1).forgive(0);
        // What worker 0 had not answered stays without an answer, until the program gives it up.
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        EXPECT_EQ(cluster.finish(ucp_ep_close_nbx(back, &force)), UCS_OK);
        EXPECT_TRUE(world.until([&] { return world.party(0).pending(1) == 0; }));

        const uint64_t before = world.party(0).totals().messages;
        EXPECT_TRUE(world.until([&] { return world.party(0).totals().messages > before + 50; }));
        EXPECT_EQ(world.party(0).failures(2), 0u);
        EXPECT_EQ(world.party(2).failures(0), 0u);
        EXPECT_EQ(world.party(1).failures(2), 0u);
        EXPECT_EQ(failure.calls, 1u);
        world.finish({0, 1, 2});
        ucp_rkey_destroy(key);
    }
}

INSTANTIATE_TEST_SUITE_P(Policies, OneBadOperation, testing::Values("dcs", "dcs_quota", "rand"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ucp::test

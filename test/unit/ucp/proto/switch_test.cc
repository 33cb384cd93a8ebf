// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/memory.h"
#include "ucp/proto/eager/eager.h"
#include "ucp/proto/rma/rma.h"
#include "ucp/proto/tag/engine.h"
#include "unit/ucp/proto/cluster.h"

// One-sided operations and rendezvous while their endpoint moves to a dedicated lane.
namespace ucp::test {
namespace {

class DuringPromotion : public testing::TestWithParam<unsigned> {
  protected:
    static Settings settings() {
        Settings settings;
        settings.lanes = LaneMode::kDedicated;
        settings.scheme = static_cast<RndvScheme>(GetParam() % 4);
        settings.fabric.seed = GetParam();
        settings.fabric.no_resource_probability = 0.3;
        settings.fabric.max_delay = 60;
        settings.fabric.transmit_depth = 4;
        return settings;
    }
};

TEST_P(DuringPromotion, NothingIsLostAndFencesHold) {
    Cluster cluster(settings());
    uint64_t words[4] = {};
    Memory* mapped = nullptr;
    ASSERT_EQ(Memory::create(cluster.b().context().domains(), words, sizeof(words), &mapped),
              UCS_OK);
    std::vector<std::byte> packed(packed_key_size(*mapped));
    pack_key(*mapped, packed);
    ucp_rkey_h key = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster.ep, packed.data(), &key), UCS_OK);
    const auto address = [&](size_t word) { return reinterpret_cast<uintptr_t>(words + word); };
    const ucp_request_param_t param{};
    const auto& dedicated = cluster.fabric().counters(uct::mock::Kind::kDedicated);

    // The number of fences comes to its end meanwhile, and begins again.
    cluster.a.worker().host().fence_sequence = UINT32_MAX - 300;
    uint64_t round = 0;
    std::vector<uint64_t> values(400);
    while (round < values.size()) {
        uint64_t& value = values[round];
        value = ++round;
        // The flag must never be ahead of what the fence puts before it.
        ASSERT_GE(ucp_put_nbi(cluster.ep, &value, 8, address(0), key), 0);
        ASSERT_EQ(ucp_atomic_post(cluster.ep, UCP_ATOMIC_POST_OP_ADD, 1, 4, address(1), key),
                  UCS_OK);
        cluster.a.worker().fence();
        ASSERT_GE(ucp_put_nbi(cluster.ep, &value, 8, address(2), key), 0);
        cluster.a.worker().fence();
        if (round % 40 == 0) {
            const Bytes source = pattern(30000, round);
            Bytes target(source.size());
            const ucs_status_ptr_t receiving = ucp_tag_recv_nbx(cluster.b().handle(), target.data(),
                                                                target.size(), round, ~0ul, &param);
            EXPECT_EQ(cluster.wait(cluster.a.worker().tags().send(
                          cluster.endpoint(), source.data(), source.size(), round, TagMode::kNormal,
                          OpParams(&param))),
                      UCS_OK);
            EXPECT_EQ(cluster.wait(receiving), UCS_OK);
            ASSERT_TRUE(source == target);
        }
        for (int i = 0; i < 10; ++i) {
            cluster.step();
            ASSERT_GE(words[0], words[2]);
            ASSERT_GE(words[1], words[2]);
        }
    }
    EXPECT_EQ(cluster.flush(), UCS_OK);
    EXPECT_EQ(words[0], round);
    EXPECT_EQ(words[1], round);
    EXPECT_EQ(words[2], round);
    EXPECT_GT(dedicated.put, 0u);
    EXPECT_GT(dedicated.atomic, 0u);
    ucp_rkey_destroy(key);
    Memory::destroy(mapped);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DuringPromotion, testing::Range(1u, 13u));

}  // namespace
}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause

// Notifications of batches over the emulated adapter: when they come, by what, and under faults.

#include <ostream>
#include <string>

#include "system/soft_world.h"
#include "ucp/api/ucpx.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

constexpr size_t kPieces = 8;
constexpr size_t kPiece = 4096;
constexpr size_t kArea = kPieces * kPiece;
// More than immediate data has room for.
constexpr uint64_t kWideValues = uint64_t{1} << 40;

// Whether a promoted endpoint has queue pairs for bulk beside its lane.
enum class BulkQueuePairs : bool { kNone, kSome };

SoftWorld::Options options_of(const softhca::FaultPlan& faults, const SoftWire::Variables& more,
                              BulkQueuePairs queue_pairs) {
    SoftWorld::Options options;
    options.traffic.workers = 2;
    options.faults = faults;
    options.tick = ucs::Duration(50);
    for (const auto& variable : more) options.variables.push_back(variable);
    if (queue_pairs == BulkQueuePairs::kNone) options.config.bulk_qps = 0;
    return options;
}

// Batches of one worker to the other, each to an area of its own, and what the other is told.
class NotifyingPair {
  public:
    explicit NotifyingPair(size_t areas, const softhca::FaultPlan& faults = {},
                           const SoftWire::Variables& variables = {},
                           BulkQueuePairs queue_pairs = BulkQueuePairs::kSome)
        : world(options_of(faults, variables, queue_pairs)),
          local(cluster().context(0), areas * kArea),
          remote(cluster().context(1), areas * kArea),
          told(areas) {
        remote.open(endpoint());
        local.fill(3);
        EXPECT_EQ(ucpx_worker_set_notify_handler(cluster().worker(1), on_told, this), UCS_OK);
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = 1;
        handler.cb = on_message;
        handler.arg = this;
        EXPECT_EQ(ucp_worker_set_am_recv_handler(cluster().worker(1), &handler), UCS_OK);
    }
    ~NotifyingPair() { remote.close(); }

    Cluster& cluster() { return world.cluster; }
    ucp_ep_h endpoint() { return cluster().endpoint(0, 1); }
    void promote(bool up = true) {
        ASSERT_EQ(ucpx_ep_lanes_request(
                      endpoint(), up ? UCPX_LANE_POLICY_DEDICATED : UCPX_LANE_POLICY_SCALABLE),
                  UCS_OK);
        const ucpx_lane_state_t wanted =
            up ? UCPX_LANE_STATE_ESTABLISHED : UCPX_LANE_STATE_SCALABLE;
        ASSERT_TRUE(cluster().until([&] { return cluster().lane_state(endpoint()) == wanted; }));
    }
    std::vector<ucpx_piece_t> pieces(size_t area) {
        std::vector<ucpx_piece_t> pieces;
        for (size_t i = 0; i < kPieces; ++i) {
            const size_t here = area * kArea + i * kPiece;
            const size_t there = area * kArea + (kPieces - 1 - i) * kPiece;
            pieces.push_back({local.bytes.data() + here, remote.address(there), kPiece,
                              local.memory, remote.key});
        }
        return pieces;
    }
    ucs_status_ptr_t start(size_t area, uint64_t base = 0) {
        return start_batch(endpoint(), true, pieces(area), base + area);
    }
    ucs_status_ptr_t send_message() {
        return ucp_am_send_nbx(endpoint(), 1, nullptr, 0, nullptr, 0, &kNothing);
    }
    // Everything goes as usual: the way to the peer is there, its memory known to the model.
    void warm_up() {
        EXPECT_EQ(cluster().finish(start_batch(endpoint(), true, pieces(0))), UCS_OK);
        cluster().steps(200);
    }
    ucs::Time when_told(size_t area) {
        EXPECT_TRUE(cluster().until([&] { return told[area] != 0; }));
        return cluster().clock.now();
    }

    SoftWorld world;
    Region local, remote;
    std::vector<unsigned> told;  // how often, of each area
    size_t messages = 0;         // that came to the other

  private:
    static ucs_status_t on_message(void* arg, const void*, size_t, void*, size_t,
                                   const ucp_am_recv_param_t*) {
        ++static_cast<NotifyingPair*>(arg)->messages;
        return UCS_OK;
    }
    static void on_told(void* arg, uint64_t sender, uint64_t value) {
        auto& self = *static_cast<NotifyingPair*>(arg);
        EXPECT_EQ(sender, self.cluster().uuid(0));
        const size_t area = value % kWideValues;
        ASSERT_LT(area, self.told.size());
        ++self.told[area];
        for (const ucpx_piece_t& piece : self.pieces(area)) EXPECT_TRUE(is_equal(piece)) << area;
    }
};

struct NotifiedWay {
    const char* name;
    bool is_dedicated;
    uint64_t base;      // of the values
    uint64_t requests;  // work requests beside the pieces
    uint64_t doorbells;

    friend void PrintTo(const NotifiedWay& way, std::ostream* out) { *out << way.name; }
};
constexpr NotifiedWay kWays[] = {
    {"dc_message", false, 0, 1, 2},
    {"rc_message", true, kWideValues, 1, 2},
    {"rc_immediate", true, 0, 0, 1},
};

class Notification : public testing::TestWithParam<NotifiedWay> {
  protected:
    static void expect_each_area_told_once(NotifyingPair& notifier, size_t areas, unsigned steps) {
        std::vector<ucs_status_ptr_t> batches;
        for (size_t area = 1; area < areas; ++area) {
            batches.push_back(notifier.start(area, GetParam().base));
        }
        for (const ucs_status_ptr_t batch : batches) {
            EXPECT_EQ(notifier.cluster().finish(batch), UCS_OK);
        }
        notifier.cluster().steps(steps);
        for (size_t area = 1; area < areas; ++area) EXPECT_EQ(notifier.told[area], 1u) << area;
    }
    static void prepare(NotifyingPair& notifier) {
        notifier.warm_up();
        if (GetParam().is_dedicated) notifier.promote();
        notifier.warm_up();
    }
};

TEST_P(Notification, ComesARoundTripEarlierThanAMessageAfterTheEnd) {
    NotifyingPair notifier(3, {}, {}, BulkQueuePairs::kNone);
    prepare(notifier);
    Cluster& cluster = notifier.cluster();
    const ucs::Time began = cluster.clock.now();
    const ucs_status_ptr_t batch = notifier.start(1, GetParam().base);
    const double early = static_cast<double>((notifier.when_told(1) - began).count());
    // The sender does not know yet that its bytes have landed.
    EXPECT_EQ(ucp_request_check_status(batch), UCS_INPROGRESS);
    EXPECT_EQ(cluster.finish(batch), UCS_OK);
    cluster.steps(200);

    const ucs::Time again = cluster.clock.now();
    EXPECT_EQ(cluster.finish(start_batch(notifier.endpoint(), true, notifier.pieces(2))), UCS_OK);
    EXPECT_EQ(cluster.finish(notifier.send_message()), UCS_OK);
    EXPECT_TRUE(cluster.until([&] { return notifier.messages == 1; }));
    const double late = static_cast<double>((cluster.clock.now() - again).count());
    EXPECT_GE(late - early, 2 * softhca::Model().one_way) << early << " ns, " << late;
    EXPECT_EQ(notifier.told[1], 1u);
    RecordProperty("with_the_bytes_ns", std::to_string(early));
    RecordProperty("after_their_end_ns", std::to_string(late));
}

TEST_P(Notification, OfAShortBatchCostsNoMoreThanItsMessage) {
    NotifyingPair notifier(2);
    prepare(notifier);
    softhca::VirtualFabric& fabric = notifier.world.wire.fabric();
    const softhca::Counters before = fabric.counters(0);
    const ucs_status_ptr_t batch = notifier.start(1, GetParam().base);
    const softhca::Counters after = fabric.counters(0);
    EXPECT_EQ(after.wqes - before.wqes, kPieces + GetParam().requests);
    EXPECT_EQ(after.doorbells - before.doorbells, GetParam().doorbells);
    EXPECT_EQ(notifier.cluster().finish(batch), UCS_OK);
    notifier.when_told(1);
}

TEST_P(Notification, ComesOnceAndBehindEveryByteOfALossyFabric) {
    constexpr size_t kAreas = 24;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        softhca::FaultPlan faults;
        faults.drop = 0.03;
        faults.delay = 0.2;
        faults.delay_ns = 20000;
        faults.seed = seed;
        NotifyingPair notifier(kAreas, faults);
        prepare(notifier);
        expect_each_area_told_once(notifier, kAreas, 20000);
    }
}

TEST_P(Notification, OfAQueuePairThatFailsAtAnyRequestComesOnceOrNot) {
    unsigned failed = 0, untold = 0;
    uint64_t at = 1;
    for (;; ++at) {
        SCOPED_TRACE(at);
        NotifyingPair notifier(2);
        prepare(notifier);
        softhca::FaultPlan faults;
        faults.kill_qp_after = at;
        notifier.world.wire.fabric().set_faults(faults);
        const ucs_status_t status = notifier.cluster().finish(notifier.start(1, GetParam().base));
        notifier.cluster().steps(2000);
        // Whoever is told has all bytes, as the handler checks; an error may come all the same.
        EXPECT_LE(notifier.told[1], 1u);
        if (status != UCS_OK) {
            ++failed;
            untold += notifier.told[1] == 0;
            continue;
        }
        if (at <= kPieces) continue;
        EXPECT_EQ(notifier.told[1], at <= kPieces + GetParam().requests ? 0u : 1u);
        if (notifier.told[1] == 1) break;
    }
    EXPECT_LE(at, kPieces + 4);
    EXPECT_GE(failed, kPieces);
    EXPECT_EQ(untold, failed);
}

TEST_P(Notification, ComesOnceAlthoughCreditsAndReceiveBuffersRunOut) {
    constexpr size_t kAreas = 200;
    const SoftWire::Variables scarce[] = {
        {{"RC_FC_WND_SIZE", "8"}},
        {{"RC_FC_ENABLE", "n"}, {"RC_RX_QUEUE_LEN", "16"}, {"RC_RX_QUEUE_INITIAL", "4"}},
        {{"RC_TX_QUEUE_LEN", "16"}},
    };
    for (const SoftWire::Variables& variables : scarce) {
        SCOPED_TRACE(variables.front().first);
        NotifyingPair notifier(kAreas, {}, variables);
        prepare(notifier);
        expect_each_area_told_once(notifier, kAreas, 5000);
    }
}

TEST_P(Notification, StaysBehindTheMessagesBeforeItWhileLanesChange) {
    constexpr size_t kAreas = 100;
    NotifyingPair notifier(kAreas);
    prepare(notifier);
    Cluster& cluster = notifier.cluster();
    std::vector<ucs_status_ptr_t> operations;
    size_t told = 1;
    for (size_t area = 1; area < kAreas; ++area) {
        if (area % 5 == 0) {
            ASSERT_EQ(ucpx_ep_lanes_request(notifier.endpoint(), area % 10 == 0
                                                                     ? UCPX_LANE_POLICY_DEDICATED
                                                                     : UCPX_LANE_POLICY_SCALABLE),
                      UCS_OK);
        }
        operations.push_back(notifier.send_message());
        operations.push_back(notifier.start(area, GetParam().base));
        for (size_t step = 0; step < area * 7 % 40; ++step) {
            cluster.step();
            for (; told < kAreas && notifier.told[told] != 0; ++told) {
                EXPECT_GE(notifier.messages, told);
            }
        }
    }
    for (const ucs_status_ptr_t operation : operations) {
        EXPECT_EQ(cluster.finish(operation), UCS_OK);
    }
    cluster.steps(5000);
    EXPECT_EQ(notifier.messages, kAreas - 1);
    for (size_t area = 1; area < kAreas; ++area) EXPECT_EQ(notifier.told[area], 1u) << area;
}

INSTANTIATE_TEST_SUITE_P(Ways, Notification, testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/schedule/thresholds.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ucp/proto/select/announcement.h"
#include "unit/ucp/bulk/engine/two_rails.h"

namespace ucp::bulk::test {
namespace {

/** Interfaces of 10 Gbit/s as TCP describes them. */
TransportCosts tcp_ways(unsigned devices) {
    return {.latency = 30e-6,
            .overhead = 2e-6,
            .registration = 0.5e-6,
            .bandwidth = 1.2e9,
            .together = devices * 1.2e9,
            .slice = 65536};
}

/** Adapters of 400 Gbit/s. */
TransportCosts adapter_ways(unsigned devices) {
    return {.latency = 0.6e-6,
            .overhead = 75e-9,
            .registration = 16e-6,
            .bandwidth = 48e9,
            .together = devices * 48e9,
            .slice = 65536};
}

TEST(Thresholds, AnnouncingOneMessagePaysWhenItsTwoCopiesTakeLonger) {
    EXPECT_EQ(rendezvous_threshold(tcp_ways(1)), static_cast<size_t>(65e-6 * kCopyBandwidth / 2));
    TransportCosts costs = tcp_ways(1);
    costs.latency = 1;
    EXPECT_EQ(rendezvous_threshold(costs), 512u << 10);
    costs.latency = costs.overhead = costs.registration = 0;
    EXPECT_EQ(rendezvous_threshold(costs), 8u << 10);
}

TEST(Thresholds, SeveralDevicesAnnounceOneMessageAsSoonAsEachHasASliceOfIt) {
    EXPECT_EQ(rendezvous_threshold(tcp_ways(2)), 2 * tcp_ways(2).slice);
    TransportCosts costs = tcp_ways(2);
    costs.slice = 16384;
    const size_t two = rendezvous_threshold(costs);
    EXPECT_LT(two, rendezvous_threshold(tcp_ways(1)));
    EXPECT_GT(two, 2 * costs.slice);
    costs.together = 4 * costs.bandwidth;
    EXPECT_LT(rendezvous_threshold(costs), two);
    // Slices that are longer than what is announced anyway change nothing.
    costs.slice = 1 << 20;
    EXPECT_EQ(rendezvous_threshold(costs), rendezvous_threshold(tcp_ways(1)));
}

TEST(Thresholds, AmongOthersAMessageIsAnnouncedForTheOtherDevicesAlone) {
    EXPECT_EQ(rendezvous_threshold_in_window(tcp_ways(1)), SIZE_MAX);
    // Twice what three messages of 2 us and 0.5 us cost, against half the time on the wire.
    EXPECT_NEAR(static_cast<double>(rendezvous_threshold_in_window(tcp_ways(2))), 13e-6 * 2.4e9, 1);
    EXPECT_LT(rendezvous_threshold_in_window(tcp_ways(4)),
              rendezvous_threshold_in_window(tcp_ways(2)));
    TransportCosts slow = tcp_ways(2);
    slow.bandwidth /= 10;
    slow.together /= 10;
    EXPECT_EQ(rendezvous_threshold_in_window(slow), kMinRendezvous);
}

TEST(Thresholds, FastAdaptersSaveLessThanRegistrationsCost) {
    EXPECT_GT(rendezvous_threshold_in_window(adapter_ways(2)), kBulkThreshold);
    EXPECT_NEAR(static_cast<double>(rendezvous_threshold(adapter_ways(2))),
                static_cast<double>(rendezvous_threshold(adapter_ways(1))), 8192);
}

/** Two workers on devices with the figures of TCP at 10 Gbit/s, slices of 4 KiB. */
class Announcing : public testing::Test {
  protected:
    static constexpr size_t kMiddle = 32 * 1024;  //!< eager alone, announced among others

    void open(unsigned devices, size_t rndv_threshold = 0) {
        ucp::test::Cluster::Options options = BulkCluster::options(devices);
        options.fabric.bandwidth = 1.2e9;
        options.fabric.latency = 30e-6;
        options.config.bulk_threshold.reset();
        if (rndv_threshold != 0)
            options.config.rndv_threshold = ucs::config::MemorySize{rndv_threshold};
        cluster_ = std::make_unique<ucp::test::Cluster>(2, options);
        cluster_->fabric.observe([this](const uct::mock::PacketEvent& event) {
            if (event.am_id == static_cast<int>(AmId::kRndvRts)) ++announced_;
            if (event.am_id < 0) ++read_[event.device];
        });
    }
    void TearDown() override {
        if (cluster_ != nullptr) cluster_->fabric.observe(nullptr);
    }
    /** Sends that many messages at once from 0 to 1. @return how many of them were announced */
    unsigned send(size_t length, unsigned count = 1) {
        const unsigned before = announced_;
        const std::vector<uint8_t> source = ucp::test::pattern(length, length);
        std::vector<std::vector<uint8_t>> targets(count, std::vector<uint8_t>(length));
        std::vector<ucs_status_ptr_t> all;
        for (unsigned i = 0; i < count; ++i) {
            all.push_back(
                ucp_tag_send_nbx(cluster_->endpoint(0, 1), source.data(), length, 7, &kNothing));
        }
        for (auto& target : targets) {
            all.push_back(ucp_tag_recv_nbx(cluster_->worker(1), target.data(), length, 7,
                                           ~ucp_tag_t{0}, &kNothing));
        }
        for (const ucs_status_ptr_t operation : all) EXPECT_EQ(cluster_->finish(operation), UCS_OK);
        for (const auto& target : targets) EXPECT_EQ(target, source);
        return announced_ - before;
    }
    /** 0 receives a short message: it is its turn to send. */
    void hear() {
        uint64_t word = 1;
        const ucs_status_ptr_t sent =
            ucp_tag_send_nbx(cluster_->endpoint(1, 0), &word, sizeof(word), 9, &kNothing);
        EXPECT_EQ(cluster_->finish(ucp_tag_recv_nbx(cluster_->worker(0), &word, sizeof(word), 9,
                                                    ~ucp_tag_t{0}, &kNothing)),
                  UCS_OK);
        EXPECT_EQ(cluster_->finish(sent), UCS_OK);
    }

    std::unique_ptr<ucp::test::Cluster> cluster_;
    unsigned announced_ = 0;
    std::array<unsigned, 2> read_{};  //!< packets of one-sided operations, by device
};

TEST_F(Announcing, OverOneDeviceOnlyWhatIsLongIsAnnounced) {
    open(1);
    EXPECT_EQ(send(kMiddle, 4), 0u);
    const size_t threshold =
        rndv_threshold(cluster_->inner(0).bulk(), unwrap(cluster_->endpoint(0, 1)), {});
    EXPECT_GT(threshold, 128u << 10);
    EXPECT_EQ(send(threshold - 1), 0u);
    EXPECT_EQ(send(threshold), 1u);
}

TEST_F(Announcing, AWindowIsSharedByTwoDevices) {
    open(2);
    EXPECT_EQ(send(kMiddle, 8), 8u);
    EXPECT_GT(read_[0], 0u);
    EXPECT_GT(read_[1], 0u);
    EXPECT_EQ(send(kMinRendezvous - 1, 8), 0u);
}

TEST_F(Announcing, AMessageThatTheProgramWaitsForIsNotUnlessItIsLong) {
    open(2);
    hear();
    EXPECT_EQ(send(kMiddle), 0u);
    hear();
    EXPECT_EQ(send(kMiddle), 0u);
    const size_t threshold =
        rndv_threshold(cluster_->inner(0).bulk(), unwrap(cluster_->endpoint(0, 1)), {});
    EXPECT_LT(threshold, 128u << 10);
    hear();
    EXPECT_EQ(send(threshold - 1), 0u);
    hear();
    EXPECT_EQ(send(threshold), 1u);
}

TEST_F(Announcing, TheFirstOfAWindowIsIfTheLastTurnHadSeveral) {
    open(2);
    hear();
    EXPECT_EQ(send(kMiddle, 8), 7u);
    hear();
    EXPECT_EQ(send(kMiddle, 8), 8u);
}

TEST_F(Announcing, AThresholdThatIsSetHolds) {
    open(2, 20000);
    EXPECT_EQ(send(19999, 8), 0u);
    hear();
    EXPECT_EQ(send(20000), 1u);
}

}  // namespace
}  // namespace ucp::bulk::test

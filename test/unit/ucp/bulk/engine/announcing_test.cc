// SPDX-License-Identifier: BSD-3-Clause

// Which messages are announced over one device and over two.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "unit/ucp/bulk/engine/two_rails.h"

namespace ucp::bulk::test {
namespace {

constexpr size_t kAnnouncedFrom = 8 * 1024;  // nothing shorter is announced

// From which length on a message that is alone is announced.
size_t threshold_of(ucp_ep_h endpoint) {
    for (const auto& range : unwrap(endpoint).protocols().ranges(select::Operation::kTag,
                                                                 select::BufferClass::kContiguous,
                                                                 select::Situation::kAlone)) {
        if (select::is_announced(range.protocol)) return range.first;
    }
    return SIZE_MAX;
}

// Two workers on devices with the figures of TCP at 10 Gbit/s, slices of 4 KiB.
class Announcing : public testing::Test {
  protected:
    static constexpr size_t kMiddle = 32 * 1024;  // eager alone, announced among others

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
    // Sends that many messages at once from 0 to 1. @return how many of them were announced
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
    // 0 receives a short message: it is its turn to send.
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
    std::array<unsigned, 2> read_{};  // packets of one-sided operations, by device
};

TEST_F(Announcing, OverOneDeviceOnlyWhatIsLongIsAnnounced) {
    open(1);
    EXPECT_EQ(send(kMiddle, 4), 0u);
    const size_t threshold = threshold_of(cluster_->endpoint(0, 1));
    EXPECT_GT(threshold, 128u << 10);
    EXPECT_EQ(send(threshold - 1), 0u);
    EXPECT_EQ(send(threshold), 1u);
}

TEST_F(Announcing, AWindowIsSharedByTwoDevices) {
    open(2);
    EXPECT_EQ(send(kMiddle, 8), 8u);
    EXPECT_GT(read_[0], 0u);
    EXPECT_GT(read_[1], 0u);
    EXPECT_EQ(send(kAnnouncedFrom - 1, 8), 0u);
}

TEST_F(Announcing, AMessageThatTheProgramWaitsForIsNotUnlessItIsLong) {
    open(2);
    hear();
    EXPECT_EQ(send(kMiddle), 0u);
    hear();
    EXPECT_EQ(send(kMiddle), 0u);
    const size_t threshold = threshold_of(cluster_->endpoint(0, 1));
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

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rndv/direct.h"

#include <algorithm>
#include <map>
#include <vector>

#include "ucp/proto/rndv/rndv_wire.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucp/proto/fake_device.h"
#include "unit/ucs/log/log_capture.h"

// Tagged messages between memory of devices of two workers, which the receiver's device copies.
namespace ucp::test {
namespace {

// Copies end when they are told to.
class DirectDevice final : public FakeDevice {
  public:
    bool detect(const void* address, size_t length, ucs::MemoryInfo& info) const override {
        if (!FakeDevice::detect(address, length, info)) return false;
        info.allocation = kAllocation;
        info.held = &held;
        return true;
    }
    ucs_status_t open_copy(std::span<const ucs::MemoryPiece> pieces, const ucs::MemoryInfo* known,
                           ucs::StagedCopy** copy) override {
        ++staged;
        return FakeDevice::open_copy(pieces, known, copy);
    }
    bool export_memory(const void* address, size_t length, const ucs::MemoryInfo* known,
                       ucs::MemoryExport& description) override {
        if (!FakeDevice::export_memory(address, length, known, description)) return false;
        ++described;
        return true;
    }
    ucs_status_t fetch(const ucs::DevicePiece& piece, const ucs::MemoryInfo*,
                       ucs::AsyncCopy** copy) override {
        if (!has_way) return UCS_ERR_NO_RESOURCE;
        ++begun;
        *copy = new Copy(*this, static_cast<std::byte*>(piece.here), place_of(piece), piece.length);
        return UCS_OK;
    }

    // Stays, as that of a real device does: threads ask it of what they have found last.
    static inline ucs::HeldAllocations held;
    bool has_way = true;
    bool may_end = true;
    ucs_status_t end = UCS_OK;  // of copies whose target begins with an odd number
    size_t described = 0, begun = 0, staged = 0;

  private:
    class Copy final : public ucs::AsyncCopy {
      public:
        Copy(DirectDevice& device, std::byte* to, const std::byte* from, size_t length)
            : device_(device), to_(to), from_(from), length_(length) {}
        ucs_status_t test() override {
            if (!device_.may_end) return UCS_INPROGRESS;
            const bool fails = (to_[0] & std::byte{1}) != std::byte{0};
            const ucs_status_t status = fails ? device_.end : UCS_OK;
            if (status == UCS_OK) std::memcpy(to_, from_, length_);
            delete this;
            return status;
        }

      private:
        DirectDevice& device_;
        std::byte* const to_;
        const std::byte* const from_;
        const size_t length_;
    };
};

Settings direct_within_a_host() {
    Settings settings;
    settings.fabric.device_type = uct::DeviceType::kSharedMemory;
    settings.fabric.am.max_short = 120;
    return settings;
}

class DirectTest : public testing::Test {
  protected:
    static constexpr size_t kLength = 10000;
    static constexpr size_t kTargets = 500000;  // where they begin

    DirectTest() {
        cluster.fabric().observe([this](const uct::mock::PacketEvent& event) {
            if (event.am_id >= 0) lengths_[static_cast<AmId>(event.am_id)].push_back(event.length);
        });
    }
    ~DirectTest() override {
        cluster.settle();
        EXPECT_FALSE(device.held.is_held(DirectDevice::kAllocation));
        EXPECT_EQ(device.staged_open, 0u);
    }
    std::byte* source(size_t which) { return device.memory.data() + which * kLength; }
    std::byte* target(size_t which) { return device.memory.data() + kTargets + which * kLength; }
    ucs_status_ptr_t send(size_t which) {
        return ucp_tag_send_nbx(cluster.ep, source(which), kLength, which, &plain);
    }
    ucs_status_ptr_t receive(size_t which) {
        return ucp_tag_recv_nbx(cluster.b().handle(), target(which), kLength, which, ~0ul, &plain);
    }
    // One message. @return whether it went by the device
    bool exchange(size_t which) {
        const Bytes bytes = pattern(kLength, ++seed_);
        std::memcpy(source(which), bytes.data(), kLength);
        const size_t before = device.begun;
        const ucs_status_ptr_t received = receive(which);
        EXPECT_EQ(cluster.wait(send(which)), UCS_OK);
        EXPECT_EQ(cluster.wait(received), UCS_OK);
        EXPECT_EQ(std::memcmp(source(which), target(which), kLength), 0);
        return device.begun != before;
    }
    // Of the messages of that kind so far.
    std::vector<size_t> lengths(AmId id) { return lengths_[id]; }
    DirectPath& path_of(Node& node) { return node.worker().one_sided().direct; }
    // As a peer's that does not use this library.
    void announce(const DescribedBefore& where, uint64_t length, uint64_t tag) {
        RndvRts rts{};
        rts.envelope = tag;
        rts.sender = cluster.a.worker().uuid();
        rts.request = 99;
        rts.length = length;
        rts.export_length = sizeof(where);
        std::vector<std::byte> message(sizeof(rts) + sizeof(where));
        std::memcpy(message.data(), &rts, sizeof(rts));
        std::memcpy(message.data() + sizeof(rts), &where, sizeof(where));
        cluster.b().worker().interfaces().deliver(cluster.a.worker().uuid(),
                                                  static_cast<uint8_t>(AmId::kRndvRts),
                                                  message.data(), message.size());
    }

    InUse<DirectDevice> in_use;
    DirectDevice& device = in_use.device;
    Cluster cluster{direct_within_a_host()};
    const ucp_request_param_t plain{};

  private:
    std::map<AmId, std::vector<size_t>> lengths_;
    uint64_t seed_ = 0;
};

TEST_F(DirectTest, MemoryIsDescribedUntilThePeerHasReadIt) {
    device.has_way = false;
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(exchange(0));
    EXPECT_EQ(device.described, 3u);
    device.has_way = true;
    for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(exchange(i));
    EXPECT_EQ(device.described, 4u) << "the first that was read by the peer, and no other";
    const std::vector<size_t> announced = lengths(AmId::kRndvRts);
    ASSERT_EQ(announced.size(), 8u);
    for (size_t i = 0; i < announced.size(); ++i) {
        EXPECT_EQ(announced[i],
                  sizeof(RndvRts) + (i < 4 ? sizeof(ucs::MemoryExport) : sizeof(DescribedBefore)));
    }
    device.has_way = false;
    EXPECT_FALSE(exchange(0));
    EXPECT_FALSE(exchange(0));
    EXPECT_EQ(device.described, 5u) << "it may have lost the way";
}

TEST_F(DirectTest, AReceiverThatHasForgottenAsksForTheData) {
    EXPECT_TRUE(exchange(0));
    EXPECT_TRUE(exchange(1));
    ucs::MemoryExport other{};
    other.has_handle = 1;
    while (path_of(cluster.b()).recall(cluster.a.worker().uuid(), DirectDevice::kAllocation) !=
           nullptr) {
        ++other.buffer;
        path_of(cluster.b()).remember(1, other);
        ASSERT_LT(other.buffer, 100000u);
    }
    EXPECT_FALSE(exchange(2));
    EXPECT_TRUE(exchange(3));
    EXPECT_TRUE(exchange(4));
    EXPECT_EQ(device.described, 2u);
}

TEST_F(DirectTest, WhatWasNotDescribedOrIsNotWithinItIsNotCopied) {
    EXPECT_TRUE(exchange(0));
    const uint64_t size = device.memory.size();
    const struct {
        DescribedBefore where;
        uint64_t length;
    } wrong[] = {{{DirectDevice::kAllocation + 1, 0}, kLength},
                 {{DirectDevice::kAllocation, size + 1}, kLength},
                 {{DirectDevice::kAllocation, size - kLength + 1}, kLength},
                 {{DirectDevice::kAllocation, UINT64_MAX - 5}, kLength},
                 {{DirectDevice::kAllocation, 0}, size + 1}};
    for (const auto& [where, length] : wrong) {
        const size_t begun = device.begun;
        const ucs_status_ptr_t received = receive(1);
        ucs::LogCapture log;
        announce(where, length, 1);
        cluster.settle();
        EXPECT_EQ(device.begun, begun);
        ASSERT_EQ(log.entries().size(), 1u) << "the sender was asked for what it does not know";
        EXPECT_EQ(ucp_request_check_status(received), UCS_INPROGRESS);
        ucp_request_free(received);
    }
    ucs_status_ptr_t received = receive(1);
    announce({DirectDevice::kAllocation, size - kLength}, kLength, 1);
    EXPECT_EQ(cluster.wait(received), UCS_OK);
    cluster.settle();
    // The receives that wait for data end with their endpoint.
    ASSERT_EQ(cluster.wait(
                  ucp_ep_close_nb(std::exchange(cluster.back, nullptr), UCP_EP_CLOSE_MODE_FORCE)),
              UCS_OK);
}

TEST_F(DirectTest, WhatEndsTogetherIsAcknowledgedTogether) {
    EXPECT_TRUE(exchange(0));
    const size_t before = lengths(AmId::kRndvAts).size();
    device.may_end = false;
    constexpr size_t kMessages = 40;
    std::vector<ucs_status_ptr_t> requests;
    for (size_t i = 0; i < kMessages; ++i) {
        target(i)[0] = std::byte{0};
        requests.push_back(receive(i));
        requests.push_back(send(i));
    }
    ASSERT_TRUE(cluster.until([&] { return device.begun == kMessages + 1; }));
    device.may_end = true;
    for (const ucs_status_ptr_t request : requests) EXPECT_EQ(cluster.wait(request), UCS_OK);
    std::vector<size_t> sizes = lengths(AmId::kRndvAts);
    sizes.erase(sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(before));
    size_t requests_told = 0;
    for (const size_t size : sizes) {
        EXPECT_LE(size, sizeof(RndvDone) + (kMostDone - 1) * sizeof(uint64_t));
        requests_told += 1 + (size - sizeof(RndvDone)) / sizeof(uint64_t);
    }
    EXPECT_EQ(requests_told, kMessages);
    EXPECT_EQ(sizes.size(), 2u);
}

TEST_F(DirectTest, EachSenderHearsHowItsOwnHasEnded) {
    EXPECT_TRUE(exchange(0));
    device.may_end = false;
    device.end = UCS_ERR_IO_ERROR;
    constexpr size_t kMessages = 9;
    std::vector<ucs_status_ptr_t> sends, receives;
    for (size_t i = 0; i < kMessages; ++i) {
        target(i)[0] = std::byte(i % 3 == 1 ? 1 : 0);
        receives.push_back(receive(i));
        sends.push_back(send(i));
    }
    ASSERT_TRUE(cluster.until([&] { return device.begun == kMessages + 1; }));
    device.may_end = true;
    for (size_t i = 0; i < kMessages; ++i) {
        const ucs_status_t expected = i % 3 == 1 ? UCS_ERR_IO_ERROR : UCS_OK;
        EXPECT_EQ(cluster.wait(sends[i]), expected) << i;
        EXPECT_EQ(cluster.wait(receives[i]), expected) << i;
    }
}

// Most buffers of devices are never packed: no staged copy is opened for them.
TEST_F(DirectTest, NothingIsStagedThatDevicesCopy) {
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(exchange(i));
    EXPECT_EQ(device.staged, 0u);
    device.has_way = false;
    EXPECT_FALSE(exchange(0));
    EXPECT_EQ(device.staged, 2u) << "one at each end";
}

TEST_F(DirectTest, APostedReceiveThatIsCancelledLetsTheMemoryGo) {
    EXPECT_TRUE(exchange(0));
    const ucs_status_ptr_t first = receive(1);
    const ucs_status_ptr_t second = receive(2);
    EXPECT_TRUE(device.held.is_held(DirectDevice::kAllocation));
    for (const ucs_status_ptr_t request : {first, second}) {
        ucp_request_attr_t attr{};
        attr.field_mask = UCP_REQUEST_ATTR_FIELD_MEM_TYPE;
        EXPECT_EQ(ucp_request_query(request, &attr), UCS_OK);
        EXPECT_EQ(attr.mem_type, UCS_MEMORY_TYPE_CUDA);
        ucp_request_cancel(cluster.b().handle(), request);
        EXPECT_EQ(cluster.wait(request), UCS_ERR_CANCELED);
    }
    EXPECT_FALSE(device.held.is_held(DirectDevice::kAllocation));
}

}  // namespace
}  // namespace ucp::test

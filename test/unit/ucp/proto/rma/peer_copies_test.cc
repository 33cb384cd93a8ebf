// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rma/peer_copies.h"

#include <algorithm>
#include <deque>
#include <vector>

#include "ucp/mem/memory.h"
#include "ucp/mem/packed_key.h"
#include "ucp/proto/rma/rma.h"
#include "unit/ucp/proto/cluster.h"
#include "unit/ucp/proto/fake_device.h"
#include "unit/ucp/remote_key.h"
#include "unit/ucs/log/log_capture.h"

// Puts and gets between memory of a device of the initiator's and memory of the target, which the
// target's device copies if it can.
namespace ucp::test {
namespace {

// Each copy ends when it was asked for some times, and not before.
class CopyingDevice final : public FakeDevice {
  public:
    uint64_t readable_types() const override {
        return is_readable ? UCS_BIT(UCS_MEMORY_TYPE_CUDA) : 0;
    }
    ucs_status_t copy(void* to, const void* from, size_t length) override {
        std::memcpy(to, from, length);
        return UCS_OK;
    }
    ucs_status_t fetch(const ucs::DevicePiece& piece, const ucs::MemoryInfo*,
                       ucs::AsyncCopy** copy) override {
        return begin(static_cast<std::byte*>(piece.here), place_of(piece), piece.length, copy);
    }
    ucs_status_t store(const ucs::DevicePiece& piece, const ucs::MemoryInfo*,
                       ucs::AsyncCopy** copy) override {
        return begin(place_of(piece), static_cast<std::byte*>(piece.here), piece.length, copy);
    }

    bool is_readable = true;
    std::deque<ucs_status_t> answers;  // to requests, in turn; then `answer`
    ucs_status_t answer = UCS_OK;
    ucs_status_t end = UCS_OK;  // of copies
    size_t most = SIZE_MAX;     // copies at a time; further ones: UCS_ERR_BUSY
    unsigned looks = 5;         // until a copy ends
    size_t requests = 0, begun = 0, under_way = 0;

  private:
    class Copy final : public ucs::AsyncCopy {
      public:
        Copy(CopyingDevice& device, std::byte* to, const std::byte* from, size_t length)
            : device_(device), to_(to), from_(from), length_(length) {}
        ucs_status_t test() override {
            if (looks_++ < device_.looks) return UCS_INPROGRESS;
            const ucs_status_t status = device_.end;
            if (status == UCS_OK) std::memcpy(to_, from_, length_);
            --device_.under_way;
            delete this;
            return status;
        }

      private:
        CopyingDevice& device_;
        std::byte* const to_;
        const std::byte* const from_;
        const size_t length_;
        unsigned looks_ = 0;
    };

    ucs_status_t begin(std::byte* to, const std::byte* from, size_t length, ucs::AsyncCopy** copy) {
        ++requests;
        if (under_way == most) return UCS_ERR_BUSY;
        ucs_status_t status = answer;
        if (!answers.empty()) {
            status = answers.front();
            answers.pop_front();
        }
        if (status != UCS_OK) return status;
        ++begun;
        ++under_way;
        *copy = new Copy(*this, to, from, length);
        return UCS_OK;
    }
};

Settings within_a_host(unsigned seed = 1) {
    Settings settings;
    settings.fabric.seed = seed;
    settings.fabric.device_type = uct::DeviceType::kSharedMemory;
    return settings;
}

class PeerCopiesTest : public testing::TestWithParam<bool> {
  protected:
    static constexpr size_t kLength = 100000;
    static constexpr unsigned kAll = UCP_MEM_MAP_PROT_LOCAL_READ | UCP_MEM_MAP_PROT_LOCAL_WRITE |
                                     UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE;

    explicit PeerCopiesTest(const Settings& settings = within_a_host()) : cluster(settings) {
        const Bytes bytes = pattern(device.memory.size(), 3);
        std::memcpy(device.memory.data(), bytes.data(), bytes.size());
    }
    ~PeerCopiesTest() override {
        if (key != nullptr) ucp_rkey_destroy(key);
        unmap();
        EXPECT_EQ(device.under_way, 0u);
        EXPECT_EQ(device.staged_open, 0u);
    }
    void expose(unsigned prot = kAll) {
        const ucp_context_h context = wrap(&cluster.b().context());
        mapped = map_memory(context, host.data(), kLength, prot);
        key = key_for(cluster.ep, context, mapped);
    }
    void unmap() {
        if (mapped == nullptr) return;
        EXPECT_EQ(ucp_mem_unmap(wrap(&cluster.b().context()), mapped), UCS_OK);
        mapped = nullptr;
    }
    ucs_status_ptr_t put(size_t offset, size_t length, size_t at = 0) {
        return ucp_put_nbx(cluster.ep, device.memory.data() + offset, length,
                           reinterpret_cast<uintptr_t>(host.data()) + at, key, &plain);
    }
    ucs_status_ptr_t get(size_t offset, size_t length, size_t at = 0) {
        return ucp_get_nbx(cluster.ep, device.memory.data() + offset, length,
                           reinterpret_cast<uintptr_t>(host.data()) + at, key, &plain);
    }
    ucs_status_ptr_t transfer(bool is_put, size_t offset, size_t length) {
        return is_put ? put(offset, length) : get(offset, length);
    }
    bool is_same(size_t offset, size_t length, size_t at = 0) const {
        return std::memcmp(device.memory.data() + offset, host.data() + at, length) == 0;
    }
    // As a peer's that does not use this library.
    void deliver(uint64_t address, uint64_t length, CopyRequest request) {
        const RemoteMemory& remote = unwrap(key);
        const EmulatedGet get{cluster.a.worker().uuid(),
                              77,
                              {remote.header().identity, remote.header().region, address},
                              length};
        std::vector<std::byte> message(sizeof(get) + sizeof(request));
        std::memcpy(message.data(), &get, sizeof(get));
        std::memcpy(message.data() + sizeof(get), &request, sizeof(request));
        cluster.b().worker().interfaces().deliver(cluster.a.worker().uuid(),
                                                  static_cast<uint8_t>(AmId::kGetRequest),
                                                  message.data(), message.size());
    }

    InUse<CopyingDevice> in_use;
    CopyingDevice& device = in_use.device;
    Cluster cluster;
    Bytes host = pattern(kLength, 5);
    ucp_mem_h mapped = nullptr;
    ucp_rkey_h key = nullptr;
    const ucp_request_param_t plain{};
};

INSTANTIATE_TEST_SUITE_P(Both, PeerCopiesTest, testing::Bool(), [](const auto& info) {
    return std::string(info.param ? "Puts" : "Gets");
});

TEST_P(PeerCopiesTest, LongOnesAreCopiesOfTheTargetsDevice) {
    expose();
    size_t copies = 0;
    for (const size_t length : {size_t{4000}, size_t{50001}, kLength}) {
        EXPECT_EQ(cluster.wait(transfer(GetParam(), 11, length)), UCS_OK);
        EXPECT_TRUE(is_same(11, length));
        EXPECT_EQ(device.begun, ++copies);
    }
    EXPECT_EQ(device.read, 0u);
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, 8)), UCS_OK);
    EXPECT_TRUE(is_same(0, 8));
    EXPECT_EQ(device.begun, copies) << "a short one takes less by messages";
}

TEST_P(PeerCopiesTest, UntilThereIsAWayTheyAreStaged) {
    expose();
    device.answers = {UCS_ERR_NO_RESOURCE, UCS_ERR_NO_RESOURCE};
    for (size_t round = 0; round < 4; ++round) {
        EXPECT_EQ(cluster.wait(transfer(GetParam(), round * kLength, kLength)), UCS_OK);
        EXPECT_TRUE(is_same(round * kLength, kLength));
        EXPECT_EQ(device.requests, round + 1);
    }
    EXPECT_EQ(device.begun, 2u);
}

// With 16 operations at the first, second, third, fifth and ninth.
TEST_P(PeerCopiesTest, APeerThatCannotIsAskedEverMoreSeldom) {
    expose();
    device.answer = UCS_ERR_UNSUPPORTED;
    for (size_t round = 0; round < 16; ++round) {
        EXPECT_EQ(cluster.wait(transfer(GetParam(), round * 1000, kLength)), UCS_OK);
        EXPECT_TRUE(is_same(round * 1000, kLength));
    }
    EXPECT_EQ(device.requests, 5u);
    device.answer = UCS_OK;
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, kLength)), UCS_OK);
    EXPECT_EQ(device.begun, 1u) << "at the 17th";
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, kLength)), UCS_OK);
    EXPECT_EQ(device.begun, 2u) << "and from then on";
}

// An older version's, or one without devices.
TEST_P(PeerCopiesTest, AKeyThatSaysNothingOfItIsAskedForNothing) {
    device.is_readable = false;
    expose();
    device.is_readable = true;
    EXPECT_FALSE(unwrap(key).is_copied_on_request());
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, kLength)), UCS_OK);
    EXPECT_TRUE(is_same(0, kLength));
    EXPECT_EQ(device.requests, 0u);
}

TEST_P(PeerCopiesTest, AKeyOfALaterVersionIsAskedForNothing) {
    expose();
    const Memory& memory = unwrap(mapped);
    std::vector<std::byte> packed(packed_key_size(memory));
    pack_key(memory, packed);
    packed.back() = static_cast<std::byte>(kCopyVersion + 1);
    const uint32_t checksum =
        key_checksum(std::span(packed).subspan(offsetof(PackedKeyHeader, version)));
    std::memcpy(packed.data() + offsetof(PackedKeyHeader, checksum), &checksum, sizeof(checksum));
    ucp_rkey_destroy(key);
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster.ep, packed.data(), &key), UCS_OK);
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, kLength)), UCS_OK);
    EXPECT_TRUE(is_same(0, kLength));
    EXPECT_EQ(device.requests, 0u);
}

TEST_P(PeerCopiesTest, MemoryThatOthersCannotOpenIsStaged) {
    expose();
    device.has_handle = false;
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, kLength)), UCS_OK);
    EXPECT_TRUE(is_same(0, kLength));
    EXPECT_EQ(device.requests, 0u);
}

TEST_P(PeerCopiesTest, FlushesWaitForThem) {
    expose();
    device.looks = 300;
    std::vector<ucs_status_ptr_t> operations;
    for (size_t i = 0; i < 8; ++i) operations.push_back(transfer(GetParam(), 0, kLength));
    EXPECT_EQ(cluster.flush(), UCS_OK);
    EXPECT_EQ(device.under_way, 0u);
    EXPECT_TRUE(is_same(0, kLength));
    for (ucs_status_ptr_t operation : operations) EXPECT_EQ(cluster.wait(operation), UCS_OK);
}

TEST_P(PeerCopiesTest, WhatFindsNoRoomWaits) {
    expose();
    device.most = 2;
    std::vector<ucs_status_ptr_t> operations;
    for (size_t i = 0; i < 20; ++i) {
        operations.push_back(GetParam() ? put(i * 5000, 5000, i * 5000)
                                        : get(i * 5000, 5000, i * 5000));
    }
    for (ucs_status_ptr_t operation : operations) EXPECT_EQ(cluster.wait(operation), UCS_OK);
    EXPECT_TRUE(is_same(0, kLength));
    EXPECT_EQ(device.begun, 20u);
    EXPECT_EQ(device.read, 0u);
    // Where nothing would come back there is nothing to wait for.
    device.most = 0;
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 1, kLength)), UCS_OK);
    EXPECT_TRUE(is_same(1, kLength));
    EXPECT_EQ(device.begun, 20u);
}

// A device's copy would write there, or send what lies there then.
TEST_P(PeerCopiesTest, MemoryThatIsUnmappedIsLetGo) {
    expose();
    device.looks = 1000000;
    device.most = 1;
    const ucs_status_ptr_t first = transfer(GetParam(), 0, kLength);
    const ucs_status_ptr_t second = transfer(GetParam(), kLength, kLength);
    ASSERT_TRUE(cluster.until([&] { return device.requests >= 2; }));
    EXPECT_EQ(device.under_way, 1u);
    unmap();
    EXPECT_EQ(device.under_way, 0u);
    EXPECT_TRUE(is_same(0, kLength));
    EXPECT_EQ(cluster.wait(first), UCS_OK);
    ucs::LogCapture log;
    EXPECT_EQ(cluster.wait(second), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(device.begun, 1u);
    EXPECT_TRUE(is_same(0, kLength));
}

TEST_P(PeerCopiesTest, AnErrorOfTheDeviceIsTheirs) {
    expose();
    device.end = UCS_ERR_IO_ERROR;
    ucs::LogCapture log;
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, kLength)), UCS_ERR_IO_ERROR);
    EXPECT_TRUE(cluster.endpoint().is_failed());
}

TEST_P(PeerCopiesTest, ADescriptionThatIsNotSoundIsAnError) {
    expose();
    device.answer = UCS_ERR_INVALID_PARAM;
    ucs::LogCapture log;
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, kLength)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(device.begun, 0u);
}

TEST_P(PeerCopiesTest, BeyondTheKeyNothingIsTouched) {
    expose();
    const Bytes before = host;
    const std::vector<std::byte> there = device.memory;
    ucs::LogCapture log;
    EXPECT_EQ(cluster.wait(GetParam() ? put(0, kLength, 1) : get(0, kLength, 1)),
              UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(device.requests, 0u);
    EXPECT_TRUE(host == before);
    EXPECT_TRUE(device.memory == there);
}

TEST_P(PeerCopiesTest, RightsAreChecked) {
    expose(kAll &
           ~unsigned{GetParam() ? UCP_MEM_MAP_PROT_REMOTE_WRITE : UCP_MEM_MAP_PROT_REMOTE_READ});
    const Bytes before = host;
    const std::vector<std::byte> there = device.memory;
    ucs::LogCapture log;
    EXPECT_EQ(cluster.wait(transfer(GetParam(), 0, kLength)), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(device.requests, 0u);
    EXPECT_TRUE(host == before);
    EXPECT_TRUE(device.memory == there);
}

TEST_P(PeerCopiesTest, AnEndpointThatFailsEndsThem) {
    expose();
    device.looks = 500;
    const ucs_status_ptr_t operation = transfer(GetParam(), 0, kLength);
    ASSERT_TRUE(cluster.until([&] { return device.under_way == 1; }));
    ucs::LogCapture log;
    cluster.endpoint().fail(UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(cluster.wait(operation), UCS_ERR_CONNECTION_RESET);
    EXPECT_TRUE(cluster.until([&] { return device.under_way == 0; }));
    cluster.settle();
}

TEST_P(PeerCopiesTest, ATargetThatGoesWaitsForItsDevice) {
    expose();
    device.looks = 1000;
    const ucs_status_ptr_t operation = transfer(GetParam(), 0, kLength);
    ASSERT_TRUE(cluster.until([&] { return device.under_way == 1; }));
    const uint64_t uuid = cluster.b().worker().uuid();
    cluster.b().destroy_worker();
    EXPECT_EQ(device.under_way, 0u);
    cluster.fabric().kill(uuid);
    cluster.endpoint().fail(UCS_ERR_CONNECTION_RESET);
    for (int i = 0; i < 100; ++i) cluster.a.worker().progress();
    EXPECT_EQ(ucp_request_check_status(operation), UCS_ERR_CONNECTION_RESET);
    ucp_request_free(operation);
}

// What comes behind a fence must not be there first, whichever way either goes.
TEST_P(PeerCopiesTest, FencesHold) {
    expose();
    device.looks = 200;
    const size_t last = 2 * kLength;
    for (const ucs_status_t answer : {UCS_OK, UCS_ERR_NO_RESOURCE, UCS_ERR_UNSUPPORTED}) {
        for (const size_t later : {size_t{8}, kLength}) {
            const Bytes before = host;
            device.answers = {answer};
            std::vector<ucs_status_ptr_t> operations{transfer(GetParam(), 0, kLength)};
            cluster.a.worker().fence();
            operations.push_back(put(kLength, later));
            cluster.a.worker().fence();
            operations.push_back(put(last, 8, 8));
            EXPECT_EQ(cluster.flush(), UCS_OK);
            EXPECT_TRUE(is_same(kLength, 8));
            EXPECT_TRUE(is_same(last, 8, 8));
            if (later == kLength) {
                EXPECT_TRUE(is_same(kLength + 16, kLength - 16, 16));
            } else if (GetParam()) {
                EXPECT_TRUE(is_same(16, kLength - 16, 16));
            }
            if (!GetParam()) {
                EXPECT_EQ(std::memcmp(device.memory.data(), before.data(), kLength), 0);
            }
            for (ucs_status_ptr_t each : operations) EXPECT_EQ(cluster.wait(each), UCS_OK);
        }
    }
}

TEST_P(PeerCopiesTest, BadRequestsAreDroppedOrRefused) {
    expose();
    const uint64_t address = unwrap(key).header().address;
    const Bytes before = host;
    ucs::MemoryExport there;
    ASSERT_TRUE(device.export_memory(device.memory.data(), kLength, nullptr, there));
    const auto is_noticed = [&](uint64_t at, uint64_t length, uint8_t direction, uint32_t type) {
        ucs::LogCapture log;
        there.type = type;
        deliver(at, length, {direction, there});
        return !log.entries().empty();
    };
    EXPECT_TRUE(is_noticed(address, 0, CopyRequest::kPut, UCS_MEMORY_TYPE_CUDA));
    EXPECT_TRUE(is_noticed(address, 8, CopyRequest::kGet + 1, UCS_MEMORY_TYPE_CUDA));
    EXPECT_TRUE(is_noticed(address + 1, kLength, CopyRequest::kPut, UCS_MEMORY_TYPE_CUDA));
    EXPECT_TRUE(is_noticed(address, UINT64_MAX, CopyRequest::kGet, UCS_MEMORY_TYPE_CUDA));
    EXPECT_TRUE(is_noticed(address - 1, 8, CopyRequest::kPut, UCS_MEMORY_TYPE_CUDA));
    // A type that nobody here knows: the initiator is told that there is no way.
    EXPECT_FALSE(is_noticed(address, 8, CopyRequest::kPut, UCS_MEMORY_TYPE_ROCM));
    EXPECT_FALSE(is_noticed(address, 8, CopyRequest::kPut, ~0u));
    EXPECT_EQ(device.requests, 0u);
    EXPECT_TRUE(host == before);
    ucs::LogCapture log;  // the initiator gets answers that it never asked for
    cluster.settle();
}

// While the endpoint moves to a dedicated lane and lanes have no room.
class MovingPeerCopies : public PeerCopiesTest {
  protected:
    MovingPeerCopies() : PeerCopiesTest(settings(++seed_)) {}
    static Settings settings(unsigned seed) {
        Settings settings = within_a_host(seed);
        settings.lanes = LaneMode::kDedicated;
        settings.fabric.no_resource_probability = 0.3;
        settings.fabric.max_delay = 60;
        settings.fabric.transmit_depth = 4;
        return settings;
    }

  private:
    static inline unsigned seed_ = 0;
};

TEST_P(MovingPeerCopies, NothingIsLost) {
    expose();
    const auto& dedicated = cluster.fabric().counters(uct::mock::Kind::kDedicated);
    std::mt19937 random(9);
    for (int round = 0; round < 60; ++round) {
        constexpr size_t kPart = kLength / 10;
        device.answer = round % 7 == 0 ? UCS_ERR_NO_RESOURCE : UCS_OK;
        std::vector<ucs_status_ptr_t> operations;
        std::vector<size_t> lengths, places;
        for (size_t i = 0; i < 10; ++i) {
            lengths.push_back(1 + random() % kPart);
            places.push_back(random() % (device.memory.size() / 10 - kPart) +
                             i * (device.memory.size() / 10));
            operations.push_back(GetParam() ? put(places[i], lengths[i], i * kPart)
                                            : get(places[i], lengths[i], i * kPart));
        }
        for (ucs_status_ptr_t operation : operations) ASSERT_EQ(cluster.wait(operation), UCS_OK);
        for (size_t i = 0; i < 10; ++i) ASSERT_TRUE(is_same(places[i], lengths[i], i * kPart));
    }
    EXPECT_GT(dedicated.am, 0u);
    EXPECT_GT(device.begun, 0u);
    EXPECT_GT(device.requests, device.begun);
}

INSTANTIATE_TEST_SUITE_P(Both, MovingPeerCopies, testing::Bool(), [](const auto& info) {
    return std::string(info.param ? "Puts" : "Gets");
});

}  // namespace
}  // namespace ucp::test

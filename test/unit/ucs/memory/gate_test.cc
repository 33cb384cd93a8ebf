// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/gate.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <thread>
#include <vector>

namespace ucs {
namespace {

constexpr size_t kPage = 4096;

// A device whose memory is where the test says, and which counts how often it is asked.
class FakeDetector final : public MemoryDetector {
  public:
    bool detect(const void* address, size_t, MemoryInfo& info) const override {
        ++asked;
        const auto* at = static_cast<const char*>(address);
        if (at < base || at >= base + length) return false;
        info.type = UCS_MEMORY_TYPE_CUDA;
        info.base = base;
        info.length = length;
        info.allocation = allocation;
        info.held = held;
        return true;
    }
    bool is_in_use() const override { return in_use; }

    const char* base = nullptr;
    size_t length = 0;
    uint64_t allocation = 0;
    HeldAllocations* held = nullptr;
    bool in_use = false;
    mutable int asked = 0;
};

class MemoryGateTest : public ::testing::Test {
  protected:
    MemoryGateTest() { register_memory_detector(detector); }
    ~MemoryGateTest() override {
        detector.in_use = false;
        (void)gate.classify(&detector, 1);  // closes it
        runtime().memory_detectors.reset();
    }
    ucs_memory_type_t type_of(const void* address) {
        return gate.is_plain(address) ? UCS_MEMORY_TYPE_HOST : gate.classify(address, 1).type;
    }
    void use(const void* memory, size_t length) {
        detector.base = static_cast<const char*>(memory);
        detector.length = length;
        detector.in_use = true;
    }

    FakeDetector detector;
    MemoryGate& gate = MemoryGate::instance();
    std::vector<char> host = std::vector<char>(64 * kPage);
};

TEST_F(MemoryGateTest, ClosedItLetsAllPassButNull) {
    EXPECT_TRUE(gate.is_plain(host.data()));
    EXPECT_TRUE(gate.is_plain(reinterpret_cast<void*>(uintptr_t{1} << 47)));
    EXPECT_FALSE(gate.is_plain(nullptr));
    EXPECT_EQ(gate.classify(nullptr, 0).type, UCS_MEMORY_TYPE_HOST);
    EXPECT_EQ(detector.asked, 0);
}

TEST_F(MemoryGateTest, AMappingOpensItAndItClosesWhereNoDeviceIsInUse) {
    gate.mapped();
    EXPECT_FALSE(gate.is_plain(host.data()));
    EXPECT_EQ(type_of(host.data()), UCS_MEMORY_TYPE_HOST);
    EXPECT_TRUE(gate.is_plain(host.data())) << "it was closed";
    EXPECT_EQ(detector.asked, 0);
}

TEST_F(MemoryGateTest, DeviceMemoryIsAskedForEachTimeAndHostMemoryIsNot) {
    auto* const device = static_cast<char*>(
        mmap(nullptr, 16 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    gate.mapped();
    use(device, 16 * kPage);
    for (int i = 0; i < 1000; ++i) {
        EXPECT_EQ(type_of(device + i), UCS_MEMORY_TYPE_CUDA);
        EXPECT_EQ(type_of(host.data()), UCS_MEMORY_TYPE_HOST);
    }
    EXPECT_LT(detector.asked, 1010);
    EXPECT_GE(detector.asked, 1000);
    munmap(device, 16 * kPage);
}

// The next allocation at the address has another number: what was said of the first is not said of
// it.
TEST_F(MemoryGateTest, DeviceMemoryIsNotAskedForWhileAnOperationWorksOnIt) {
    static HeldAllocations held;  // the thread may remember it
    auto* const device = static_cast<char*>(
        mmap(nullptr, 16 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    gate.mapped();
    use(device, 16 * kPage);
    detector.held = &held;
    for (detector.allocation = 1; detector.allocation < 4; ++detector.allocation) {
        detector.asked = 0;
        EXPECT_EQ(MemoryGate::find_held(device), nullptr);
        EXPECT_EQ(MemoryGate::hold(device), nullptr);
        const MemoryInfo found = gate.classify(device, 1);
        EXPECT_EQ(found.allocation, detector.allocation);
        ASSERT_EQ(detector.asked, 1);
        ASSERT_NE(held.hold(found), nullptr);
        EXPECT_EQ(gate.classify(device + 5, 1).allocation, detector.allocation);
        ASSERT_NE(gate.find_counted(device + 16 * kPage - 1, 1), nullptr);
        EXPECT_EQ(detector.asked, 1);
        EXPECT_EQ(MemoryGate::find_held(device + 16 * kPage), nullptr);
        EXPECT_EQ(MemoryGate::find_held(host.data()), nullptr);
        const MemoryInfo* const again = MemoryGate::hold(device + 7);
        ASSERT_NE(again, nullptr);
        EXPECT_EQ(again->owner, found.owner);
        held.release(detector.allocation);
        EXPECT_TRUE(held.is_held(detector.allocation));
        std::thread([&] { EXPECT_EQ(MemoryGate::find_held(device), nullptr); }).join();
        held.release(detector.allocation);
        EXPECT_EQ(MemoryGate::find_held(device), nullptr);
    }
    EXPECT_EQ(gate.find_counted(host.data(), 1), nullptr);
    munmap(device, 16 * kPage);
}

TEST_F(MemoryGateTest, ARangeOfHostMemoryIsLearnt) {
    gate.mapped();
    use(nullptr, 0);
    auto* const mapping = static_cast<char*>(
        mmap(nullptr, 64 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    gate.mapped();
    for (int i = 0; i < 4096 && !gate.is_plain(mapping); ++i)
        (void)gate.classify(mapping + (i % 64) * kPage, 1);
    EXPECT_TRUE(gate.is_plain(mapping));
    EXPECT_TRUE(gate.is_plain(mapping + 64 * kPage - 1));
    // Unmapped, and given to the device.
    gate.unmapped(reinterpret_cast<uintptr_t>(mapping) + 8 * kPage, kPage);
    use(mapping + 8 * kPage, kPage);
    gate.mapped();
    EXPECT_EQ(type_of(mapping + 8 * kPage), UCS_MEMORY_TYPE_CUDA);
    EXPECT_EQ(type_of(mapping), UCS_MEMORY_TYPE_HOST);
    munmap(mapping, 64 * kPage);
}

TEST_F(MemoryGateTest, WhatIsUnmappedElsewhereLeavesTheRangeKnown) {
    gate.mapped();
    use(nullptr, 0);
    for (int i = 0; i < 100000 && !gate.is_plain(host.data()); ++i)
        (void)gate.classify(host.data() + (i % 64) * kPage, 1);
    ASSERT_TRUE(gate.is_plain(host.data()));
    for (int i = 0; i < 10000; ++i) gate.unmapped(kPage, kPage);
    EXPECT_TRUE(gate.is_plain(host.data()));
}

TEST_F(MemoryGateTest, AWatchHasItsBitWhileTheGateMayBeOpen) {
    MemoryGate::Watch word{7};
    gate.watch(word);
    EXPECT_NE(word.load() & MemoryGate::kWatchBit, 0u) << "nothing is known of what was before";
    gate.settle(word);
    EXPECT_EQ(word.load(), 7u);
    gate.mapped();
    EXPECT_NE(word.load() & MemoryGate::kWatchBit, 0u);
    detector.in_use = true;
    gate.settle(word);
    EXPECT_NE(word.load() & MemoryGate::kWatchBit, 0u);
    detector.in_use = false;
    gate.settle(word);
    EXPECT_EQ(word.load() & 0xffffu, 7u);
    gate.unwatch(word);
    gate.mapped();
    EXPECT_EQ(word.load() & 0xffffu, 7u);
}

}  // namespace
}  // namespace ucs

// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/memory/detector.h"

#include <gtest/gtest.h>

#include <array>

#include "ucs/memory/pages.h"

namespace ucs {
namespace {

// Claims one array as the memory of a device.
class ArrayDetector final : public MemoryDetector {
  public:
    bool detect(const void* address, size_t length, MemoryInfo& info) const override {
        const auto* start = static_cast<const char*>(address);
        if (start < array.data() || start + length > array.data() + array.size()) return false;
        info = {UCS_MEMORY_TYPE_CUDA, array.data(), array.size(), 3};
        return true;
    }

    std::array<char, 64> array;
};

class MemoryDetectorTest : public ::testing::Test {
  protected:
    ~MemoryDetectorTest() override { runtime().memory_detectors.reset(); }
};

TEST_F(MemoryDetectorTest, MemoryIsTheHostsWhereNoDetectorKnowsIt) {
    int local = 0;
    EXPECT_EQ(detect_memory(&local, sizeof(local)).type, UCS_MEMORY_TYPE_HOST);
    EXPECT_EQ(detect_memory(nullptr, 0).type, UCS_MEMORY_TYPE_HOST);
    EXPECT_EQ(detect_memory(&local, sizeof(local)).device, -1);
}

TEST_F(MemoryDetectorTest, EachBufferIsAskedFor) {
    ArrayDetector first, second;
    register_memory_detector(first);
    register_memory_detector(second);
    int local = 0;
    EXPECT_EQ(detect_memory(&local, sizeof(local)).type, UCS_MEMORY_TYPE_HOST);
    for (const ArrayDetector* detector : {&first, &second}) {
        const MemoryInfo info = detect_memory(detector->array.data() + 8, 8);
        EXPECT_EQ(info.type, UCS_MEMORY_TYPE_CUDA);
        EXPECT_EQ(info.base, detector->array.data());
        EXPECT_EQ(info.length, 64u);
        EXPECT_EQ(info.device, 3);
    }
}

// A copy whose device has a word.
class WordCopy final : public AsyncCopy {
  public:
    ucs_status_t test() override {
        ++tests;
        return UCS_INPROGRESS;
    }
    ucs_status_t end() override { return UCS_OK; }
    using AsyncCopy::await;
    using AsyncCopy::kPollsPerTest;
    using AsyncCopy::wait_with;

    uint32_t tests = 0;
};

TEST(AsyncCopy, APollReadsTheWordAndSeldomTests) {
    WordCopy copy;
    EXPECT_EQ(copy.poll(), UCS_INPROGRESS);
    EXPECT_EQ(copy.tests, 1u) << "without a word only test() knows";
    uint32_t word = UINT32_MAX;
    copy.await(&word, 1);  // numbers go round
    for (uint32_t i = 0; i < 3 * WordCopy::kPollsPerTest; ++i)
        EXPECT_EQ(copy.poll(), UCS_INPROGRESS);
    EXPECT_EQ(copy.tests, 4u);
    word = 2;  // a later copy has ended as well
    EXPECT_EQ(copy.poll(), UCS_OK);
    EXPECT_EQ(copy.tests, 4u);
}

TEST(AsyncCopy, ThoseWithOneWordAndNumberEndTogether) {
    WordCopy copy, same, later, elsewhere, unknown;
    uint32_t word = 0, other = 0;
    copy.await(&word, 1);
    same.await(&word, 1);
    later.await(&word, 2);
    elsewhere.await(&other, 1);
    EXPECT_EQ(same.awaited(), copy.awaited());
    EXPECT_NE(later.awaited(), copy.awaited());
    EXPECT_NE(elsewhere.awaited(), copy.awaited());
    EXPECT_EQ(unknown.awaited().what, nullptr);
}

TEST(AsyncCopy, ThoseThatWaitToBeBegunTogetherAreKnown) {
    WordCopy copy, same, other;
    const int queue = 0, another = 0;
    copy.wait_with(&queue);
    same.wait_with(&queue);
    other.wait_with(&another);
    EXPECT_EQ(same.awaited(), copy.awaited());
    EXPECT_NE(other.awaited(), copy.awaited());
    uint32_t word = 0;
    copy.await(&word, 1);
    EXPECT_NE(same.awaited(), copy.awaited()) << "it has been begun";
    same.wait_with(nullptr);
    EXPECT_EQ(same.awaited().what, nullptr);
}

TEST(Pages, AlignedMemory) {
    for (const size_t alignment : {size_t{16}, size_t{64}, page_size()}) {
        const HeapMemory memory = allocate_aligned(100, alignment);
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % alignment, 0u);
    }
    EXPECT_EQ(allocate_aligned(SIZE_MAX - 3, 64), nullptr);
}

}  // namespace
}  // namespace ucs

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rma/staged_puts.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

namespace ucp::test {
namespace {

// A device whose copies only count.
class StagedDevice final : public ucs::MemoryDetector {
  public:
    struct Copy final : ucs::StagedCopy {
        ucs_status_t read(size_t, void*, size_t) override { return UCS_ERR_UNSUPPORTED; }
        ucs_status_t write(size_t offset, const void*, size_t length) override {
            end = offset + length;
            return status;
        }
        ucs_status_t finish() override {
            ++finished;
            return UCS_OK;
        }
        void abandon() override { ++abandoned; }

        size_t end = 0;
        ucs_status_t status = UCS_OK;
        int finished = 0, abandoned = 0;
    };

    bool detect(const void*, size_t, ucs::MemoryInfo&) const override { return false; }
    ucs_status_t copy(void*, const void*, size_t) override {
        ++alone;
        return UCS_OK;
    }
    ucs_status_t open_copy(std::span<const ucs::MemoryPiece>, const ucs::MemoryInfo*,
                           ucs::StagedCopy** copy) override {
        *copy = copies.emplace_back(std::make_unique<Copy>()).get();
        return UCS_OK;
    }

    std::vector<std::unique_ptr<Copy>> copies;
    int alone = 0;  // messages that were copied by themselves
};

constexpr uint64_t kBase = 0x100000;
constexpr std::array<std::byte, 64> kBytes{};

EmulatedPut message(uint64_t request, size_t offset, bool is_last = false) {
    return {7, request, {1, 2, kBase + offset}, is_last};
}

TEST(StagedPuts, OneMessageIsCopiedByItself) {
    StagedDevice device;
    StagedPuts puts;
    EXPECT_EQ(puts.write(device, message(1, 0, true), kBytes), UCS_OK);
    EXPECT_EQ(device.alone, 1);
    EXPECT_TRUE(device.copies.empty());
}

TEST(StagedPuts, AsManyAsThereIsRoomForGoOnTogether) {
    StagedDevice device;
    StagedPuts puts;
    for (size_t part = 0; part < 3; ++part) {
        for (uint64_t put = 0; put < StagedPuts::kMost; ++put) {
            ASSERT_FALSE(puts.lacks_room(message(put, part * kBytes.size())));
            ASSERT_EQ(puts.write(device, message(put, part * kBytes.size()), kBytes), UCS_OK);
        }
    }
    EXPECT_EQ(device.copies.size(), StagedPuts::kMost);
    EXPECT_TRUE(puts.lacks_room(message(100, 0)));
    EXPECT_FALSE(puts.lacks_room(message(100, 0, true)));
    // The first has been heard of least recently, until it is heard of again.
    EXPECT_EQ(puts.oldest().name.request, 0u);
    EXPECT_EQ(puts.oldest().length, 3 * kBytes.size());
    EXPECT_EQ(puts.write(device, message(0, 3 * kBytes.size()), kBytes), UCS_OK);
    EXPECT_EQ(puts.oldest().name.request, 1u);
    for (uint64_t put = 0; put < StagedPuts::kMost; ++put) {
        EXPECT_EQ(puts.write(device, message(put, 4 * kBytes.size(), true), kBytes), UCS_OK);
        EXPECT_EQ(device.copies[put]->finished, 1);
        EXPECT_EQ(device.copies[put]->end, 5 * kBytes.size());
    }
    EXPECT_EQ(device.alone, 0);
}

TEST(StagedPuts, WhatFailsOrLosesItsMemoryIsAbandoned) {
    StagedDevice device;
    {
        StagedPuts puts;
        for (uint64_t put = 0; put < 4; ++put)
            EXPECT_EQ(puts.write(device, message(put, 64), kBytes), UCS_OK);
        device.copies[0]->status = UCS_ERR_IO_ERROR;
        EXPECT_EQ(puts.write(device, message(0, 128), kBytes), UCS_ERR_IO_ERROR);
        // Before where it began.
        EXPECT_EQ(puts.write(device, message(1, 0), kBytes), UCS_ERR_INVALID_ADDR);
        EXPECT_EQ(puts.end({7, 2}, false), UCS_OK);
        EXPECT_EQ(puts.end({7, 2}, false), UCS_OK);
    }
    for (const auto& copy : device.copies) {
        EXPECT_EQ(copy->abandoned, 1);
        EXPECT_EQ(copy->finished, 0);
    }
}

}  // namespace
}  // namespace ucp::test

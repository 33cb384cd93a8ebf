// SPDX-License-Identifier: BSD-3-Clause

// What kernels call, compiled for the host: lists lie in its memory, and one thread is each level.

#define UCP_DEVICE_ENABLE_PARAMS_CHECK 1
#include "ucp/api/device/ucp_device_impl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace {

template <typename Head, typename Element, size_t kCount>
struct List {
    Head head;
    Element elements[kCount];
};
using Remotes = List<ucp_device_remote_mem_list_t, ucp_device_remote_mem_elem_t, 3>;
using Locals = List<ucp_device_local_mem_list_t, ucp_device_local_mem_elem_t, 1>;

// Memory of "the peer", whose addresses are others there.
class DeviceCodeTest : public ::testing::Test {
  protected:
    static constexpr uint64_t kThere = 0x700000000000;
    static constexpr size_t kLength = 1000;

    DeviceCodeTest() {
        for (size_t i = 0; i < kLength; ++i) source_[i] = static_cast<char>(i * 7 + 1);
        remotes_.elements[0] = element(kThere, target_);
        remotes_.elements[1] = element(kThere + 5000, &counter_);
    }
    ucp_device_remote_mem_elem_t element(uint64_t there, const void* here) const {
        return {there, &way_, static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(here) - there)};
    }
    ucp_device_local_mem_list_h local() { return &locals_.head; }
    ucp_device_remote_mem_list_h remote() { return &remotes_.head; }

    const ucp_device_way_t way_{UCP_DEVICE_WAY_MAPPED};
    alignas(16) char source_[kLength];
    alignas(16) char target_[kLength] = {};
    uint64_t counter_ = 0;
    Locals locals_{{UCP_DEVICE_MEM_LIST_VERSION_V1, 0, 1}, {{source_}}};
    Remotes remotes_{{UCP_DEVICE_MEM_LIST_VERSION_V1, 1, 3}, {}};
};

TEST_F(DeviceCodeTest, PutsCopyEachByteAndNoOther) {
    for (size_t from = 0; from < 17; ++from) {
        for (size_t to = 0; to < 17; ++to) {
            for (const size_t length : {0, 1, 3, 4, 7, 8, 16, 31, 63, 64, 65, 129, 500, 900}) {
                std::memset(target_, -1, kLength);
                ASSERT_EQ(ucp_device_put(local(), 0, from, remote(), 0, to, length, 0, 0, nullptr),
                          UCS_OK);
                ASSERT_EQ(std::memcmp(target_ + to, source_ + from, length), 0)
                    << from << " to " << to << ", " << length;
                const auto untouched = [&](size_t first, size_t end) {
                    return std::all_of(target_ + first, target_ + end,
                                       [](char byte) { return byte == -1; });
                };
                ASSERT_TRUE(untouched(0, to) && untouched(to + length, kLength))
                    << from << " to " << to << ", " << length;
            }
        }
    }
}

TEST_F(DeviceCodeTest, WhoSeesTheCounterSeesThePut) {
    constexpr uint64_t kRounds = 2000;
    std::thread peer([&] {
        for (uint64_t round = 1; round <= kRounds; ++round) {
            while (ucp_device_counter_read(&counter_) < 2 * round - 1) std::this_thread::yield();
            uint64_t seen = 0;
            std::memcpy(&seen, target_, sizeof(seen));
            EXPECT_EQ(seen, round);
            (void)ucp_device_counter_inc(1, remote(), 1, 0, 0, 0, nullptr);
        }
    });
    for (uint64_t round = 1; round <= kRounds; ++round) {
        std::memcpy(source_, &round, sizeof(round));
        (void)ucp_device_put(local(), 0, 0, remote(), 0, 0, sizeof(round), 0, 0, nullptr);
        (void)ucp_device_counter_inc(1, remote(), 1, 0, 0, 0, nullptr);
        while (ucp_device_counter_read(&counter_) < 2 * round) std::this_thread::yield();
    }
    peer.join();
    ucp_device_counter_write(&counter_, 7);
    EXPECT_EQ(ucp_device_counter_read(&counter_), 7u);
}

TEST_F(DeviceCodeTest, NumberedMessagesAreTakenWhenAllOfThemIsThere) {
    constexpr uint32_t kNumber = 0xfffffff0;
    for (const size_t length : {0, 8, 16, 400}) {
        std::memset(target_, 0, kLength);
        char taken[kLength] = {};
        if (length > 0) {
            EXPECT_EQ(ucpx_device_take_numbered(target_, kNumber, taken, length), UCS_INPROGRESS);
        }
        ASSERT_EQ(ucpx_device_put_numbered(local(), 0, 8, remote(), 0, 16, length, kNumber),
                  UCS_OK);
        const size_t size = ucpx_device_numbered_size(length);
        // Each word of it is waited for.
        for (size_t at = 16; at < 16 + size; at += sizeof(uint64_t)) {
            uint64_t word = 0;
            std::swap_ranges(target_ + at, target_ + at + sizeof(word),
                             reinterpret_cast<char*>(&word));
            EXPECT_EQ(ucpx_device_take_numbered(target_ + 16, kNumber, taken, length),
                      UCS_INPROGRESS)
                << at;
            std::memcpy(target_ + at, &word, sizeof(word));
        }
        EXPECT_EQ(ucpx_device_take_numbered(target_ + 16, kNumber, taken, length), UCS_OK);
        EXPECT_EQ(std::memcmp(taken, source_ + 8, length), 0);
        EXPECT_EQ(std::count(taken + length, std::end(taken), 0),
                  static_cast<ptrdiff_t>(kLength - length));
        EXPECT_EQ(std::count(target_, target_ + 16, 0), 16);
        EXPECT_EQ(std::count(target_ + 16 + size, std::end(target_), 0),
                  static_cast<ptrdiff_t>(kLength - 16 - size));
        if (length > 0) {
            EXPECT_EQ(ucpx_device_take_numbered(target_ + 16, kNumber + 1, taken, length),
                      UCS_INPROGRESS);
        }
    }
}

TEST_F(DeviceCodeTest, ANumberedMessageIsThereWhenItsNumbersAre) {
    constexpr uint32_t kRounds = 2000;
    constexpr size_t kWords = 8, kBytes = kWords * sizeof(uint64_t);
    alignas(16) char answer[2 * kBytes] = {};
    remotes_.elements[2] = element(kThere + 8000, answer);
    const auto play = [&](bool begins) {
        alignas(8) uint64_t sent[kWords], taken[kWords];
        Locals mine{{UCP_DEVICE_MEM_LIST_VERSION_V1, 0, 1}, {{sent}}};
        for (uint32_t round = 1; round <= kRounds; ++round) {
            const auto take = [&] {
                while (ucpx_device_take_numbered(begins ? answer : target_, round, taken, kBytes) !=
                       UCS_OK)
                    std::this_thread::yield();
                for (const uint64_t word : taken) EXPECT_EQ(word, uint64_t{round} << 20 | round);
            };
            if (!begins) take();
            std::fill(std::begin(sent), std::end(sent), uint64_t{round} << 20 | round);
            (void)ucpx_device_put_numbered(&mine.head, 0, 0, remote(), begins ? 0 : 2, 0, kBytes,
                                           round);
            if (begins) take();
        }
    };
    std::thread peer([&] { play(false); });
    play(true);
    peer.join();
}

TEST_F(DeviceCodeTest, RequestsTellWhatCameOfThem) {
    ucp_device_request_t request;
    request.status = UCS_INPROGRESS;
    ASSERT_EQ(ucp_device_put<UCS_DEVICE_LEVEL_BLOCK>(local(), 0, 0, remote(), 0, 0, 8, 0,
                                                     UCP_DEVICE_FLAG_NODELAY, &request),
              UCS_OK);
    EXPECT_EQ(ucp_device_progress_req<UCS_DEVICE_LEVEL_BLOCK>(&request), UCS_OK);
    ASSERT_EQ(ucp_device_counter_inc<UCS_DEVICE_LEVEL_GRID>(5, remote(), 1, 0, 0, 0, &request),
              UCS_OK);
    EXPECT_EQ(ucp_device_progress_req(&request), UCS_OK);
    EXPECT_EQ(counter_, 5u);
    void* place = nullptr;
    EXPECT_EQ(ucp_device_get_ptr(remote(), 1, &place), UCS_OK);
    EXPECT_EQ(place, &counter_);
}

TEST_F(DeviceCodeTest, WithChecksWrongElementsAreRefused) {
    ucp_device_request_t request;
    void* place = nullptr;
    // One that was left out, and one past the end.
    for (const unsigned index : {2u, 3u}) {
        EXPECT_EQ(ucp_device_put(local(), 0, 0, remote(), index, 0, 8, 0, 0, &request),
                  UCS_ERR_INVALID_PARAM);
        EXPECT_EQ(ucp_device_progress_req(&request), UCS_ERR_INVALID_PARAM);
        EXPECT_EQ(ucp_device_counter_inc(1, remote(), index, 0, 0, 0, nullptr),
                  UCS_ERR_INVALID_PARAM);
        EXPECT_EQ(ucp_device_get_ptr(remote(), index, &place), UCS_ERR_INVALID_PARAM);
    }
    EXPECT_EQ(ucp_device_put(local(), 1, 0, remote(), 0, 0, 8, 0, 0, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_device_put_numbered(local(), 1, 0, remote(), 0, 0, 8, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_device_put_numbered(local(), 0, 0, remote(), 3, 0, 8, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_device_put_numbered(local(), 0, 4, remote(), 0, 0, 8, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_device_put_numbered(local(), 0, 0, remote(), 0, 8, 8, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_device_put_numbered(local(), 0, 0, remote(), 0, 0, 4, 1), UCS_ERR_INVALID_PARAM);
    remotes_.head.version = 1;
    EXPECT_EQ(ucp_device_get_ptr(remote(), 0, &place), UCS_ERR_INVALID_PARAM);
}

TEST(DeviceLevels, HaveNames) {
    EXPECT_STREQ(ucs_device_level_name(UCS_DEVICE_LEVEL_THREAD), "thread");
    EXPECT_STREQ(ucs_device_level_name(UCS_DEVICE_LEVEL_GRID), "grid");
    EXPECT_STREQ(ucs_device_level_name(static_cast<ucs_device_level_t>(9)), "unknown");
}

}  // namespace

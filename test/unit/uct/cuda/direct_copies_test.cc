// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/direct_copies.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "cuda/device.h"
#include "uct/cuda/memory.h"

namespace uct::cuda {
namespace {

using cuda_test::Buffer;
using cuda_test::driver;
using cuda_test::Kind;

// Between described memory of this process and host memory of which CUDA knows nothing.
class CudaDirect : public ::testing::Test {
  protected:
    void SetUp() override {
        cuda_test::use_device(0);
        memory.prepare();
    }
    void fetch(Buffer& from, size_t offset, std::byte* to, size_t length) {
        ucs::MemoryExport description{};
        ASSERT_TRUE(memory.export_memory(from.data() + offset, length, nullptr, description));
        ucs::AsyncCopy* copy = nullptr;
        ASSERT_EQ(memory.fetch({&description, 0, to, length}, nullptr, &copy), UCS_OK);
        wait(*copy);
    }
    void store(Buffer& to, size_t offset, std::byte* from, size_t length) {
        ucs::MemoryExport description{};
        ASSERT_TRUE(memory.export_memory(to.data() + offset, length, nullptr, description));
        ucs::AsyncCopy* copy = nullptr;
        ASSERT_EQ(memory.store({&description, 0, from, length}, nullptr, &copy), UCS_OK);
        wait(*copy);
    }

    CudaMemory& memory = *CudaMemory::get();

  private:
    static void wait(ucs::AsyncCopy& copy) {
        ucs_status_t status = UCS_INPROGRESS;
        while (status == UCS_INPROGRESS) status = copy.test();
        EXPECT_EQ(status, UCS_OK);
    }
};

TEST_F(CudaDirect, MemoryThatIsNotPinnedGetsEachByteAndNoOther) {
    constexpr size_t kMost = 3 << 20, kRoom = 200;
    Buffer device(Kind::kDevice, kMost + kRoom), host(Kind::kHeap, kMost + kRoom);
    uint32_t seed = 0;
    for (const size_t length : {size_t{5}, size_t{300'000}, (size_t{1} << 20) + 77, kMost}) {
        for (const size_t place : {0, 1, 63, 130}) {
            device.fill(++seed);
            host.fill(++seed);
            fetch(device, 9, host.data() + place, length);
            EXPECT_TRUE(host.holds(seed, 0, place));
            EXPECT_TRUE(host.holds(seed - 1, place, length, 9 - place));
            EXPECT_TRUE(host.holds(seed, place + length, host.length() - place - length));
            host.fill(++seed);
            device.fill(++seed);
            store(device, 9, host.data() + place, length);
            EXPECT_TRUE(device.holds(seed, 0, 9));
            EXPECT_TRUE(device.holds(seed - 1, 9, length, place - 9));
            EXPECT_TRUE(device.holds(seed, 9 + length, device.length() - 9 - length));
        }
    }
}

TEST_F(CudaDirect, TimesOfMemoryThatIsNotPinned) {
    constexpr size_t kTotal = 256 << 20;
    const size_t total = cuda_test::is_real() ? kTotal : 4 << 20;
    Buffer device(Kind::kDevice, total), host(Kind::kHeap, total);
    abi::Stream stream = nullptr;
    ASSERT_EQ(driver().stream_create(&stream, abi::kStreamNonBlocking), abi::kSuccess);
    // In GB/s.
    const auto rate_of = [&](size_t length, const auto& one) {
        for (size_t at = 0; at < total; at += length) one(at);
        const auto start = std::chrono::steady_clock::now();
        for (size_t at = 0; at < total; at += length) one(at);
        const std::chrono::duration<double, std::nano> time =
            std::chrono::steady_clock::now() - start;
        return static_cast<double>(total) / time.count();
    };
    const auto bare = [&](std::byte* to, const std::byte* from, size_t length) {
        (void)driver().copy_async(reinterpret_cast<uintptr_t>(to),
                                  reinterpret_cast<uintptr_t>(from), length, stream);
        (void)driver().stream_synchronize(stream);
    };
    for (const size_t length : {size_t{64} << 10, size_t{1} << 20, total}) {
        const double bare_to =
            rate_of(length, [&](size_t at) { bare(host.data() + at, device.data() + at, length); });
        const double to =
            rate_of(length, [&](size_t at) { fetch(device, at, host.data() + at, length); });
        const double bare_from =
            rate_of(length, [&](size_t at) { bare(device.data() + at, host.data() + at, length); });
        const double from =
            rate_of(length, [&](size_t at) { store(device, at, host.data() + at, length); });
        std::printf(
            "%zu bytes, host memory that is not pinned: to it %.1f GB/s (the driver alone %.1f), "
            "from it %.1f (%.1f)\n",
            length, to, bare_to, from, bare_from);
    }
    EXPECT_EQ(driver().stream_destroy(stream), abi::kSuccess);
}

}  // namespace
}  // namespace uct::cuda

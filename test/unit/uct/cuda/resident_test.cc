// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/resident.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "cuda/device.h"
#include "uct/cuda/config.h"
#include "uct/cuda/kernels.h"
#include "uct/cuda/memory.h"

namespace uct::cuda {
namespace {

using cuda_test::Buffer;
using cuda_test::driver;
using cuda_test::Kind;

class CudaResident : public ::testing::Test {
  protected:
    void SetUp() override {
        const abi::Context context = cuda_test::use_device(0);
        abi::Module module = nullptr;
        ASSERT_EQ(driver().module_load(&module, kernel_image), abi::kSuccess);
        resident = Resident::create(driver(), context, module);
        ASSERT_NE(resident, nullptr);
    }
    void TearDown() override {
        cuda_test::use_device(0);
        // The kernel still reads the queue.
        (void)driver().context_synchronize();
    }

    // The kernel takes copies once it runs.
    uint32_t begin(void* to, const void* from, size_t length) {
        uint32_t number = 0;
        while (!resident->begin(to, from, length, &number)) {
        }
        return number;
    }
    ucs_status_t wait(uint32_t number) {
        ucs_status_t status = UCS_INPROGRESS;
        while (status == UCS_INPROGRESS) status = resident->test(number);
        return status;
    }
    // An idle kernel may have ended just before.
    void copy(void* to, const void* from, size_t length) {
        ucs_status_t status = UCS_ERR_CANCELED;
        while (status == UCS_ERR_CANCELED) status = wait(begin(to, from, length));
        EXPECT_EQ(status, UCS_OK);
    }

    std::unique_ptr<Resident> resident;
};

TEST_F(CudaResident, CopiesBetweenAllMemoryThatTheDeviceReaches) {
    uint32_t seed = 0;
    for (const Kind from : {Kind::kDevice, Kind::kPool, Kind::kVirtual, Kind::kPinned}) {
        for (const Kind to : {Kind::kDevice, Kind::kPinned}) {
            for (const size_t length : {1u, 8u, 15u, 4096u, 16384u}) {
                for (const size_t shift : {0u, 1u}) {
                    Buffer source(from, length + shift), target(to, length + shift);
                    source.fill(++seed);
                    target.clear();
                    copy(target.data() + shift, source.data() + shift, length);
                    EXPECT_TRUE(target.holds(seed, shift, length));
                }
            }
        }
    }
}

TEST_F(CudaResident, ReadsWhatIsThereNow) {
    Buffer source(Kind::kDevice, 4096), target(Kind::kDevice, 4096);
    for (uint32_t seed = 1; seed < 100; ++seed) {
        source.fill(seed);
        copy(target.data(), source.data(), 4096);
        ASSERT_TRUE(target.holds(seed));
    }
}

TEST_F(CudaResident, ManyCopiesAreDoneInOrder) {
    Buffer source(Kind::kDevice, 4096), target(Kind::kDevice, 4096);
    source.fill(1);
    target.clear();
    copy(target.data(), source.data(), 64);
    uint32_t last = 0;
    bool is_taken = true;
    for (size_t i = 1; i < 64 && is_taken; ++i) {
        is_taken = resident->begin(target.data() + 64 * i, source.data() + 64 * i, 64, &last);
    }
    // The queue holds that many, unless the kernel has ended meanwhile.
    if (!is_taken) GTEST_SKIP() << "the kernel has ended";
    for (uint32_t number = last - 62; number != last + 1; ++number) ASSERT_EQ(wait(number), UCS_OK);
    EXPECT_TRUE(target.holds(1));
}

TEST_F(CudaResident, EndsByItselfAndIsLaunchedAnew) {
    Buffer source(Kind::kDevice, 64), target(Kind::kDevice, 64);
    for (uint32_t round = 1; round < 4; ++round) {
        source.fill(round);
        copy(target.data(), source.data(), 64);
        // A program that waits for the device waits for its end.
        ASSERT_EQ(driver().context_synchronize(), abi::kSuccess);
        uint32_t number = 0;
        EXPECT_FALSE(resident->begin(target.data(), source.data(), 64, &number));
        EXPECT_TRUE(target.holds(round));
    }
}

TEST_F(CudaResident, ACopyThatItHasNotTakenIsSaidToBeNone) {
    if (cuda_test::is_real()) GTEST_SKIP() << "faults are injected on the stand-in only";
    Buffer source(Kind::kDevice, 64), target(Kind::kDevice, 64);
    source.fill(1);
    target.clear();
    copy(target.data(), source.data(), 64);
    target.clear();
    cuda_test::set_faults("resident:1");
    ucs_status_t status = wait(begin(target.data(), source.data(), 64));
    cuda_test::set_faults("");
    EXPECT_EQ(status, UCS_ERR_CANCELED);
    EXPECT_EQ(target.bytes()[0], std::byte{0});
    copy(target.data(), source.data(), 64);
    EXPECT_TRUE(target.holds(1));
}

TEST_F(CudaResident, AFailedLaunchLeavesCopiesToOthers) {
    if (cuda_test::is_real()) GTEST_SKIP() << "faults are injected on the stand-in only";
    Buffer source(Kind::kDevice, 64), target(Kind::kDevice, 64);
    cuda_test::set_faults("cuLaunchKernel:999");
    uint32_t number = 0;
    EXPECT_FALSE(resident->begin(target.data(), source.data(), 64, &number));
    cuda_test::set_faults("");
    EXPECT_FALSE(resident->begin(target.data(), source.data(), 64, &number));
}

// What it is for: with UCX_CUDA_RESIDENT=y beside a copy of the driver's.
TEST_F(CudaResident, TakesLessTimeThanTheCopyEngine) {
    const int copies = cuda_test::is_real() ? 2000 : 20;
    using Clock = std::chrono::steady_clock;
    CudaMemory& memory = *CudaMemory::get();
    memory.prepare();
    abi::Stream stream = nullptr;
    ASSERT_EQ(driver().stream_create(&stream, abi::kStreamNonBlocking), abi::kSuccess);
    Buffer source(Kind::kDevice, 16384), target(Kind::kDevice, 16384);
    const auto time_of = [&](const auto& one) {
        for (int i = 0; i < copies / 10; ++i) one();
        const auto start = Clock::now();
        for (int i = 0; i < copies; ++i) one();
        return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / copies;
    };
    for (const size_t length : {8u, 1024u, 4096u, 16384u}) {
        const double bare = time_of([&] {
            (void)driver().copy_async(reinterpret_cast<uintptr_t>(target.data()),
                                      reinterpret_cast<uintptr_t>(source.data()), length, stream);
            (void)driver().stream_synchronize(stream);
        });
        const double alone = time_of([&] { copy(target.data(), source.data(), length); });
        ucs::MemoryExport description{};
        ASSERT_TRUE(memory.export_memory(source.data(), length, nullptr, description));
        const double all = time_of([&] {
            ucs::AsyncCopy* copy = nullptr;
            ASSERT_EQ(memory.fetch({&description, 0, target.data(), length}, nullptr, &copy),
                      UCS_OK);
            while (copy->test() == UCS_INPROGRESS) {
            }
        });
        std::printf(
            "copy of %zu bytes: %.2f us by the driver, %.2f by the resident kernel, "
            "%.2f by fetch() (UCX_CUDA_RESIDENT=%s)\n",
            length, bare, alone, all, Config::get().resident ? "y" : "n");
        EXPECT_TRUE(!cuda_test::is_real() || alone < bare);
    }
    EXPECT_EQ(driver().stream_destroy(stream), abi::kSuccess);
}

}  // namespace
}  // namespace uct::cuda

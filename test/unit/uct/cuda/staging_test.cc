// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "cuda/device.h"
#include "cuda/kernels.h"
#include "uct/cuda/memory.h"

namespace uct::cuda {
namespace {

using cuda_test::Buffer;
using cuda_test::driver;
using cuda_test::Kind;

constexpr size_t kChunk = StagingPool::kChunk;

class StagingTest : public ::testing::Test {
  protected:
    void SetUp() override {
        cuda_test::use_device(0);
        memory.prepare();
        free_before = memory.staging().free_chunks();
        ASSERT_GT(free_before, 0u);
    }
    void TearDown() override { EXPECT_EQ(memory.staging().free_chunks(), free_before); }

    ucs::StagedCopy& open(std::span<const ucs::MemoryPiece> pieces) {
        ucs::StagedCopy* copy = nullptr;
        EXPECT_EQ(memory.open_copy(pieces, nullptr, &copy), UCS_OK);
        return *copy;
    }

    CudaMemory& memory = *CudaMemory::get();
    size_t free_before = 0;
};

TEST_F(StagingTest, HoldsTheAllocationAsLongAsTheCopyIsOpen) {
    const Buffer device(Kind::kDevice, 1000);
    ucs::MemoryInfo info;
    ASSERT_TRUE(memory.detect(device.data(), device.length(), info));
    ucs::HeldAllocations& held = memory.engine().held();
    const ucs::MemoryPiece piece{device.data(), device.length()};
    for (const bool is_abandoned : {false, true}) {
        EXPECT_FALSE(held.is_held(info.allocation));
        ucs::StagedCopy* copy = nullptr;
        ASSERT_EQ(memory.open_copy({&piece, 1}, &info, &copy), UCS_OK);
        EXPECT_TRUE(held.is_held(info.allocation));
        is_abandoned ? copy->abandon() : static_cast<void>(copy->finish());
    }
    EXPECT_FALSE(held.is_held(info.allocation));
}

TEST_F(StagingTest, ReadsInParts) {
    Buffer device(Kind::kDevice, 3 * kChunk + 12345);
    Buffer host(Kind::kHeap, device.length());
    device.fill(1);
    const ucs::MemoryPiece piece{device.data(), device.length()};
    for (const size_t step : {size_t{8191}, size_t{65536}, kChunk, device.length()}) {
        host.clear();
        ucs::StagedCopy& copy = open({&piece, 1});
        for (size_t at = 0; at < device.length(); at += step) {
            ASSERT_EQ(copy.read(at, host.data() + at, std::min(step, device.length() - at)),
                      UCS_OK);
        }
        EXPECT_EQ(copy.finish(), UCS_OK);
        EXPECT_TRUE(host.holds(1)) << step;
    }
}

TEST_F(StagingTest, ReadsOutOfOrderAndOnlyWhatIsAskedFor) {
    Buffer device(Kind::kDevice, 3 * kChunk);
    device.fill(1);
    const ucs::MemoryPiece piece{device.data(), device.length()};
    ucs::StagedCopy& copy = open({&piece, 1});
    for (const size_t at : {2 * kChunk, size_t{5}, kChunk + 7, size_t{0}, 3 * kChunk - 1}) {
        std::byte byte{};
        ASSERT_EQ(copy.read(at, &byte, 1), UCS_OK);
        EXPECT_EQ(byte, Buffer::expected(1, at)) << at;
    }
    std::byte byte{};
    EXPECT_EQ(copy.read(3 * kChunk, &byte, 1), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(copy.finish(), UCS_OK);
}

TEST_F(StagingTest, WritesInPartsOfAnySizeAndOrder) {
    Buffer host(Kind::kHeap, 2 * kChunk + 777);
    host.fill(2);
    for (const size_t step : {size_t{1000}, size_t{8192}, size_t{100000}, host.length()}) {
        for (const bool backwards : {false, true}) {
            Buffer device(Kind::kDevice, host.length());
            const ucs::MemoryPiece piece{device.data(), device.length()};
            ucs::StagedCopy& copy = open({&piece, 1});
            const size_t parts = (host.length() + step - 1) / step;
            for (size_t i = 0; i < parts; ++i) {
                const size_t at = (backwards ? parts - 1 - i : i) * step;
                ASSERT_EQ(copy.write(at, host.data() + at, std::min(step, host.length() - at)),
                          UCS_OK);
            }
            EXPECT_EQ(copy.finish(), UCS_OK);
            EXPECT_TRUE(device.holds(2)) << step << " " << backwards;
        }
    }
}

TEST_F(StagingTest, WritesNothingElse) {
    Buffer device(Kind::kDevice, 4096);
    device.fill(3);
    Buffer host(Kind::kHeap, 100);
    host.fill(4);
    const ucs::MemoryPiece piece{device.data() + 1000, 100};
    ucs::StagedCopy& copy = open({&piece, 1});
    ASSERT_EQ(copy.write(0, host.data(), 50), UCS_OK);
    EXPECT_EQ(copy.write(50, host.data(), 51), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(copy.finish(), UCS_OK);
    EXPECT_TRUE(device.holds(3, 0, 1000));
    EXPECT_TRUE(device.holds(3, 1050, 4096 - 1050));
}

TEST_F(StagingTest, PiecesOfDevicesAndTheHost) {
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<ucs::MemoryPiece> pieces;
    size_t total = 0;
    for (size_t i = 0; i < 40; ++i) {
        const Kind kind =
            i == 0 || i % 5 == 4 ? Kind::kHeap : (i % 5 == 2 ? Kind::kManaged : Kind::kDevice);
        buffers.push_back(std::make_unique<Buffer>(kind, i * 997));
        pieces.push_back({buffers.back()->data(), buffers.back()->length()});
        total += buffers.back()->length();
    }
    Buffer host(Kind::kHeap, total);
    host.fill(5);
    ucs::StagedCopy& writer = open(pieces);
    ASSERT_EQ(writer.write(0, host.data(), total / 2), UCS_OK);
    ASSERT_EQ(writer.write(total / 2, host.data() + total / 2, total - total / 2), UCS_OK);
    EXPECT_EQ(writer.finish(), UCS_OK);
    size_t start = 0;
    for (const auto& buffer : buffers) {
        EXPECT_TRUE(buffer->holds(5, 0, buffer->length(), start));
        start += buffer->length();
    }
    host.clear();
    ucs::StagedCopy& reader = open(pieces);
    for (size_t at = 0; at < total; at += 10007)
        ASSERT_EQ(reader.read(at, host.data() + at, std::min<size_t>(10007, total - at)), UCS_OK);
    EXPECT_EQ(reader.finish(), UCS_OK);
    EXPECT_TRUE(host.holds(5));
}

TEST_F(StagingTest, ManySmallPiecesByOneKernel) {
    constexpr size_t kPieces = 500, kPiece = 1000;
    Buffer device(Kind::kDevice, kPieces * kPiece * 2);
    device.fill(6);
    std::vector<ucs::MemoryPiece> pieces;
    for (size_t i = 0; i < kPieces; ++i) pieces.push_back({device.data() + 2 * i * kPiece, kPiece});
    Buffer host(Kind::kHeap, kPieces * kPiece);
    ucs::StagedCopy& copy = open(pieces);
    ASSERT_EQ(copy.read(0, host.data(), host.length()), UCS_OK);
    EXPECT_EQ(copy.finish(), UCS_OK);
    for (size_t i = 0; i < kPieces; ++i)
        ASSERT_TRUE(host.holds(6, i * kPiece, kPiece, i * kPiece)) << i;
    ucs::StagedCopy& back = open(pieces);
    host.fill(8);
    ASSERT_EQ(back.write(0, host.data(), host.length()), UCS_OK);
    EXPECT_EQ(back.finish(), UCS_OK);
    const std::vector<std::byte> bytes = device.bytes();
    for (size_t i = 0; i < host.length(); ++i)
        ASSERT_EQ(bytes[i / kPiece * 2 * kPiece + i % kPiece], Buffer::expected(8, i));
}

TEST_F(StagingTest, SmallPiecesGoByTheKernel) {
    if (cuda_test::is_real()) return;
    abi::Context own = nullptr;
    ASSERT_EQ(driver().context_create(&own, 0, 0), abi::kSuccess);
    memory.prepare();
    Buffer device(Kind::kDevice, 10000);
    std::vector<ucs::MemoryPiece> pieces;
    for (size_t i = 0; i < 100; ++i) pieces.push_back({device.data() + i * 100, 50});
    std::vector<std::byte> host(5000);
    cuda_test::set_faults("cuLaunchKernel:719");
    ucs::StagedCopy& copy = open(pieces);
    EXPECT_EQ(copy.read(0, host.data(), host.size()), UCS_ERR_IO_ERROR) << "no kernel was launched";
    (void)copy.finish();
    cuda_test::set_faults("");
    (void)driver().context_destroy(own);
    cuda_test::use_device(0);
}

TEST_F(StagingTest, WithoutAFreeChunk) {
    std::vector<std::byte*> taken;
    while (std::byte* chunk = memory.staging().take()) taken.push_back(chunk);
    Buffer device(Kind::kDevice, kChunk + 100);
    Buffer host(Kind::kHeap, device.length());
    host.fill(9);
    EXPECT_EQ(memory.copy(device.data(), host.data(), host.length()), UCS_OK);
    EXPECT_TRUE(device.holds(9));
    host.clear();
    EXPECT_EQ(memory.copy(host.data(), device.data(), host.length()), UCS_OK);
    EXPECT_TRUE(host.holds(9));
    for (std::byte* chunk : taken) memory.staging().put(chunk);
}

// The program's kernel runs until it is told to end; what the library does beside it does not wait.
class ResidentKernelTest : public StagingTest {
  protected:
    void start() {
        void* host = nullptr;
        ASSERT_EQ(driver().host_allocate(&host, 4096, abi::kHostAllocMapped), abi::kSuccess);
        words = static_cast<uint32_t*>(host);
        words[0] = 0;
        words[1] = 0;
        abi::Module module = nullptr;
        abi::Function function = nullptr;
        ASSERT_EQ(driver().module_load(&module, test_kernel_image), abi::kSuccess);
        ASSERT_EQ(driver().module_get_function(&function, module, kSpinKernel), abi::kSuccess);
        ASSERT_EQ(driver().stream_create(&stream, abi::kStreamNonBlocking), abi::kSuccess);
        void* arguments[] = {&host};
        ASSERT_EQ(driver().launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
                  abi::kSuccess);
        while (std::atomic_ref(words[0]).load() == 0) {
        }
    }
    void stop() {
        std::atomic_ref(words[1]).store(1);
        EXPECT_EQ(driver().stream_synchronize(stream), abi::kSuccess);
        (void)driver().stream_destroy(stream);
        (void)driver().host_free(words);
    }
    uint32_t* words = nullptr;
    abi::Stream stream = nullptr;
};

TEST_F(ResidentKernelTest, CopiesGoOn) {
    constexpr size_t kPieces = 100, kPiece = 100;
    Buffer device(Kind::kDevice, kPieces * kPiece);
    Buffer host(Kind::kHeap, device.length());
    host.fill(11);
    std::vector<ucs::MemoryPiece> pieces;
    for (size_t i = 0; i < kPieces; ++i) pieces.push_back({device.data() + i * kPiece, kPiece});
    start();
    ucs::StagedCopy& writer = open(pieces);
    EXPECT_EQ(writer.write(0, host.data(), host.length()), UCS_OK);
    EXPECT_EQ(writer.finish(), UCS_OK);
    host.clear();
    ucs::StagedCopy& reader = open(pieces);
    EXPECT_EQ(reader.read(0, host.data(), host.length()), UCS_OK);
    EXPECT_EQ(reader.finish(), UCS_OK);
    EXPECT_TRUE(host.holds(11));
    stop();
}

// An error of the device reaches the copy that it hit and all that come later; nothing hangs. Last:
// the context is of no more use.
TEST_F(StagingTest, ZErrorsOfTheDevice) {
    if (cuda_test::is_real()) return;
    abi::Context own = nullptr;
    ASSERT_EQ(driver().context_create(&own, 0, 0), abi::kSuccess);
    Buffer device(Kind::kDevice, 4 * kChunk);
    Buffer host(Kind::kHeap, 4 * kChunk);
    EXPECT_EQ(memory.copy(device.data(), host.data(), host.length()), UCS_OK);
    cuda_test::set_faults("run:719");
    EXPECT_EQ(memory.copy(device.data(), host.data(), host.length()), UCS_ERR_IO_ERROR);
    cuda_test::set_faults("");
    EXPECT_NE(memory.copy(host.data(), device.data(), host.length()), UCS_OK);
    (void)driver().context_destroy(own);
}

}  // namespace
}  // namespace uct::cuda

// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <thread>

#include "cuda/device.h"

namespace uct::cuda {
namespace {

using cuda_test::Buffer;
using cuda_test::driver;
using cuda_test::is_on_device;
using cuda_test::Kind;

constexpr size_t kLength = 10000;

// A program without CUDA: nothing starts. The first test of the program.
TEST(CudaStart, NothingHappensBeforeTheProgramUsesCuda) {
    CudaMemory* const memory = CudaMemory::get();
    ASSERT_NE(memory, nullptr);
    EXPECT_FALSE(memory->is_in_use());
    memory->prepare();
    EXPECT_FALSE(driver().is_initialized());
    int local = 0;
    EXPECT_EQ(ucs::detect_memory(&local, sizeof(local)).type, UCS_MEMORY_TYPE_HOST);
    ASSERT_GT(cuda_test::device_count(), 0);
    EXPECT_TRUE(memory->is_in_use());
    unsigned flags = 0;
    int is_active = 1;
    memory->prepare();
    ASSERT_EQ(driver().primary_context_state(0, &flags, &is_active), abi::kSuccess);
    EXPECT_EQ(is_active, 0) << "a context was made";
}

// Of what the library takes when it gets ready: the second test of the program.
TEST(CudaStart, TheLibraryTakesLittleMemory) {
    constexpr size_t kMostOfDevice = 32 << 20, kMostPinned = 64 << 20;
    cuda_test::use_device(0);
    size_t before = 0, after = 0, total = 0;
    ASSERT_EQ(driver().memory_get_info(&before, &total), abi::kSuccess);
    CudaMemory::get()->prepare();
    ASSERT_EQ(driver().memory_get_info(&after, &total), abi::kSuccess);
    const size_t pinned = CudaMemory::get()->staging().chunks() * StagingPool::kChunk;
    std::printf("the library takes %zu KiB of device 0 and %zu KiB of pinned memory\n",
                (before - after) >> 10, pinned >> 10);
    EXPECT_LE(before - after, kMostOfDevice);
    EXPECT_LE(pinned, kMostPinned);
}

class CudaMemoryTest : public ::testing::TestWithParam<Kind> {
  protected:
    void SetUp() override { cuda_test::use_device(0); }
    ucs_memory_type_t expected_type() const {
        if (GetParam() == Kind::kManaged) return UCS_MEMORY_TYPE_CUDA_MANAGED;
        return is_on_device(GetParam()) ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
    }
};

TEST_P(CudaMemoryTest, IsRecognised) {
    const Buffer buffer(GetParam(), kLength);
    for (const size_t place : {size_t{0}, size_t{1}, kLength - 1}) {
        const ucs::MemoryInfo info = ucs::detect_memory(buffer.data() + place, 1);
        EXPECT_EQ(info.type, expected_type());
        EXPECT_EQ(info.owner != nullptr, is_on_device(GetParam()));
    }
}

TEST_P(CudaMemoryTest, IsRecognisedByAThreadWithoutAContextAndOneOfAnotherDevice) {
    const Buffer buffer(GetParam(), kLength);
    std::thread([&] {
        EXPECT_EQ(ucs::detect_memory(buffer.data(), 1).type, expected_type());
        if (cuda_test::device_count() < 2) return;
        cuda_test::use_device(1);
        EXPECT_EQ(ucs::detect_memory(buffer.data(), 1).type, expected_type());
    }).join();
}

TEST_P(CudaMemoryTest, IsCopiedWhateverIsCurrent) {
    if (!is_on_device(GetParam())) return;
    CudaMemory& memory = *CudaMemory::get();
    memory.prepare();
    Buffer buffer(GetParam(), 1000000);
    Buffer host(Kind::kHeap, 1000000);
    const auto round_trip = [&](uint32_t seed) {
        host.fill(seed);
        ASSERT_EQ(memory.copy(buffer.data(), host.data(), host.length()), UCS_OK);
        host.clear();
        ASSERT_EQ(memory.copy(host.data(), buffer.data(), host.length()), UCS_OK);
        EXPECT_TRUE(host.holds(seed));
    };
    round_trip(1);
    EXPECT_TRUE(buffer.holds(1));
    std::thread([&] {
        round_trip(2);
        abi::Context current = nullptr;
        ASSERT_EQ(driver().context_get(&current), abi::kSuccess);
        EXPECT_EQ(current, nullptr) << "the thread's context was left changed";
        if (cuda_test::device_count() < 2) return;
        abi::Context const other = cuda_test::use_device(1);
        round_trip(3);
        ASSERT_EQ(driver().context_get(&current), abi::kSuccess);
        EXPECT_EQ(current, other);
    }).join();
}

TEST_P(CudaMemoryTest, IsHostMemoryAgainWhenItsAddressIs) {
    if (GetParam() != Kind::kDevice) return;
    const void* freed = nullptr;
    {
        const Buffer buffer(GetParam(), kLength);
        freed = buffer.data();
    }
    EXPECT_EQ(ucs::detect_memory(freed, 1).type, UCS_MEMORY_TYPE_HOST);
    const Buffer anew(GetParam(), kLength);
    EXPECT_EQ(ucs::detect_memory(anew.data(), 1).type, UCS_MEMORY_TYPE_CUDA);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaMemoryTest, ::testing::ValuesIn(cuda_test::kAllKinds),
                         [](const auto& info) { return cuda_test::name_of(info.param); });

TEST(CudaCopy, BetweenDevicesAndContexts) {
    CudaMemory& memory = *CudaMemory::get();
    cuda_test::use_device(0);
    Buffer first(Kind::kDevice, kLength);
    Buffer same(Kind::kManaged, kLength);
    first.fill(7);
    ASSERT_EQ(memory.copy(same.data(), first.data(), kLength), UCS_OK);
    EXPECT_TRUE(same.holds(7));
    if (cuda_test::device_count() < 2) return;
    cuda_test::use_device(1);
    Buffer second(Kind::kDevice, kLength);
    ASSERT_EQ(memory.copy(second.data(), first.data(), kLength), UCS_OK);
    EXPECT_TRUE(second.holds(7));
    cuda_test::use_device(0);
}

TEST(CudaCopy, InAContextThatIsNotThePrimary) {
    CudaMemory& memory = *CudaMemory::get();
    cuda_test::use_device(0);
    abi::Context own = nullptr;
    ASSERT_EQ(driver().context_create(&own, 0, 0), abi::kSuccess);
    {
        Buffer buffer(Kind::kDevice, kLength);
        Buffer host(Kind::kHeap, kLength);
        buffer.fill(9);
        std::thread([&] {
            ASSERT_EQ(memory.copy(host.data(), buffer.data(), kLength), UCS_OK);
        }).join();
        EXPECT_TRUE(host.holds(9));
    }
    ASSERT_EQ(driver().context_destroy(own), abi::kSuccess);
    cuda_test::use_device(0);
    // Whatever the next context's handle is, what was known of the destroyed one is not used.
    ASSERT_EQ(driver().context_create(&own, 0, 0), abi::kSuccess);
    {
        Buffer buffer(Kind::kDevice, kLength);
        Buffer host(Kind::kHeap, kLength);
        host.fill(10);
        ASSERT_EQ(memory.copy(buffer.data(), host.data(), kLength), UCS_OK);
        EXPECT_TRUE(buffer.holds(10));
    }
    ASSERT_EQ(driver().context_destroy(own), abi::kSuccess);
    cuda_test::use_device(0);
}

TEST(CudaCopy, PastAnAllocationIsAnError) {
    if (cuda_test::is_real()) return;  // the real one may have mapped what lies behind
    CudaMemory& memory = *CudaMemory::get();
    cuda_test::use_device(0);
    Buffer buffer(Kind::kDevice, kLength);
    Buffer host(Kind::kHeap, 2 * kLength);
    EXPECT_EQ(memory.copy(host.data(), buffer.data(), 2 * kLength), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(memory.copy(host.data(), buffer.data(), kLength), UCS_OK);
}

TEST(CudaCopy, AllocatesAndFrees) {
    CudaMemory& memory = *CudaMemory::get();
    cuda_test::use_device(0);
    for (const ucs_memory_type_t type : {UCS_MEMORY_TYPE_CUDA, UCS_MEMORY_TYPE_CUDA_MANAGED}) {
        void* address = nullptr;
        ASSERT_EQ(memory.allocate(type, kLength, &address), UCS_OK);
        EXPECT_EQ(ucs::detect_memory(address, kLength).type, type);
        memory.free(address);
        EXPECT_EQ(ucs::detect_memory(address, kLength).type, UCS_MEMORY_TYPE_HOST);
    }
    if (cuda_test::is_real()) return;
    cuda_test::set_faults("cuMemAlloc:2");
    void* address = nullptr;
    EXPECT_EQ(memory.allocate(UCS_MEMORY_TYPE_CUDA, kLength, &address), UCS_ERR_NO_MEMORY);
    cuda_test::set_faults("");
}

// --- what is known of memory that belongs to no context ---

ucs::MemoryInfo info_of(const std::byte* address, size_t length) {
    ucs::MemoryInfo info;
    EXPECT_TRUE(CudaMemory::get()->detect(address, length, info));
    return info;
}

TEST(CudaAllocations, OfPoolsHaveNumbersOfTheirOwn) {
    cuda_test::use_device(0);
    for (const Kind kind : {Kind::kPool, Kind::kSharedPool}) {
        uint64_t before = 0;
        const std::byte* where = nullptr;
        for (int round = 0; round < 3; ++round) {
            const Buffer buffer(kind, kLength);
            const ucs::MemoryInfo info = info_of(buffer.data() + 1, kLength - 1);
            EXPECT_EQ(info.base, buffer.data());
            EXPECT_NE(info.allocation, 0u);
            EXPECT_NE(info.held, nullptr);
            if (!cuda_test::is_real() && round > 0) {
                ASSERT_EQ(buffer.data(), where) << "the test wants the same addresses again";
            }
            EXPECT_NE(info.allocation, before);
            before = info.allocation;
            where = buffer.data();
        }
    }
}

// Known memory is asked for by its number alone.
TEST(CudaAllocations, AreLookedUpOnce) {
    if (cuda_test::is_real()) GTEST_SKIP() << "calls are counted on the stand-in only";
    cuda_test::use_device(0);
    for (const Kind kind :
         {Kind::kDevice, Kind::kPool, Kind::kSharedPool, Kind::kVirtual, Kind::kSharedVirtual}) {
        SCOPED_TRACE(cuda_test::name_of(kind));
        const Buffer buffer(kind, kLength);
        (void)info_of(buffer.data(), kLength);
        const uint64_t all = cuda_test::calls_of("");
        const uint64_t one = cuda_test::calls_of("one of cuPointerGetAttributes");
        EXPECT_NE(info_of(buffer.data() + 100, 10).allocation, 0u);
        EXPECT_EQ(cuda_test::calls_of("one of cuPointerGetAttributes"), one + 1);
        EXPECT_EQ(cuda_test::calls_of(""), all + 1);
    }
}

TEST(CudaAllocations, OfVirtualMemoryAreToldApart) {
    using cuda_test::VirtualRange;
    constexpr size_t kEach = VirtualRange::kEach;
    cuda_test::use_device(0);
    VirtualRange range(3);
    range.map(0);
    range.map(1);
    const ucs::MemoryInfo first = info_of(range.at(0) + 10, kEach - 10);
    const ucs::MemoryInfo second = info_of(range.at(1) + 10, 10);
    EXPECT_EQ(first.base, range.at(0));
    EXPECT_EQ(second.base, range.at(1));
    EXPECT_EQ(second.length, kEach);
    EXPECT_NE(first.allocation, 0u);
    EXPECT_NE(second.allocation, 0u);
    EXPECT_NE(first.allocation, second.allocation);
    // What lies in two is neither.
    EXPECT_EQ(info_of(range.at(0) + 10, kEach).allocation, 0u);
    // Another one in its place.
    range.unmap(1);
    range.map(1);
    EXPECT_NE(info_of(range.at(1) + 10, 10).allocation, second.allocation);
}

// What an operation works on may not be freed, but another place of it may become another's.
TEST(CudaAllocations, OfVirtualMemoryHaveSeveralPlaces) {
    using cuda_test::VirtualRange;
    cuda_test::use_device(0);
    VirtualRange range(2);
    range.map(0);
    range.map_too(1, 0);
    const ucs::MemoryInfo twice = info_of(range.at(1), 10);
    const ucs::MemoryInfo worked_on = info_of(range.at(0), 10);
    const ucs::MemoryPiece piece{range.at(0), 10};
    ucs::StagedCopy* copy = nullptr;
    ASSERT_EQ(CudaMemory::get()->open_copy({&piece, 1}, &worked_on, &copy), UCS_OK);
    range.unmap(1);
    range.map(1);
    EXPECT_NE(info_of(range.at(1), 10).allocation, twice.allocation);
    ASSERT_EQ(copy->finish(), UCS_OK);
}

// Pools belong to a device: the context that their memory was copied in may go before it.
TEST(CudaAllocations, OutliveContexts) {
    CudaMemory& memory = *CudaMemory::get();
    cuda_test::use_device(0);
    memory.prepare();
    for (const Kind kind : {Kind::kPool, Kind::kVirtual}) {
        Buffer buffer(kind, kLength), host(Kind::kHeap, kLength);
        abi::Context own = nullptr;
        ASSERT_EQ(driver().context_create(&own, 0, 0), abi::kSuccess);
        host.fill(1);
        ASSERT_EQ(memory.copy(buffer.data(), host.data(), kLength), UCS_OK);
        ASSERT_EQ(driver().context_destroy(own), abi::kSuccess);
        cuda_test::use_device(0);
        host.clear();
        EXPECT_EQ(memory.copy(host.data(), buffer.data(), kLength), UCS_OK);
        EXPECT_TRUE(host.holds(1));
    }
}

// Threads of a program need not have a context, and those of another device must not be in the way.
TEST(CudaExports, AreMadeWhateverContextIsCurrent) {
    cuda_test::use_device(0);
    struct Case {
        Kind kind;
        HandleKind handle;
    };
    constexpr Case kCases[] = {{Kind::kDevice, HandleKind::kLegacy},
                               {Kind::kPool, HandleKind::kNone},
                               {Kind::kSharedPool, HandleKind::kPool},
                               {Kind::kVirtual, HandleKind::kNone},
                               {Kind::kSharedVirtual, HandleKind::kDescriptor},
                               {Kind::kManaged, HandleKind::kNone}};
    for (const Case& one : kCases) {
        const Buffer buffer(one.kind, kLength);
        std::thread([&] {
            ucs::MemoryExport description{};
            ASSERT_TRUE(
                CudaMemory::get()->export_memory(buffer.data() + 10, 100, nullptr, description));
            EXPECT_EQ(description.has_handle, static_cast<uint16_t>(one.handle));
            EXPECT_EQ(description.base + description.offset,
                      reinterpret_cast<uintptr_t>(buffer.data() + 10));
            EXPECT_GE(description.size, kLength);
        }).join();
    }
}

TEST(CudaExports, AFreedAllocationIsKnownToBe) {
    cuda_test::use_device(0);
    ucs::MemoryExport description{};
    {
        const Buffer buffer(Kind::kDevice, kLength);
        ASSERT_TRUE(CudaMemory::get()->export_memory(buffer.data(), kLength, nullptr, description));
        EXPECT_FALSE(CudaMemory::get()->is_freed(description.buffer, description.base));
    }
    const Buffer other(Kind::kDevice, kLength);
    EXPECT_TRUE(CudaMemory::get()->is_freed(description.buffer, description.base));
}

TEST(CudaExports, DescriptionsThatAreNotSoundAreRefused) {
    cuda_test::use_device(0);
    const Buffer buffer(Kind::kDevice, kLength);
    Buffer target(Kind::kDevice, 2 * kLength);
    ucs::MemoryExport sound{};
    ASSERT_TRUE(CudaMemory::get()->export_memory(buffer.data(), kLength, nullptr, sound));
    const auto fetch = [&](const ucs::MemoryExport& from, size_t length) {
        ucs::AsyncCopy* copy = nullptr;
        const ucs_status_t status =
            CudaMemory::get()->fetch({&from, 0, target.data(), length}, nullptr, &copy);
        while (status == UCS_OK && copy->test() == UCS_INPROGRESS) {
        }
        return status;
    };
    EXPECT_EQ(fetch(sound, kLength), UCS_OK);
    EXPECT_NE(fetch(sound, sound.size + 1), UCS_OK);
    ucs::MemoryExport other = sound;
    other.offset = sound.size + 1;
    EXPECT_NE(fetch(other, 1), UCS_OK);
    other = sound;
    other.size *= 1000;
    EXPECT_NE(fetch(other, kLength), UCS_OK);
    other = sound;
    ++other.buffer;
    EXPECT_NE(fetch(other, kLength), UCS_OK);
    other = sound;
    ++other.version;
    EXPECT_NE(fetch(other, kLength), UCS_OK);
}

}  // namespace
}  // namespace uct::cuda

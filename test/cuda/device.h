// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "uct/cuda/driver.h"

namespace cuda_test {

// Makes the stand-in the driver of this process, unless SWIFTLANE_TEST_GPU=real. Before all else.
void choose_driver();
bool is_real();
// As STAND_IN_CUDA_FAULTS; only on the stand-in.
void set_faults(const char* faults);
// How often this process has called a function of the driver's, "" for all; 0 on a real one.
uint64_t calls_of(const char* function);

inline const uct::cuda::Driver& driver() {
    return *uct::cuda::Driver::get();
}

// Throws, with the driver's name of the error, where a call did not succeed.
void check(uct::cuda::abi::Result result, const char* what);

// A function that the library itself does not use, as it is since that version. Throws.
void* driver_function(const char* name, int version);

// cuInit(), and a primary context of the device current on this thread.
uct::cuda::abi::Context use_device(uct::cuda::abi::Device device);
int device_count();

// "Shared" was made to be opened by other processes.
enum class Kind {
    kHeap,
    kPinned,
    kRegistered,
    kDevice,
    kPool,
    kSharedPool,
    kVirtual,
    kSharedVirtual,
    kManaged
};
inline constexpr Kind kAllKinds[] = {Kind::kHeap,    Kind::kPinned,        Kind::kRegistered,
                                     Kind::kDevice,  Kind::kPool,          Kind::kSharedPool,
                                     Kind::kVirtual, Kind::kSharedVirtual, Kind::kManaged};
const char* name_of(Kind kind);
inline bool is_on_device(Kind kind) {
    return kind >= Kind::kDevice;
}

// Memory of one kind, in the context that is current, with bytes that are known.
class Buffer {
  public:
    Buffer(Kind kind, size_t length);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    std::byte* data() const { return data_; }
    size_t length() const { return length_; }
    Kind kind() const { return kind_; }

    // Byte i becomes a function of i and the seed.
    void fill(uint32_t seed);
    void clear();
    std::vector<std::byte> bytes() const;
    // Do [first, first + length) hold what fill(seed) puts there, moved by `shift`?
    ::testing::AssertionResult holds(uint32_t seed, size_t first, size_t length,
                                     size_t shift = 0) const;
    ::testing::AssertionResult holds(uint32_t seed) const { return holds(seed, 0, length_); }
    static std::byte expected(uint32_t seed, size_t place);

  private:
    void set(const std::vector<std::byte>& bytes);

    const Kind kind_;
    const size_t length_;
    std::byte* data_ = nullptr;
    size_t mapped_ = 0;
    uct::cuda::abi::AllocationHandle handle_ = 0;
};

// Virtual memory: a range of addresses with room for some allocations, which come and go.
class VirtualRange {
  public:
    static constexpr size_t kEach = 2 << 20;

    explicit VirtualRange(size_t room);
    ~VirtualRange();
    VirtualRange(const VirtualRange&) = delete;

    std::byte* at(size_t place) const { return data_ + place * kEach; }
    // A new allocation at a place.
    void map(size_t place);
    // The one at another place, there as well.
    void map_too(size_t place, size_t other);
    // Whose last place it was is freed.
    void unmap(size_t place);
    // Bytes from a place on become those of Buffer::fill().
    void fill(size_t place, size_t length, uint32_t seed);
    ::testing::AssertionResult holds(size_t place, size_t length, uint32_t seed) const;

  private:
    void map(size_t place, uct::cuda::abi::AllocationHandle allocation);

    std::byte* data_ = nullptr;
    size_t room_;
    std::vector<bool> mapped_;
};

}  // namespace cuda_test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace softhca {

// Memory of NVIDIA GPUs that is registered with adapters of this process. The processor cannot
// touch it: payload from and to there is copied by the driver, which the program has loaded;
// without one nothing is memory of a GPU. Any thread.
namespace gpu {

// What a registration has of the allocation that it lies in: the number that the driver gives to no
// other. Once the program has freed it, nothing is copied there any more, whatever lies there then.
class Hold {
  public:
    Hold() = default;
    explicit Hold(uint64_t allocation) : allocation_(allocation) {}
    Hold(Hold&& other) noexcept : allocation_(std::exchange(other.allocation_, 0)) {}
    Hold& operator=(Hold&& other) noexcept {
        std::swap(allocation_, other.allocation_);
        return *this;
    }
    ~Hold();
    bool is_empty() const { return allocation_ == 0; }

  private:
    uint64_t allocation_ = 0;
};

enum class Kind {
    kHost,     // memory of the host, pinned or not; or there is nothing
    kGpu,      // memory of a GPU
    kManaged,  // moves between both: adapters cannot have it
    kPartly,   // begins in an allocation and reaches past its end
};
Kind kind_of(const void* address, size_t length);
// For memory of kind kGpu; also makes ready what copies need. @return empty: it is gone
Hold hold(const void* address, size_t length);

// All that was registered so far lies between these: others may, too.
extern std::atomic<uintptr_t> first_registered, end_registered;

inline bool may_hold(const void* address) {
    const auto place = reinterpret_cast<uintptr_t>(address);
    return place < end_registered.load(std::memory_order_relaxed) &&
           place >= first_registered.load(std::memory_order_relaxed);
}
// Was it memory of a GPU when it was registered, and has been freed since?
bool is_gone(const void* address);
// @return false: memory of a GPU that is gone, or its driver fails
bool copy_any(void* to, const void* from, size_t length);

}  // namespace gpu

// Copies between memory of the host and of GPUs; on return all bytes are there.
inline bool copy_memory(void* to, const void* from, size_t length) {
    if (gpu::may_hold(to) || gpu::may_hold(from)) [[unlikely]]
        return gpu::copy_any(to, from, length);
    std::memcpy(to, from, length);
    return true;
}

}  // namespace softhca

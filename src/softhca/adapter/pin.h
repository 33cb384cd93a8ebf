// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

namespace softhca {

// The pages that a registration holds in memory. As drivers of adapters count them: those of a
// process together, a page twice if two registrations have it, up to RLIMIT_MEMLOCK unless the
// process has CAP_IPC_LOCK.
class Pin {
  public:
    Pin() = default;
    Pin(Pin&& other) noexcept : pages_(std::exchange(other.pages_, 0)) {}
    Pin& operator=(Pin&& other) noexcept {
        std::swap(pages_, other.pages_);
        return *this;
    }
    ~Pin();
    // @return nothing: they would be more than the limit
    static std::optional<Pin> take(const void* addr, size_t length);

  private:
    explicit Pin(size_t pages) : pages_(pages) {}
    size_t pages_ = 0;
};

}  // namespace softhca

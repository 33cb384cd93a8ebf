// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace ucp {

// Dedicated queue pairs that all workers of a context may have together: an adapter keeps the
// state of so many at hand. Any thread.
class QueuePairBudget {
  public:
    // One queue pair's part of the budget, from before it is made until after it is destroyed.
    class Share {
      public:
        Share() = default;
        // Takes one, if there is one left.
        explicit Share(QueuePairBudget& budget) : budget_(budget.take() ? &budget : nullptr) {}
        Share(Share&& other) noexcept : budget_(std::exchange(other.budget_, nullptr)) {}
        Share& operator=(Share&& other) noexcept {
            give_back();
            budget_ = std::exchange(other.budget_, nullptr);
            return *this;
        }
        ~Share() { give_back(); }

        explicit operator bool() const { return budget_ != nullptr; }
        void give_back() {
            if (budget_ != nullptr) budget_->taken_.fetch_sub(1, std::memory_order_relaxed);
            budget_ = nullptr;
        }

      private:
        QueuePairBudget* budget_ = nullptr;
    };

    // @param most  UINT32_MAX: any number
    explicit QueuePairBudget(uint32_t most) : most_(most) {}
    QueuePairBudget(const QueuePairBudget&) = delete;

    uint32_t left() const { return most_ - taken_.load(std::memory_order_relaxed); }

  private:
    bool take() {
        uint32_t taken = taken_.load(std::memory_order_relaxed);
        while (taken < most_) {
            if (taken_.compare_exchange_weak(taken, taken + 1, std::memory_order_relaxed))
                return true;
        }
        return false;
    }

    const uint32_t most_;
    std::atomic<uint32_t> taken_{0};
};

}  // namespace ucp

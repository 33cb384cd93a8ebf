// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ucs/memory/detector.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/mappings.h"
#include "uct/cuda/staging.h"

namespace uct::cuda {

class DirectQueue;
class DirectCopies;

// A mapping that copies under way take: it is taken once, and given back when the last of them has
// ended.
struct MappingUse {
    Mapping* mapping = nullptr;  // null: of no use now
    unsigned copies = 0;
};

// One copy out of memory that was described, or into it. The other side is device memory or pinned
// memory, or else host memory that is copied through a few chunks of staging memory, of which the
// processor empties or fills one while the device is busy with the others.
class DirectCopy final : public ucs::AsyncCopy {
  public:
    struct Plan {
        CopyContext* context = nullptr;
        MappingUse* way = nullptr;  // to one side; null: both are memory of this process
        Direction direction = Direction::kWithin;
        std::byte* to = nullptr;
        const std::byte* from = nullptr;
        size_t length = 0;
    };

    explicit DirectCopy(DirectCopies& owner) : owner_(owner) {}

    const Plan& plan() const { return plan_; }
    // @param queue  where it waits for handed_over(); null: begin_in_windows() follows, since the
    //  host's side is not pinned
    void open(const Plan& plan, DirectQueue* queue) {
        plan_ = plan;
        queue_ = queue;
        wait_with(queue);
    }
    ucs_status_t begin_in_windows(StagingPool& staging);
    // Begun by somebody else, or not. @param list  staging memory that is this copy's from now on,
    //  or null
    void handed_over(ucs_status_t status, const CopyContext::Ticket& ticket, std::byte* list);
    // Or the resident kernel has it.
    void handed_over(Resident& resident, uint32_t number);

    ucs_status_t test() override;
    ucs_status_t end() override;
    // After the end: gives back what it took.
    void close(StagingPool& staging) {
        if (list_ != nullptr) staging.put(std::exchange(list_, nullptr));
        if (state_.load(std::memory_order_relaxed) == State::kInWindows) close_windows(staging);
        state_.store(State::kWaiting, std::memory_order_relaxed);
        wait_with(nullptr);
        await(nullptr, 0);
        tests_ = 0;
    }

  private:
    // Of test(); a poll() that looks at the device's word alone is none.
    static constexpr uint32_t kTestsPerQuery = 1024;

    enum class State : uint8_t { kWaiting, kBegun, kResident, kInWindows, kFailed };
    struct Window {
        std::byte* chunk = nullptr;
        size_t length = 0;  // 0: nothing was begun
        CopyContext::Ticket ticket;
    };
    struct Windows {
        static constexpr size_t kCount = 4;
        Window windows[kCount];
        unsigned turn = 0;                // the window that ends next
        size_t begun = 0, delivered = 0;  // bytes, of which the device was told, and that are there
    };

    // @param tests  that this one stands for
    ucs_status_t ask(const CopyContext::Ticket& ticket, uint32_t tests);
    // Is it time to ask the driver?
    bool is_due(uint32_t tests) {
        tests_ += tests;
        if (tests_ < kTestsPerQuery) return false;
        tests_ = 0;
        return true;
    }
    ucs_status_t ask_resident();
    ucs_status_t test_windows();
    ucs_status_t fill(Window& window);
    void wait_for_windows();
    void close_windows(StagingPool& staging);

    // What is polled comes first.
    std::atomic<State> state_{State::kWaiting};
    uint32_t tests_ = 0;
    CopyContext::Ticket ticket_;
    DirectQueue* queue_ = nullptr;
    Plan plan_;
    DirectCopies& owner_;
    std::byte* list_ = nullptr;
    Resident* resident_ = nullptr;
    uint32_t number_ = 0;  // of the resident kernel's
    ucs_status_t status_ = UCS_OK;
    std::unique_ptr<Windows> windows_;  // kept for the next that goes in windows
};

}  // namespace uct::cuda

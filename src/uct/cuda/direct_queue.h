// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "ucs/sys/spin_lock.h"
#include "uct/cuda/copy_engine.h"
#include "uct/cuda/direct_copy.h"
#include "uct/cuda/staging.h"

namespace uct::cuda {

// The copies of one context in one direction that wait to be handed to the device.
//
// Those that are begun in one turn of the program's progress are handed over together when the
// first of them is asked for: many short ones by one kernel, since each copy of the copy engine
// costs 2 us, long ones one by one. While some are under way, a few short ones wait for company,
// until those have ended. Any thread.
class DirectQueue {
  public:
    DirectQueue(CopyContext& context, Direction direction, StagingPool& staging)
        : context_(context), direction_(direction), staging_(staging) {}
    DirectQueue(DirectQueue&&) = delete;

    bool is_of(const CopyContext& context, Direction direction) const {
        return &context_ == &context && direction_ == direction;
    }
    // Between devices, one stream and the other in turn: what is in one begins while the end of
    // what is in the other is still under way.
    Direction next_stream();
    // From now on the copy waits.
    void add(DirectCopy& copy) {
        const size_t length = copy.plan().length;
        std::lock_guard lock(lock_);
        waiting_.push_back(&copy);
        bytes_ += length;
        const bool is_long = length > kLongPiece || bytes_ >= kCompanyBytes;
        const size_t before = company_.load(std::memory_order_relaxed);
        company_.store(is_long ? kCompany : std::min(before + 1, kCompany),
                       std::memory_order_relaxed);
    }
    // Hand over what waits, unless it gains by waiting longer.
    void flush();

  private:
    // From so many pieces on a kernel copies them.
    static constexpr size_t kLeastList = 4;
    // So many, or so many bytes, need no further company.
    static constexpr size_t kCompany = 32, kCompanyBytes = 16 << 20;
    // Pieces that are longer on average belong to the copy engine.
    static constexpr size_t kLongPiece = 4 << 20, kLongHostPiece = 512 << 10;
    // A kernel's blocks have something to do each: longer pieces are cut.
    static constexpr size_t kLeastCut = 4096, kParts = 264;

    // The copy that was handed over last. 0: none
    struct alignas(8) Latest {
        uint32_t number = 0;
        Direction stream = Direction::kWithin;
    };

    void set_latest(const CopyContext::Ticket& ticket) {
        latest_.store({ticket.number, ticket.direction}, std::memory_order_relaxed);
    }
    bool is_busy() const;
    bool holds_back() const;
    void take_waiting();
    void hand_to(Resident& resident);
    bool begin_list();
    void begin_singles();

    CopyContext& context_;
    const Direction direction_;
    StagingPool& staging_;
    std::atomic<unsigned> next_{0};
    std::atomic<Latest> latest_{};
    // How many wait, or kCompany if they are long.
    std::atomic<size_t> company_{0};

    std::mutex handing_over_;               // is for one thread at a time
    std::vector<DirectCopy*> handed_over_;  // those that are now

    ucs::SpinLock lock_;  // of what follows
    std::vector<DirectCopy*> waiting_;
    size_t bytes_ = 0;  // of those
};

}  // namespace uct::cuda

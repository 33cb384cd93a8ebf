// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>

namespace ucp {

// What an endpoint knows of ucp_worker_fence(): one-sided operations behind a fence follow those
// before it. A transport orders those of one lane; an operation on another lane has to wait until
// the lanes that carried earlier ones are flushed. Sets of lanes are bits.
class OneSidedFence {
  public:
    // @param sequence  fences of the worker so far (EndpointHost::fence_sequence)
    explicit OneSidedFence(uint32_t sequence) : seen_(sequence) {}

    // The fence that operations obey by now.
    uint32_t seen() const { return seen_; }
    bool has_seen(uint32_t sequence) const { return seen_ == sequence; }
    // Lanes with operations before seen() that may not be done yet.
    uint8_t before() const { return before_; }
    // Lanes with operations since then.
    uint8_t since() const { return since_; }
    // Lanes with operations that those behind fence `sequence` follow.
    uint8_t before(uint32_t sequence) const {
        return has_seen(sequence) ? before_ : static_cast<uint8_t>(before_ | since_);
    }
    // Nothing has to be waited for.
    bool is_passed(uint32_t sequence) const { return has_seen(sequence) && before_ == 0; }

    // An operation was posted on that lane.
    void use(uint8_t lane) { since_ |= lane; }
    // All that the lanes have carried is done.
    void forget(uint8_t lanes) {
        since_ &= static_cast<uint8_t>(~lanes);
        before_ &= static_cast<uint8_t>(~lanes);
    }
    // What the lanes have carried before seen() need not be waited for.
    void pass(uint8_t lanes) { before_ &= static_cast<uint8_t>(~lanes); }
    // A flush of all lanes of before() is done, which was begun when seen() was `sequence`.
    void flushed(uint32_t sequence) {
        if (has_seen(sequence)) before_ = 0;
    }
    // Operations obey the fences up to this one from now on.
    void obey(uint32_t sequence) {
        before_ |= since_;
        since_ = 0;
        seen_ = sequence;
        // For what this processor did in mapped memory, which no lane's fence orders.
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }

  private:
    uint32_t seen_;
    uint8_t before_ = 0;
    uint8_t since_ = 0;
};

}  // namespace ucp

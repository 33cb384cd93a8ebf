// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace softhca {

// What goes wrong on purpose. Chances are drawn from a generator of its own, so that the same seed
// gives the same faults. Counts are 1-based: the n-th such call since the plan was set.
struct FaultPlan {
    double drop = 0;             // chance that a message (or its retransmission) is lost
    double delay = 0;            // chance that a message is held up
    uint64_t delay_ns = 0;       // for how long
    double ud_drop = 0;          // chance that a datagram is lost, beside `drop`
    double ud_duplicate = 0;     // chance that a datagram arrives twice
    double ud_delay = 0;         // chance that a datagram is overtaken by later ones
    uint64_t ud_delay_ns = 0;    // by up to so much
    uint64_t kill_qp_after = 0;  // the n-th executed operation moves its QP to ERR
    uint64_t fail_post = 0;      // the n-th posted send request fails with ENOMEM
    uint64_t fail_post_every = 0;
    uint64_t fail_create = 0;    // the n-th creation of an object fails with ENOMEM
    uint64_t link_down_at = 0;   // the port is down from the n-th executed operation on
    uint64_t link_down_for = 0;  // operations after which it is up again; 0: never
    uint64_t die_at = 0;         // the process kills itself at the n-th executed operation
    uint64_t seed = 1;

    // Reads "drop=0.01,delay=0.1:5000,kill_qp=7,..." (docs/emulated-adapter.md).
    // @return false, with the offending part in `error`, if it is malformed.
    static bool parse(std::string_view text, FaultPlan* plan, std::string* error);
    // SOFTHCA_FAULTS; a malformed one is reported on stderr and ignored.
    static FaultPlan from_environment();

    bool active() const;
};

// Draws from a plan. Any thread, at any time.
class FaultInjector {
  public:
    void set(const FaultPlan& plan);
    bool active() const { return active_.load(std::memory_order_relaxed); }

    bool drop_message() { return happens(&FaultPlan::drop); }
    uint64_t message_delay_ns();
    bool drop_datagram() { return happens(&FaultPlan::ud_drop); }
    bool duplicate_datagram() { return happens(&FaultPlan::ud_duplicate); }
    // By how much a datagram comes later than it would; 0: it keeps its place.
    uint64_t datagram_delay_ns();
    bool fail_post();
    bool fail_create();

    enum class Fate { kNothing, kKillQp, kLinkDown };
    // Called once for each operation that an adapter begins to execute. May not return.
    Fate operation();

  private:
    bool happens(double FaultPlan::*probability);
    uint64_t draw();
    bool chance(double p) { return p > 0 && double(draw() >> 11) * 0x1p-53 < p; }

    std::mutex mutex_;
    FaultPlan plan_;
    std::atomic<bool> active_{false};
    uint64_t state_ = 1;
    uint64_t posts_ = 0;
    uint64_t creates_ = 0;
    uint64_t operations_ = 0;
};

}  // namespace softhca

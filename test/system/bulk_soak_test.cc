// SPDX-License-Identifier: BSD-3-Clause

// Transfers of random sizes, several at a time, with 0 and 4 threads, while queue pairs fail or
// take no requests, and endpoints are promoted and demoted. BULK_SOAK_SECONDS is how long; 0: a
// moment.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

#include "system/host_pair.h"

namespace ucp::test {
namespace {

using namespace std::chrono_literals;

constexpr size_t kSlots = 6, kSlotLength = 768 << 10;
constexpr uint8_t kGuard = 0x5a;

// One pair of that seed: each slot of the memory has an operation under way at any time.
class Soak {
  public:
    Soak(uint64_t seed, unsigned workers)
        : random_(seed), pair_(options(workers)), seed_(seed), workers_(workers) {}

    void run() {
        pair_.promote();
        for (size_t index = 0; index < kSlots; ++index) start(index);
        for (unsigned round = 0; round < 12 && !has_failed(); ++round) {
            disturb();
            for (unsigned count = below(200); count != 0; --count) pair_.step();
            for (size_t index = 0; index < kSlots && !has_failed(); ++index) {
                if (slots_[index].operation->ends == 0) continue;
                end(index);
                start(index);
            }
        }
        calm();
        for (size_t index = 0; index < kSlots; ++index) {
            ASSERT_TRUE(pair_.until([&] { return slots_[index].operation->ends != 0; }))
                << "seed " << seed_ << ", " << workers_ << " threads";
            end(index);
        }
        for (unsigned count = 0; count < 500; ++count) pair_.step();
        if (!has_failed()) {
            EXPECT_EQ(pair_.inner(0).bulk().transfers_in_use(), 0u);
        }
        if (pair_.pool(0) != nullptr) {
            EXPECT_EQ(pair_.pool(0)->shared_transfers.in_use(), 0u);
        }
    }

  private:
    struct Slot {
        HostOperation* operation = nullptr;
        size_t length = 0;
        bool is_put = false;
    };

    static softhca::FaultInjector& faults() { return softhca::HostFabric::instance()->faults; }
    HostPair::Options options(unsigned workers) {
        HostPair::Options options;
        options.workers = workers;
        options.shards = below(2) == 0 ? 1 : 4;
        options.qps = 1 + below(8);
        options.length = kSlots * kSlotLength;
        options.window = size_t{128 << 10} << below(6);
        options.slice = size_t{8 << 10} << below(4);
        options.stall_timeout = 20ms;
        return options;
    }
    unsigned below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }
    // A queue pair of the lane itself failed: its endpoint did, too, and with it all transfers.
    bool has_failed() const { return unwrap(pair_.endpoint(0)).is_failed(); }
    uint8_t* here(size_t slot) { return pair_.here.data() + slot * kSlotLength; }
    uint8_t* there(size_t slot) { return pair_.there.data() + slot * kSlotLength; }

    void start(size_t index) {
        Slot& slot = slots_[index];
        slot.is_put = below(2) == 0;
        slot.length = (64 << 10) + below(kSlotLength - (64 << 10));
        const auto bytes = pattern(slot.length, random_());
        // Whatever comes late falls on bytes that are looked at.
        std::fill_n(slot.is_put ? there(index) : here(index), kSlotLength, kGuard);
        std::copy(bytes.begin(), bytes.end(), slot.is_put ? here(index) : there(index));
        const size_t offset = index * kSlotLength;
        slot.operation = slot.is_put ? &pair_.start_put(offset, slot.length)
                                     : &pair_.start_get(offset, slot.length);
    }

    void end(size_t index) {
        const Slot& slot = slots_[index];
        EXPECT_EQ(slot.operation->ends, 1u);
        if (slot.operation->status != UCS_OK) {
            EXPECT_TRUE(has_failed()) << "seed " << seed_ << ", " << workers_
                                      << " threads: " << ucs_status_string(slot.operation->status);
            return;
        }
        EXPECT_EQ(std::memcmp(here(index), there(index), slot.length), 0)
            << "seed " << seed_ << ", " << workers_ << " threads";
        const uint8_t* rest = (slot.is_put ? there(index) : here(index)) + slot.length;
        EXPECT_TRUE(is_all({rest, kSlotLength - slot.length}, kGuard));
    }

    void calm() { faults().set({}); }

    void disturb() {
        softhca::FaultPlan plan;
        plan.seed = random_();
        switch (below(6)) {
            case 0:
                plan.kill_qp_after = 1 + below(100);
                break;
            case 1:
                plan.drop = 0.2;
                break;
            case 2:
                // A post that fails on the lane itself ends its transfer.
                if (workers_ != 0) plan.fail_post = 1 + below(100);
                break;
            case 3:
                (void)ucpx_ep_lanes_request(pair_.endpoint(0), UCPX_LANE_POLICY_SCALABLE);
                return;
            case 4:
                (void)ucpx_ep_lanes_request(pair_.endpoint(0), UCPX_LANE_POLICY_DEDICATED);
                return;
            default:
                return;
        }
        faults().set(plan);
        // What fails is a queue pair's if only threads run.
        if (workers_ != 0) {
            HostPair::await([&] { return pair_.pool(0)->events.any(); }, 1s);
        } else {
            for (unsigned count = below(50); count != 0; --count) pair_.step();
        }
        calm();
    }

    std::mt19937_64 random_;
    HostPair pair_;
    const uint64_t seed_;
    const unsigned workers_;
    std::array<Slot, kSlots> slots_;
};

TEST(BulkSoak, TransfersOfAllSizesSurviveTheirQueuePairsWithAndWithoutThreads) {
    const char* text = std::getenv("BULK_SOAK_SECONDS");
    const auto limit = std::chrono::seconds(text == nullptr ? 3 : std::atoi(text));
    const auto start = std::chrono::steady_clock::now();
    const uint64_t least = limit == 0s ? 1 : 2;
    for (uint64_t seed = 1; seed <= least || std::chrono::steady_clock::now() - start < limit;
         ++seed) {
        for (const unsigned workers : {0, 4}) {
            Soak(seed, workers).run();
            if (HasFailure()) return;
        }
    }
}

}  // namespace
}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause

// Transfers of random sizes, several at a time, while rails break, fall silent, lose their link and
// come back. BULK_SOAK_SECONDS is how long; 0: a moment.

#include <chrono>
#include <cstdlib>
#include <random>

#include "ucp/bulk/engine/engine.h"
#include "unit/ucp/bulk/engine/two_rails.h"

namespace ucp::bulk::test {
namespace {

using namespace std::chrono_literals;
using Device = uct::mock::Fabric::Device;
using ucp::test::Cluster;

constexpr size_t kSlots = 6, kSlotLength = 160 << 10;

// One world of that seed: each slot of the memory has an operation under way at any time.
void run(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t bound) { return random() % bound; };
    Cluster::Options options = BulkCluster::options(3);
    options.seed = seed;
    options.fabric.seed = seed;
    options.fabric.no_resource_probability = below(2) == 0 ? 0 : 0.1;
    options.fabric.transmit_depth = 4 + static_cast<unsigned>(below(40));
    options.config.bulk_stall_timeout = 300us;
    options.config.bulk_retry_interval = 100us;
    options.config.bulk_max_retries = 1000;
    options.tick = 4us;
    BulkCluster pair(kSlots * kSlotLength, options);
    struct Slot {
        ucs_status_ptr_t operation = nullptr;
        size_t length = 0;
        bool is_put = false;
    };
    Slot slots[kSlots];
    const auto here = [&](size_t slot) { return pair.here.data() + slot * kSlotLength; };
    const auto there = [&](size_t slot) { return pair.there.data() + slot * kSlotLength; };
    const auto start = [&](size_t index) {
        Slot& slot = slots[index];
        slot.is_put = below(2) == 0;
        slot.length = 1 + below(kSlotLength);
        const auto bytes = ucp::test::pattern(slot.length, random());
        // Whatever comes late falls on bytes that are looked at.
        std::fill_n(slot.is_put ? there(index) : here(index), kSlotLength, 0x5a);
        std::copy(bytes.begin(), bytes.end(), slot.is_put ? here(index) : there(index));
        slot.operation = slot.is_put
                             ? ucp_put_nbx(pair.endpoint, here(index), slot.length,
                                           pair.remote(index * kSlotLength), pair.key, &kNothing)
                             : ucp_get_nbx(pair.endpoint, here(index), slot.length,
                                           pair.remote(index * kSlotLength), pair.key, &kNothing);
    };
    const auto end = [&](size_t index) {
        Slot& slot = slots[index];
        if (UCS_PTR_IS_PTR(slot.operation)) {
            ASSERT_EQ(ucp_request_check_status(slot.operation), UCS_OK) << "seed " << seed;
            ucp_request_free(slot.operation);
        }
        // A put of the usual kind is over for its sender before its bytes are there.
        if (slot.is_put && slot.length < 8192) {
            ASSERT_EQ(pair.cluster.finish(ucp_ep_flush_nbx(pair.endpoint, &kNothing)), UCS_OK);
        }
        ASSERT_EQ(std::memcmp(here(index), there(index), slot.length), 0) << "seed " << seed;
        const uint8_t* rest = (slot.is_put ? there(index) : here(index)) + slot.length;
        ASSERT_TRUE(std::all_of(rest, rest + kSlotLength - slot.length,
                                [](uint8_t byte) { return byte == 0x5a; }));
    };
    for (size_t index = 0; index < kSlots; ++index) start(index);
    const unsigned home = pair.home();
    for (unsigned rounds = 0; rounds < 40; ++rounds) {
        unsigned device = static_cast<unsigned>(below(3));
        if (device == home) device = (device + 1) % 3;
        switch (below(4)) {
            case 0:
                pair.cluster.fabric.set_device(device, Device::kBroken);
                break;
            case 1:
                pair.cluster.fabric.set_device(device, Device::kSilent);
                break;
            case 2:
                pair.cluster.fabric.set_device(device, Device::kSilent);
                pair.cluster.fabric.set_link(device, false);
                break;
            default:
                for (unsigned each = 0; each < 3; ++each) {
                    pair.cluster.fabric.set_device(each, Device::kWell);
                    pair.cluster.fabric.set_link(each, true);
                }
        }
        pair.cluster.steps(static_cast<unsigned>(below(300)));
        for (size_t index = 0; index < kSlots; ++index) {
            const ucs_status_ptr_t operation = slots[index].operation;
            if (UCS_PTR_IS_PTR(operation) &&
                ucp_request_check_status(operation) == UCS_INPROGRESS) {
                continue;
            }
            end(index);
            if (testing::Test::HasFatalFailure()) return;
            start(index);
        }
    }
    for (unsigned each = 0; each < 3; ++each) {
        pair.cluster.fabric.set_device(each, Device::kWell);
        pair.cluster.fabric.set_link(each, true);
    }
    for (size_t index = 0; index < kSlots; ++index) {
        const ucs_status_ptr_t operation = slots[index].operation;
        ASSERT_TRUE(!UCS_PTR_IS_PTR(operation) || pair.cluster.until([&] {
            return ucp_request_check_status(operation) != UCS_INPROGRESS;
        })) << "seed "
            << seed;
        end(index);
        if (testing::Test::HasFatalFailure()) return;
    }
    pair.cluster.steps(500);
    EXPECT_EQ(pair.cluster.inner(0).bulk().transfers_in_use(), 0u);
    EXPECT_EQ(pair.cluster.inner(0).bulk().chains_in_use(), 0u);
}

TEST(Soak, TransfersOfAllSizesSurviveTheirRails) {
    const char* text = std::getenv("BULK_SOAK_SECONDS");
    const auto limit = std::chrono::seconds(text == nullptr ? 5 : std::atoi(text));
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t seed = 1; seed <= 8 || std::chrono::steady_clock::now() - start < limit; ++seed) {
        run(seed);
        if (HasFatalFailure()) break;
    }
}

}  // namespace
}  // namespace ucp::bulk::test

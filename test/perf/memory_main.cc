// SPDX-License-Identifier: BSD-3-Clause

// Heap that an idle endpoint over dc_mlx5 takes: with 100 and with 10,100 endpoints to distinct
// workers at one remote port. Fails if it is more than the limit, or if the tracker grows.

#include <malloc.h>

#include <cstdio>

#include "perf/pair.h"
#include "ucp/lanes/driver/lane_driver.h"

namespace {

constexpr size_t kFew = 100;
constexpr size_t kMany = 10000;
constexpr size_t kLimit = 280;  // bytes of heap, the allocator's own included

size_t heap() {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

}  // namespace

int main() {
    perf::Pair pair;
    ucp::Worker& worker = pair.worker(0);
    perf::require(worker.lanes().tracker() != nullptr, "a tracker");
    uint64_t uuid = 1;
    const auto add = [&](size_t count) {
        for (; count != 0; --count) pair.connect_to(uuid++);
        for (int round = 0; round < 100; ++round) pair.step(std::chrono::milliseconds(1));
    };
    add(kFew);
    const size_t before = heap();
    const size_t tracker_before = worker.lanes().tracker()->memory_bytes();
    add(kMany);
    const size_t after = heap();
    const double each = static_cast<double>(after - before) / kMany;
    std::printf("heap of one idle endpoint: %.1f bytes, limit %zu (%zu with %zu, %zu with %zu)\n",
                each, kLimit, before, kFew, after, kFew + kMany);
    std::printf("tracker: %zu bytes with %zu endpoints, %zu with %zu\n", tracker_before, kFew,
                worker.lanes().tracker()->memory_bytes(), kFew + kMany);
    perf::require(each <= kLimit, "bytes of an endpoint");
    perf::require(worker.lanes().tracker()->memory_bytes() == tracker_before,
                  "a tracker whose size does not depend on the endpoints");
    return 0;
}

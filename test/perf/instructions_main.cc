// SPDX-License-Identifier: BSD-3-Clause

// What instructions.py runs under callgrind: the functions whose names begin with perf_measured_
// are counted. Arguments: the state of the tracker (off, disarmed, armed) and the lane (dc, rc,
// fifo, ring).

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "perf/pair.h"
#include "ucp/api/ucpx.h"
#include "ucp/core/handles.h"
#include "ucp/core/worker.h"

namespace {

constexpr unsigned kRounds = 64;
constexpr unsigned kBurst = 16;
constexpr ucp_tag_t kTag = 7;

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_send(ucp_ep_h endpoint,
                                                                 const uint64_t* value,
                                                                 const ucp_request_param_t* param) {
    return ucp_tag_send_nbx(endpoint, value, sizeof(*value), kTag, param);
}

extern "C" [[gnu::noinline]] unsigned perf_measured_progress(ucp_worker_h worker) {
    return ucp_worker_progress(worker);
}

extern "C" [[gnu::noinline]] ucs_status_ptr_t perf_measured_receive(
    ucp_worker_h worker, uint64_t* value, const ucp_request_param_t* param) {
    return ucp_tag_recv_nbx(worker, value, sizeof(*value), kTag, ~ucp_tag_t{0}, param);
}

ucs_status_ptr_t receive(ucp_worker_h worker, uint64_t* value, const ucp_request_param_t* param) {
    return ucp_tag_recv_nbx(worker, value, sizeof(*value), kTag, ~ucp_tag_t{0}, param);
}

bool is_armed(perf::Pair& pair) {
    return (pair.worker(0).gate() & ucp::Worker::kGateTracker) != 0;
}

void promote(perf::Pair& pair, ucp_ep_h endpoint) {
    perf::require(ucpx_ep_lanes_request(endpoint, UCPX_LANE_POLICY_DEDICATED) == UCS_OK,
                  "request of a lane");
    ucpx_ep_attr_t attr{};
    attr.field_mask = UCPX_EP_ATTR_FIELD_STATE;
    for (int count = 0; attr.state != UCPX_LANE_STATE_ESTABLISHED; ++count) {
        perf::require(count < 100000, "the dedicated lane");
        pair.step(std::chrono::microseconds(1));
        ucpx_ep_query(endpoint, &attr);
    }
}

/** One burst: receives first, then sends, then the progress that matches them. */
void exchange(perf::Pair& pair, ucp_ep_h endpoint, bool measured) {
    const ucp_request_param_t none{};
    uint64_t sent[kBurst], received[kBurst];
    ucs_status_ptr_t receives[kBurst];
    for (unsigned i = 0; i < kBurst; ++i) {
        sent[i] = i + 1;
        received[i] = 0;
        receives[i] = measured ? perf_measured_receive(pair.handle(1), &received[i], &none)
                               : receive(pair.handle(1), &received[i], &none);
    }
    for (unsigned i = 0; i < kBurst; ++i) {
        const ucs_status_ptr_t status =
            measured ? perf_measured_send(endpoint, &sent[i], &none)
                     : ucp_tag_send_nbx(endpoint, &sent[i], sizeof(sent[i]), kTag, &none);
        perf::require(status == nullptr, "a short message goes at once");
    }
    pair.run_adapters();
    if (measured) perf_measured_progress(pair.handle(1));
    pair.drain();
    for (unsigned i = 0; i < kBurst; ++i) {
        perf::require(received[i] == sent[i], "a message arrives");
        ucp_request_free(receives[i]);
    }
}

}  // namespace

int main(int argc, char** argv) {
    perf::require(argc == 3, "arguments: off|disarmed|armed dc|rc|fifo|ring");
    const std::string_view tracker = argv[1], lane = argv[2];
    const bool is_shared_memory = lane == "fifo" || lane == "ring";
    perf::Pair pair(
        2, is_shared_memory ? perf::Pair::Over::kSharedMemory : perf::Pair::Over::kAdapters);
    const ucp_ep_h endpoint = pair.connect();
    for (unsigned round = 0; round < 4; ++round) exchange(pair, endpoint, false);
    if (lane == "rc" || lane == "ring") promote(pair, endpoint);
    if (tracker != "off") {
        // Past one window at least, so that the tracker has known the endpoint.
        for (const bool wanted : {true, false}) {
            while (is_armed(pair) != wanted) pair.step(std::chrono::microseconds(100));
            exchange(pair, endpoint, false);
        }
        while (is_armed(pair) != (tracker == "armed")) pair.step(std::chrono::microseconds(100));
    }
    perf::require(is_armed(pair) == (tracker == "armed"), "state of the tracker");
    exchange(pair, endpoint, false);
    for (unsigned round = 0; round < kRounds; ++round) exchange(pair, endpoint, true);
    perf::require(ucp::unwrap(endpoint).fits_short(sizeof(uint64_t)), "the short protocol");
    std::printf("%u\n", kRounds * kBurst);
    return 0;
}

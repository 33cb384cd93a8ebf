// SPDX-License-Identifier: BSD-3-Clause

// sleeper
//
// A worker that waits for messages of another one of its process, over the scalable lane and then
// over a dedicated one: while nothing comes its thread sleeps, and every message wakes it.

#include <fmt/format.h>
#include <poll.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "ucp/api/ucp.h"
#include "ucp/api/ucpx.h"

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr unsigned kMessages = 10;
constexpr auto kPause = std::chrono::milliseconds(300);
constexpr auto kLimit = std::chrono::seconds(60);
// Of the time that it waits; what wakes it costs milliseconds on an emulated processor.
constexpr double kMostOfACore = 0.25;
// Some wake-ups each message: it, its acknowledgement, timers. Polling would be thousands.
constexpr unsigned kMostTurns = 40 * kMessages;

[[noreturn]] void give_up(const char* what) {
    fmt::print(stderr, "{}\n", what);
    std::exit(1);
}

double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

struct Side {
    ucp_context_h context = nullptr;
    ucp_worker_h worker = nullptr;
    ucp_ep_h endpoint = nullptr;
    std::atomic<unsigned> received{0};
    std::atomic<bool> stops{false};
    unsigned turns = 0;
    double cpu = 0;

    Side() {
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        ucp_worker_params_t worker_params{};
        if (ucp_init(&params, nullptr, &context) != UCS_OK ||
            ucp_worker_create(context, &worker_params, &worker) != UCS_OK) {
            give_up("the library does not start");
        }
        ucp_am_handler_param_t handler{};
        handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                             UCP_AM_HANDLER_PARAM_FIELD_ARG;
        handler.id = 1;
        handler.arg = this;
        handler.cb = [](void* arg, const void*, size_t, void*, size_t,
                        const ucp_am_recv_param_t*) -> ucs_status_t {
            ++static_cast<Side*>(arg)->received;
            return UCS_OK;
        };
        if (ucp_worker_set_am_recv_handler(worker, &handler) != UCS_OK) give_up("handler");
    }
    void connect(const Side& other) {
        ucp_worker_attr_t attributes{};
        attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
        if (ucp_worker_query(other.worker, &attributes) != UCS_OK) give_up("address");
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = attributes.address;
        if (ucp_ep_create(worker, &params, &endpoint) != UCS_OK) give_up("endpoint");
        ucp_worker_release_address(other.worker, attributes.address);
    }
    void send() {
        ucp_request_param_t parameters{};
        void* request = ucp_am_send_nbx(endpoint, 1, nullptr, 0, nullptr, 0, &parameters);
        if (UCS_PTR_IS_ERR(request)) give_up("send");
        if (request != nullptr) ucp_request_free(request);
    }
    ucpx_lane_state_t state() const {
        ucpx_ep_attr_t attributes{};
        attributes.field_mask = UCPX_EP_ATTR_FIELD_STATE;
        ucpx_ep_query(endpoint, &attributes);
        return attributes.state;
    }
    // The thread of the one that sleeps.
    void sleep_and_progress() {
        const double start = cpu_seconds();
        while (!stops) {
            while (ucp_worker_progress(worker) != 0) {
            }
            ++turns;
            if (ucp_worker_wait(worker) != UCS_OK) give_up("wait");
        }
        cpu = cpu_seconds() - start;
    }
    void progress_for(Clock::duration time) {
        for (const auto end = Clock::now() + time; Clock::now() < end;) {
            if (ucp_worker_progress(worker) == 0) poll(nullptr, 0, 1);
        }
    }
};

// @return true if all came while the receiver slept between them
bool check(Side& near, Side& far, const char* lane) {
    far.stops = false;
    far.turns = 0;
    const unsigned before = far.received;
    const auto start = Clock::now();
    std::thread sleeping([&] { far.sleep_and_progress(); });
    Seconds slowest{0};
    for (unsigned count = 1; count <= kMessages; ++count) {
        near.progress_for(kPause);
        const auto sent = Clock::now();
        near.send();
        while (far.received < before + count) {
            if (Clock::now() - sent > kLimit) give_up("a message woke nobody");
            near.progress_for(std::chrono::milliseconds(1));
        }
        slowest = std::max(slowest, Seconds(Clock::now() - sent));
    }
    far.stops = true;
    ucp_worker_signal(far.worker);
    sleeping.join();
    const double part = far.cpu / Seconds(Clock::now() - start).count();
    fmt::print(
        "figure: waiting over {}: {:.1f} % of a core, {} wake-ups for {} messages, the slowest "
        "after {:.1f} ms\n",
        lane, part * 100, far.turns, kMessages, slowest.count() * 1000);
    return part <= kMostOfACore && far.turns <= kMostTurns;
}

}  // namespace

int main() {
    Side near, far;
    near.connect(far);
    far.connect(near);
    const auto both_progress = [&] {
        if (ucp_worker_progress(near.worker) + ucp_worker_progress(far.worker) == 0) {
            poll(nullptr, 0, 1);
        }
    };
    near.send();
    const auto limit = Clock::now() + kLimit;
    while (far.received == 0 && Clock::now() < limit) both_progress();
    bool right = check(near, far, "the scalable lane");
    if (ucpx_ep_lanes_request(near.endpoint, UCPX_LANE_POLICY_DEDICATED) != UCS_OK ||
        ucpx_ep_lanes_request(far.endpoint, UCPX_LANE_POLICY_DEDICATED) != UCS_OK) {
        give_up("no dedicated lane to ask for");
    }
    while (near.state() != UCPX_LANE_STATE_ESTABLISHED ||
           far.state() != UCPX_LANE_STATE_ESTABLISHED) {
        if (Clock::now() > limit) give_up("no dedicated lane came up");
        both_progress();
    }
    right = check(near, far, "the dedicated lane") && right;
    ucp_worker_destroy(near.worker);
    ucp_worker_destroy(far.worker);
    ucp_cleanup(near.context);
    ucp_cleanup(far.context);
    return right ? 0 : 1;
}

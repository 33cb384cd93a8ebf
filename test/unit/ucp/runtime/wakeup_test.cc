// SPDX-License-Identifier: BSD-3-Clause

// Sleeping until something happens: no event is lost, whenever it comes.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <iterator>
#include <thread>
#include <vector>

#include "ucp/base/handles.h"
#include "ucp/context/context.h"
#include "ucp/worker/worker.h"
#include "uct/self/self_interface.h"
#include "uct/sm/component.h"

namespace ucp::test {
namespace {

// A worker that may sleep, on a wall clock, over one transport.
class Sleeper {
  public:
    explicit Sleeper(ucp_worker_params_t params = {},
                     uct::Component& transport = uct::self::component()) {
        Config config;
        std::string error;
        EXPECT_EQ(kConfigTable.load(ucs::config::Source(), config, error), UCS_OK) << error;
        config.switch_interval = ucs::kForever;
        uct::Component* component = &transport;
        ContextSeams seams;
        seams.components = std::span<uct::Component* const>(&component, 1);
        ucp_params_t context_params{};
        context_params.field_mask = UCP_PARAM_FIELD_FEATURES;
        context_params.features =
            UCP_FEATURE_TAG | UCP_FEATURE_STREAM | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        EXPECT_EQ(Context::create(context_params, config, seams, &context_), UCS_OK);
        params.field_mask |= UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        params.thread_mode = UCS_THREAD_MODE_MULTI;
        EXPECT_EQ(ucp_worker_create(wrap(context_.get()), &params, &worker), UCS_OK);
        EXPECT_EQ(ucp_worker_get_efd(worker, &descriptor), UCS_OK);
    }
    ~Sleeper() { ucp_worker_destroy(worker); }

    ucp_ep_h connect(ucp_worker_h to) {
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(to, &address, &length), UCS_OK);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = address;
        ucp_ep_h endpoint = nullptr;
        EXPECT_EQ(ucp_ep_create(worker, &params, &endpoint), UCS_OK);
        ucp_worker_release_address(to, address);
        return endpoint;
    }
    // Until there is nothing left to do.
    void settle() {
        while (ucp_worker_arm(worker) == UCS_ERR_BUSY) ucp_worker_progress(worker);
    }
    bool is_readable(int milliseconds = 0) const {
        pollfd entry{descriptor, POLLIN, 0};
        return poll(&entry, 1, milliseconds) == 1;
    }

    ucp_worker_h worker = nullptr;
    int descriptor = -1;

  private:
    std::unique_ptr<Context> context_;
};

TEST(Wakeup, ASignalWakesOnce) {
    Sleeper sleeper;
    sleeper.settle();
    EXPECT_FALSE(sleeper.is_readable());
    EXPECT_EQ(ucp_worker_signal(sleeper.worker), UCS_OK);
    EXPECT_EQ(ucp_worker_signal(sleeper.worker), UCS_OK);
    EXPECT_TRUE(sleeper.is_readable());
    EXPECT_EQ(ucp_worker_arm(sleeper.worker), UCS_ERR_BUSY);
    EXPECT_EQ(ucp_worker_arm(sleeper.worker), UCS_OK);
    EXPECT_FALSE(sleeper.is_readable());
}

// A request may be complete since the last progress, and the program look at it only after it has
// asked whether it may sleep.
TEST(Wakeup, WhatProgressFoundIsNotSleptOver) {
    Sleeper sleeper;
    ucp_ep_h endpoint = sleeper.connect(sleeper.worker);
    sleeper.settle();
    ucp_request_param_t flush{};
    flush.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    const ucs_status_ptr_t request = ucp_ep_flush_nbx(endpoint, &flush);
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    while (ucp_request_check_status(request) == UCS_INPROGRESS) ucp_worker_progress(sleeper.worker);
    EXPECT_EQ(ucp_worker_arm(sleeper.worker), UCS_ERR_BUSY);
    EXPECT_EQ(ucp_worker_arm(sleeper.worker), UCS_OK);
    ucp_request_free(request);
    flush.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    flush.flags = UCP_EP_CLOSE_FLAG_FORCE;
    EXPECT_EQ(ucp_ep_close_nbx(endpoint, &flush), nullptr);
}

// Whoever sleeps after arming is woken by what comes between, however the threads run.
TEST(Wakeup, NoSignalIsLostInTheRace) {
    constexpr unsigned kRounds = 3000;
    Sleeper sleeper;
    std::atomic<unsigned> sent{0}, seen{0};
    std::thread other([&] {
        for (unsigned round = 1; round <= kRounds; ++round) {
            sent = round;
            ucp_worker_signal(sleeper.worker);
            while (seen < round) std::this_thread::yield();
        }
    });
    while (seen < kRounds) {
        ucp_worker_progress(sleeper.worker);
        seen = sent.load();
        if (seen == kRounds) break;
        ASSERT_EQ(ucp_worker_wait(sleeper.worker), UCS_OK);
    }
    other.join();
}

TEST(Wakeup, AnEventSetOfTheProgramReportsTheWorker) {
    const int events = epoll_create1(0);
    {
        int mark = 0;
        ucp_worker_params_t params{};
        params.field_mask = UCP_WORKER_PARAM_FIELD_EVENT_FD | UCP_WORKER_PARAM_FIELD_USER_DATA |
                            UCP_WORKER_PARAM_FIELD_EVENTS;
        params.event_fd = events;
        params.user_data = &mark;
        params.events = UCP_WAKEUP_RX | UCP_WAKEUP_EDGE;
        Sleeper sleeper(params);
        sleeper.settle();
        epoll_event event{};
        EXPECT_EQ(epoll_wait(events, &event, 1, 0), 0);
        ucp_worker_signal(sleeper.worker);
        ASSERT_EQ(epoll_wait(events, &event, 1, 0), 1);
        EXPECT_EQ(event.data.ptr, &mark);
        EXPECT_EQ(epoll_wait(events, &event, 1, 0), 0) << "told twice of one event";
    }
    close(events);
}

// One thread serves two workers, each until that may sleep, and then sleeps itself; another sends
// from one to the other, more than the queue holds. The worker that waits for room must not keep
// the thread from the one that makes room, and what begins to wait while the thread sleeps wakes
// it.
TEST(Wakeup, OneThreadServesBothEndsOfAFullQueue) {
    constexpr unsigned kRounds = 100, kMessages = 400;
    Sleeper sender({}, uct::sm::component()), receiver({}, uct::sm::component());
    std::atomic<unsigned> received{0};
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.arg = &received;
    handler.cb = [](void* arg, const void*, size_t, void*, size_t, const ucp_am_recv_param_t*) {
        ++*static_cast<std::atomic<unsigned>*>(arg);
        return UCS_OK;
    };
    ASSERT_EQ(ucp_worker_set_am_recv_handler(receiver.worker, &handler), UCS_OK);
    ucp_ep_h endpoint = sender.connect(receiver.worker);
    std::atomic<bool> stopped{false};
    const auto serve = [&] {
        Sleeper* const workers[] = {&sender, &receiver};
        pollfd entries[] = {{sender.descriptor, POLLIN, POLLIN},
                            {receiver.descriptor, POLLIN, POLLIN}};
        while (!stopped) {
            for (unsigned i = 0; i < std::size(workers); ++i) {
                if (entries[i].revents == 0) continue;
                do {
                    while (ucp_worker_progress(workers[i]->worker) != 0) {
                    }
                } while (ucp_worker_arm(workers[i]->worker) == UCS_ERR_BUSY && !stopped);
            }
            poll(entries, std::size(entries), -1);
        }
    };
    std::thread server;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const ucp_request_param_t param{};
    const uint64_t payload = 7;  // of all: what waits reads it until its turn comes
    std::vector<ucs_status_ptr_t> waiting;
    for (unsigned round = 1; round <= kRounds && !testing::Test::HasFailure(); ++round) {
        for (unsigned i = 0; i < kMessages; ++i) {
            const ucs_status_ptr_t request =
                ucp_am_send_nbx(endpoint, 0, nullptr, 0, &payload, sizeof(payload), &param);
            ASSERT_FALSE(UCS_PTR_IS_ERR(request));
            if (UCS_PTR_IS_PTR(request)) waiting.push_back(request);
        }
        // After the first ones: nobody has made room for those that wait.
        if (!server.joinable()) server = std::thread(serve);
        while (received != round * kMessages && std::chrono::steady_clock::now() < limit)
            std::this_thread::yield();
        EXPECT_EQ(received, round * kMessages) << "in round " << round;
    }
    EXPECT_FALSE(waiting.empty()) << "the queue was never full";
    stopped = true;
    ucp_worker_signal(sender.worker);
    server.join();
    for (ucs_status_ptr_t request : waiting) ucp_request_free(request);
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    EXPECT_EQ(ucp_ep_close_nbx(endpoint, &force), nullptr);
}

// What another thread's call leaves to progress is done though the worker's thread sleeps. Nothing
// else wakes that: the transport has no event.
TEST(Wakeup, WhatAnotherThreadLeavesToProgressWakes) {
    Sleeper sleeper;
    ucp_ep_h endpoint = sleeper.connect(sleeper.worker);
    sleeper.settle();
    ASSERT_FALSE(sleeper.is_readable());
    ucs_status_ptr_t request = nullptr;
    std::thread([&] {
        ucp_request_param_t later{};
        later.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
        request = ucp_ep_flush_nbx(endpoint, &later);
    }).join();
    ASSERT_TRUE(UCS_PTR_IS_PTR(request));
    EXPECT_TRUE(sleeper.is_readable());
    EXPECT_EQ(ucp_worker_wait(sleeper.worker), UCS_OK);
    ucp_worker_progress(sleeper.worker);
    EXPECT_EQ(ucp_request_check_status(request), UCS_OK);
    ucp_request_free(request);
    // A call that leaves nothing behind wakes nobody.
    sleeper.settle();
    std::thread([&] { EXPECT_EQ(ucp_worker_fence(sleeper.worker), UCS_OK); }).join();
    EXPECT_FALSE(sleeper.is_readable());
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    std::thread([&] { EXPECT_EQ(ucp_ep_close_nbx(endpoint, &force), nullptr); }).join();
    EXPECT_TRUE(sleeper.is_readable());
}

// Both sides do nothing but sleep on their descriptors, and a connection comes about.
TEST(Wakeup, ConnectionsWakeToo) {
    Sleeper server, client;
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ucp_conn_request_h request = nullptr;
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = {reinterpret_cast<sockaddr*>(&where), sizeof(where)};
    params.conn_handler = {
        [](ucp_conn_request_h asked, void* arg) { *static_cast<ucp_conn_request_h*>(arg) = asked; },
        &request};
    ucp_listener_h listener = nullptr;
    ASSERT_EQ(ucp_listener_create(server.worker, &params, &listener), UCS_OK);
    ucp_listener_attr_t attr{};
    attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    ASSERT_EQ(ucp_listener_query(listener, &attr), UCS_OK);
    ucs_status_t error = UCS_OK;
    ucp_ep_params_t call{};
    call.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    call.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    call.sockaddr = {reinterpret_cast<sockaddr*>(&attr.sockaddr), sizeof(where)};
    call.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    call.err_handler = {
        [](void* arg, ucp_ep_h, ucs_status_t status) { *static_cast<ucs_status_t*>(arg) = status; },
        &error};
    ucp_ep_h endpoint = nullptr;
    ASSERT_EQ(ucp_ep_create(client.worker, &call, &endpoint), UCS_OK);
    // The two talk before the server's program hears of it.
    for (client.settle(), server.settle(); request == nullptr; server.settle()) {
        ASSERT_TRUE(client.is_readable(100) || server.is_readable(10000));
        client.settle();
    }
    ASSERT_EQ(ucp_listener_reject(listener, request), UCS_OK);
    for (client.settle(); error == UCS_OK; client.settle()) {
        ASSERT_TRUE(client.is_readable(10000));
    }
    EXPECT_EQ(error, UCS_ERR_REJECTED);
    ucp_listener_destroy(listener);
}

}  // namespace
}  // namespace ucp::test

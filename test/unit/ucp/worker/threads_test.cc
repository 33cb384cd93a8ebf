// SPDX-License-Identifier: BSD-3-Clause

// UCS_THREAD_MODE_MULTI: several threads use one worker at once. Built with the thread sanitizer,
// these tests show that they may.

#include <sched.h>

#include <atomic>
#include <thread>

#include "uct/self/self_interface.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

constexpr size_t kThreads = 4;
constexpr size_t kRounds = 60;
constexpr size_t kLengths[] = {8, 100, 3000, 20000};  // short, copied, fragments, rendezvous

// A worker for several threads, with an endpoint to itself.
struct Shared {
    ucp_worker_h worker;
    ucp_ep_h endpoint;
};

// Wait as programs do: ask without a lock, progress meanwhile.
ucs_status_t finish(const Shared& shared, ucs_status_ptr_t operation) {
    if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
    while (ucp_request_check_status(operation) == UCS_INPROGRESS) {
        if (ucp_worker_progress(shared.worker) == 0) sched_yield();
    }
    const ucs_status_t status = ucp_request_check_status(operation);
    ucp_request_free(operation);
    return status;
}

void on_threads(const std::function<void(size_t thread)>& body) {
    std::vector<std::thread> threads;
    for (size_t index = 0; index < kThreads; ++index) threads.emplace_back(body, index);
    for (std::thread& thread : threads) thread.join();
}

// Each thread sends to itself under its own tag: order within the tag, whatever others do.
void exchange(const Shared& shared) {
    on_threads([&](size_t thread) {
        const ucp_request_param_t param{};
        for (size_t round = 0; round < kRounds; ++round) {
            const size_t length = kLengths[(round + thread) % std::size(kLengths)];
            const auto sent = pattern(length, thread * kRounds + round);
            std::vector<uint8_t> received(length);
            const bool early = round % 2 == 0;
            const auto receive = [&] {
                return ucp_tag_recv_nbx(shared.worker, received.data(), length, thread, UINT64_MAX,
                                        &param);
            };
            ucs_status_ptr_t receiving = early ? receive() : nullptr;
            ucs_status_ptr_t sending =
                round % 5 == 0
                    ? ucp_tag_send_sync_nbx(shared.endpoint, sent.data(), length, thread, &param)
                    : ucp_tag_send_nbx(shared.endpoint, sent.data(), length, thread, &param);
            if (!early) receiving = receive();
            ASSERT_EQ(finish(shared, receiving), UCS_OK);
            ASSERT_EQ(finish(shared, sending), UCS_OK);
            ASSERT_EQ(received, sent) << "thread " << thread << ", round " << round;
        }
        ASSERT_EQ(finish(shared, ucp_worker_flush_nbx(shared.worker, &param)), UCS_OK);
    });
}

// Every thread adds to one word, and has a place of its own to put to and get from.
void access_memory(const Shared& shared, ucp_context_h context) {
    struct Exposed {
        uint64_t sum;
        uint64_t places[kThreads];
    } exposed{};
    ucp_mem_map_params_t map{};
    map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    map.address = &exposed;
    map.length = sizeof(exposed);
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(ucp_mem_map(context, &map, &memory), UCS_OK);
    void* packed = nullptr;
    size_t size = 0;
    ASSERT_EQ(ucp_rkey_pack(context, memory, &packed, &size), UCS_OK);
    on_threads([&](size_t thread) {
        const ucp_request_param_t param{};
        ucp_rkey_h key = nullptr;
        ASSERT_EQ(ucp_ep_rkey_unpack(shared.endpoint, packed, &key), UCS_OK);
        const auto place = reinterpret_cast<uint64_t>(&exposed.places[thread]);
        const auto sum = reinterpret_cast<uint64_t>(&exposed.sum);
        for (uint64_t round = 1; round <= kRounds; ++round) {
            ASSERT_EQ(ucp_atomic_post(shared.endpoint, UCP_ATOMIC_POST_OP_ADD, 1, sizeof(uint64_t),
                                      sum, key),
                      UCS_OK);
            uint64_t value = 0;
            ASSERT_EQ(finish(shared, ucp_put_nbx(shared.endpoint, &round, sizeof(round), place, key,
                                                 &param)),
                      UCS_OK);
            ASSERT_EQ(finish(shared, ucp_ep_flush_nbx(shared.endpoint, &param)), UCS_OK);
            ASSERT_EQ(finish(shared, ucp_get_nbx(shared.endpoint, &value, sizeof(value), place, key,
                                                 &param)),
                      UCS_OK);
            ASSERT_EQ(value, round);
        }
        ASSERT_EQ(finish(shared, ucp_ep_flush_nbx(shared.endpoint, &param)), UCS_OK);
        ucp_rkey_destroy(key);
    });
    EXPECT_EQ(exposed.sum, kThreads * kRounds);
    ucp_rkey_buffer_release(packed);
    ucp_mem_unmap(context, memory);
}

// Active messages from every thread, taken by whichever thread happens to make progress.
void send_active_messages(const Shared& shared) {
    struct Taken {
        std::atomic<uint64_t> messages{0}, bytes{0};
    } taken;
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.arg = &taken;
    handler.cb = [](void* arg, const void*, size_t, void*, size_t length,
                    const ucp_am_recv_param_t*) {
        auto& count = *static_cast<Taken*>(arg);
        count.bytes += length;
        ++count.messages;
        return UCS_OK;
    };
    ASSERT_EQ(ucp_worker_set_am_recv_handler(shared.worker, &handler), UCS_OK);
    on_threads([&](size_t thread) {
        const ucp_request_param_t param{};
        const std::vector<uint8_t> bytes(500 * (thread + 1));
        for (size_t round = 0; round < kRounds; ++round) {
            ASSERT_EQ(finish(shared, ucp_am_send_nbx(shared.endpoint, 0, nullptr, 0, bytes.data(),
                                                     bytes.size(), &param)),
                      UCS_OK);
        }
        while (taken.messages != kThreads * kRounds) {
            if (ucp_worker_progress(shared.worker) == 0) sched_yield();
        }
    });
    EXPECT_EQ(taken.bytes, 500 * (1 + 2 + 3 + 4) * kRounds);
}

// Over the mock fabric, where all takes time, and over `self`, where it happens in the call.
class Threads : public testing::TestWithParam<bool> {
  protected:
    Threads() {
        Config config = quiet_config();
        config.rndv_threshold.emplace().bytes = 8192;
        uct::Component* component = GetParam() ? &uct::self::component() : &fabric_.component();
        ContextSeams seams;
        seams.components = std::span<uct::Component* const>(&component, 1);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = kAllFeatures;
        EXPECT_EQ(Context::create(params, config, seams, &context_), UCS_OK);
        ucp_worker_params_t worker{};
        worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        worker.thread_mode = UCS_THREAD_MODE_MULTI;
        EXPECT_EQ(ucp_worker_create(context(), &worker, &shared_.worker), UCS_OK);
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(shared_.worker, &address, &length), UCS_OK);
        ucp_ep_params_t endpoint{};
        endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        endpoint.address = address;
        EXPECT_EQ(ucp_ep_create(shared_.worker, &endpoint, &shared_.endpoint), UCS_OK);
        ucp_worker_release_address(shared_.worker, address);
    }
    ~Threads() override { ucp_worker_destroy(shared_.worker); }

    const Shared& shared() const { return shared_; }
    ucp_context_h context() const { return wrap(context_.get()); }

  private:
    uct::mock::Fabric fabric_;
    std::unique_ptr<Context> context_;
    Shared shared_{};
};

INSTANTIATE_TEST_SUITE_P(Transports, Threads, testing::Bool(),
                         [](const auto& info) { return info.param ? "self" : "mock"; });

TEST_P(Threads, ExchangeMessages) {
    exchange(shared());
}

// The limit of short messages that is read without the lock lets nothing pass; under the lock they
// go the short way, and end in their call.
TEST_P(Threads, ShortMessagesGoTheShortWayUnderTheLock) {
    const Endpoint& endpoint = unwrap(shared().endpoint);
    EXPECT_FALSE(endpoint.fits_short(0));
    EXPECT_TRUE(endpoint.fits_short_locked(8));
    const uint64_t word = 7;
    const ucp_request_param_t param{};
    EXPECT_EQ(ucp_tag_send_nbx(shared().endpoint, &word, sizeof(word), 1, &param), nullptr);
    uint64_t received = 0;
    const ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(shared().worker, &received, sizeof(received), 1, UINT64_MAX, &param);
    EXPECT_EQ(finish(shared(), receive), UCS_OK);
    EXPECT_EQ(received, word);
}

TEST_P(Threads, AccessMemory) {
    access_memory(shared(), context());
}

TEST_P(Threads, SendActiveMessages) {
    send_active_messages(shared());
}

TEST_P(Threads, CreateAndCloseEndpoints) {
    const Shared shared = this->shared();
    ucp_address_t* address = nullptr;
    size_t length = 0;
    ASSERT_EQ(ucp_worker_get_address(shared.worker, &address, &length), UCS_OK);
    on_threads([&](size_t thread) {
        const ucp_request_param_t param{};
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = address;
        for (size_t round = 0; round < kRounds; ++round) {
            ucp_ep_h endpoint = nullptr;
            ASSERT_EQ(ucp_ep_create(shared.worker, &params, &endpoint), UCS_OK);
            uint64_t sent = thread * kRounds + round, received = 0;
            ucs_status_ptr_t receiving = ucp_tag_recv_nbx(shared.worker, &received, sizeof(sent),
                                                          thread, UINT64_MAX, &param);
            ASSERT_EQ(
                finish(shared, ucp_tag_send_nbx(endpoint, &sent, sizeof(sent), thread, &param)),
                UCS_OK);
            ASSERT_EQ(finish(shared, receiving), UCS_OK);
            ASSERT_EQ(received, sent);
            ASSERT_EQ(finish(shared, ucp_ep_close_nbx(endpoint, &param)), UCS_OK);
        }
    });
    ucp_worker_release_address(shared.worker, address);
}

}  // namespace
}  // namespace ucp::test

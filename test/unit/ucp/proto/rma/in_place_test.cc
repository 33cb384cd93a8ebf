// SPDX-License-Identifier: BSD-3-Clause

// Short puts, gets and atomics on memory that is mapped here are done within their call, but only
// where nothing has to be looked at that the lanes look at: rights, bounds, what was withdrawn,
// what waits or has to come before, features, threads.

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/context/context.h"
#include "ucp/endpoint/lane_state.h"
#include "ucp/worker/worker.h"
#include "uct/base/refusing_endpoint.h"
#include "uct/sm/component.h"
#include "unit/ucp/no_options.h"
#include "unit/ucp/remote_key.h"

namespace ucp::test {
namespace {

constexpr uint64_t kAllFeatures =
    UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64 | UCP_FEATURE_TAG;

uint64_t number_of(const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer);
}

struct Party {
    explicit Party(uint64_t features = kAllFeatures,
                   ucs_thread_mode_t threads = UCS_THREAD_MODE_SINGLE,
                   const ucs::Clock* clock = nullptr) {
        Config config;
        std::string error;
        EXPECT_EQ(kConfigTable.load(ucs::config::Source(), config, error), UCS_OK) << error;
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = features;
        ContextSeams seams;
        seams.clock = clock;
        seams.components = std::span<uct::Component* const>(&component, 1);
        EXPECT_EQ(Context::create(params, config, seams, &context), UCS_OK);
        ucp_worker_params_t of_worker{};
        of_worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
        of_worker.thread_mode = threads;
        EXPECT_EQ(Worker::create(*context, of_worker, &worker), UCS_OK);
    }

    uct::Component* component = &uct::sm::component();
    std::unique_ptr<Context> context;
    std::unique_ptr<Worker> worker;
};

// An endpoint to a worker that never progresses by itself, and a key to memory of it.
class InPlace : public testing::Test {
  protected:
    static constexpr size_t kWords = 64;

    void connect(uint64_t features = kAllFeatures,
                 ucs_thread_mode_t threads = UCS_THREAD_MODE_SINGLE,
                 const ucs::Clock* clock = nullptr) {
        here_ = std::make_unique<Party>(features, threads, clock);
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        params.address = reinterpret_cast<const ucp_address_t*>(there_.worker->address().data());
        Endpoint* made = nullptr;
        ASSERT_EQ(here_->worker->create_endpoint(params, &made), UCS_OK);
        ep_ = wrap(made);
        key_ = grant(&words_[1], 8 * (kWords - 2),
                     UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE);
    }
    void TearDown() override {
        for (const ucp_rkey_h key : keys_) ucp_rkey_destroy(key);
        for (const ucp_mem_h memory : memories_)
            EXPECT_EQ(ucp_mem_unmap(wrap(there_.context.get()), memory), UCS_OK);
    }

    ucp_rkey_h grant(void* address, size_t length, unsigned prot) {
        const ucp_context_h context = wrap(there_.context.get());
        memories_.push_back(map_memory(context, address, length, prot));
        keys_.push_back(key_for(ep_, context, memories_.back()));
        return keys_.back();
    }

    ucs_status_t put(uint64_t value, uint64_t address, ucp_rkey_h key) {
        return wait(ucp_put_nbx(ep_, &value, sizeof(value), address, key, &kNothing));
    }
    ucs_status_t get(uint64_t* value, uint64_t address, ucp_rkey_h key) {
        return wait(ucp_get_nbx(ep_, value, sizeof(*value), address, key, &kNothing));
    }
    template <typename Word>
    ucs_status_ptr_t start_atomic(ucp_atomic_op_t op, Word operand, Word* reply, uint64_t address,
                                  uint32_t flags = 0) {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER | flags;
        param.datatype = ucp_dt_make_contig(sizeof(Word));
        param.reply_buffer = reply;
        return ucp_atomic_op_nbx(ep_, op, &operand, 1, address, key_, &param);
    }
    template <typename Word>
    ucs_status_t atomic(ucp_atomic_op_t op, Word operand, Word* reply, uint64_t address) {
        return wait(start_atomic(op, operand, reply, address));
    }
    ucs_status_t wait(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        ucs_status_t status;
        while ((status = ucp_request_check_status(operation)) == UCS_INPROGRESS) {
            here_->worker->progress();
            there_.worker->progress();
        }
        ucp_request_free(operation);
        return status;
    }
    Endpoint& endpoint() { return unwrap(ep_); }
    uint64_t word(size_t index) const { return number_of(&words_[index]); }

    ucs::VirtualClock clock_;  // of who is given it
    Party there_;
    std::unique_ptr<Party> here_;
    ucp_ep_h ep_ = nullptr;
    alignas(8) uint64_t words_[kWords] = {};
    ucp_rkey_h key_ = nullptr;
    std::vector<ucp_mem_h> memories_;
    std::vector<ucp_rkey_h> keys_;
};

TEST_F(InPlace, PutsAndGetsOfAllLengths) {
    ASSERT_NO_FATAL_FAILURE(connect());
    EXPECT_TRUE(endpoint().may_act_in_place());
    const auto& limits = endpoint().configuration().in_place();
    ASSERT_GT(limits.longest_put, 0u);
    ASSERT_GT(limits.longest_get, 0u);
    const size_t most = std::max(limits.longest_put, limits.longest_get);
    std::vector<char> target(most + 2, '.'), source(most + 2), back(most + 2);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>('a' + i % 23);
    const ucp_rkey_h key = grant(target.data(), target.size(),
                                 UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE);
    for (const size_t length : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{8}, size_t{16},
                                size_t{31}, size_t{32}, size_t{33}, size_t{4097},
                                limits.longest_get, limits.longest_put, limits.longest_put + 1}) {
        SCOPED_TRACE(length);
        std::ranges::fill(target, '.');
        const ucs_status_ptr_t put =
            ucp_put_nbx(ep_, source.data(), length, number_of(target.data() + 1), key, &kNothing);
        EXPECT_TRUE(put == nullptr || length > limits.longest_put);
        EXPECT_EQ(wait(put), UCS_OK);
        EXPECT_TRUE(std::equal(source.begin(), source.begin() + static_cast<ptrdiff_t>(length),
                               target.begin() + 1));
        EXPECT_EQ(target[0], '.');
        if (length <= most) {
            EXPECT_EQ(target[length + 1], '.');
        }
        std::ranges::fill(back, '-');
        EXPECT_EQ(wait(ucp_get_nbx(ep_, back.data(), length, number_of(target.data() + 1), key,
                                   &kNothing)),
                  UCS_OK);
        EXPECT_TRUE(std::equal(source.begin(), source.begin() + static_cast<ptrdiff_t>(length),
                               back.begin()));
        EXPECT_EQ(back[length], '-');
    }
}

template <typename Word>
struct AtomicRow {
    ucp_atomic_op_t op;
    Word before, operand, reply, after;
};

TEST_F(InPlace, AllAtomicsOfBothSizes) {
    ASSERT_NO_FATAL_FAILURE(connect());
    const auto check = [&]<typename Word>(const AtomicRow<Word>& row) {
        SCOPED_TRACE(static_cast<int>(row.op));
        SCOPED_TRACE(sizeof(Word));
        words_[3] = ~uint64_t{0};
        words_[4] = ~uint64_t{0};
        std::memcpy(&words_[3], &row.before, sizeof(Word));
        Word reply = row.reply;
        EXPECT_EQ(atomic<Word>(row.op, row.operand, &reply, word(3)), UCS_OK);
        EXPECT_EQ(reply, row.before);
        Word after;
        std::memcpy(&after, &words_[3], sizeof(Word));
        EXPECT_EQ(after, row.after);
        EXPECT_EQ(words_[4], ~uint64_t{0});
        if (sizeof(Word) == 4) {
            EXPECT_EQ(words_[3] >> 32, 0xffffffffu);
        }
    };
    const auto check_all = [&]<typename Word>(Word high) {
        const Word one = high | 1;
        for (const AtomicRow<Word>& row :
             {AtomicRow<Word>{UCP_ATOMIC_OP_ADD, one, 2, 0, static_cast<Word>(one + 2)},
              {UCP_ATOMIC_OP_SWAP, one, 5, 0, 5},
              {UCP_ATOMIC_OP_CSWAP, one, one, 7, 7},
              {UCP_ATOMIC_OP_CSWAP, one, 6, 7, one},
              {UCP_ATOMIC_OP_AND, one, 3, 0, 1},
              {UCP_ATOMIC_OP_OR, one, 2, 0, static_cast<Word>(one | 2)},
              {UCP_ATOMIC_OP_XOR, one, 3, 0, static_cast<Word>(high | 2)}})
            check(row);
    };
    check_all(uint64_t{1} << 60);
    check_all(uint32_t{1} << 30);
    words_[3] = 5;
    EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, nullptr, word(3)), UCS_OK);
    EXPECT_EQ(words_[3], 6u);
    EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_SWAP, 1, nullptr, word(3)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_LAST, 1, nullptr, word(3)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, nullptr, word(3) + 4), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(atomic<uint32_t>(UCP_ATOMIC_OP_ADD, 1, nullptr, word(3) + 2), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(words_[3], 6u);
}

TEST_F(InPlace, NothingOutsideTheKey) {
    ASSERT_NO_FATAL_FAILURE(connect());
    uint64_t value = 0;
    EXPECT_EQ(put(1, word(1), key_), UCS_OK);
    EXPECT_EQ(put(2, word(kWords - 2), key_), UCS_OK);
    words_[0] = words_[kWords - 1] = 77;
    for (const uint64_t address : {word(0), word(1) - 1, word(kWords - 2) + 1, word(kWords - 1),
                                   uint64_t{8}, ~uint64_t{7}}) {
        SCOPED_TRACE(address - word(0));
        EXPECT_EQ(put(3, address, key_), UCS_ERR_INVALID_ADDR);
        EXPECT_EQ(get(&value, address, key_), UCS_ERR_INVALID_ADDR);
        EXPECT_NE(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, &value, address), UCS_OK);
    }
    EXPECT_EQ(words_[0], 77u);
    EXPECT_EQ(words_[kWords - 1], 77u);
    EXPECT_EQ(words_[kWords - 2], 2u);
}

TEST_F(InPlace, NothingBeyondTheRights) {
    ASSERT_NO_FATAL_FAILURE(connect());
    words_[5] = 42;
    uint64_t value = 0;
    const ucp_rkey_h readable = grant(&words_[1], 80, UCP_MEM_MAP_PROT_REMOTE_READ);
    EXPECT_EQ(put(1, word(5), readable), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(get(&value, word(5), readable), UCS_OK);
    EXPECT_EQ(value, 42u);
    const ucp_rkey_h writable = grant(&words_[1], 80, UCP_MEM_MAP_PROT_REMOTE_WRITE);
    value = 0;
    EXPECT_EQ(get(&value, word(5), writable), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(value, 0u);
    EXPECT_EQ(put(43, word(5), writable), UCS_OK);
    EXPECT_EQ(words_[5], 43u);
    for (const ucp_rkey_h key : {readable, writable}) {
        key_ = key;
        EXPECT_NE(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, &value, word(5)), UCS_OK);
    }
    EXPECT_EQ(words_[5], 43u);
}

TEST_F(InPlace, NothingThatItsOwnerHasWithdrawn) {
    ASSERT_NO_FATAL_FAILURE(connect());
    EXPECT_EQ(put(1, word(5), key_), UCS_OK);
    EXPECT_EQ(ucp_mem_unmap(wrap(there_.context.get()), memories_.back()), UCS_OK);
    memories_.pop_back();
    uint64_t value = 9;
    EXPECT_EQ(put(2, word(5), key_), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(get(&value, word(5), key_), UCS_ERR_INVALID_ADDR);
    EXPECT_NE(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, nullptr, word(5)), UCS_OK);
    EXPECT_EQ(value, 9u);
    EXPECT_EQ(words_[5], 1u);
    // The same bytes again: another key.
    const ucp_rkey_h anew = grant(&words_[1], 80, UCP_MEM_MAP_PROT_REMOTE_WRITE);
    EXPECT_EQ(put(3, word(5), key_), UCS_ERR_INVALID_ADDR);
    EXPECT_EQ(put(4, word(5), anew), UCS_OK);
    EXPECT_EQ(words_[5], 4u);
}

TEST_F(InPlace, AKeyThatIsOpenedAnewIsThatOfItsNewMemory) {
    ASSERT_NO_FATAL_FAILURE(connect());
    uint64_t other[2] = {};
    for (int i = 0; i < 3; ++i) {
        ucp_rkey_destroy(keys_.back());
        keys_.pop_back();
        const ucp_rkey_h key =
            grant(i % 2 == 0 ? &other[0] : &words_[1], 16, UCP_MEM_MAP_PROT_REMOTE_WRITE);
        EXPECT_EQ(put(1, i % 2 == 0 ? number_of(&other[1]) : word(2), key), UCS_OK);
        EXPECT_EQ(put(1, i % 2 == 0 ? word(2) : number_of(&other[1]), key), UCS_ERR_INVALID_ADDR);
    }
}

// Behind a fence a short operation waits for what was begun before it; then none has to any more.
TEST_F(InPlace, NothingBeforeTheEndOfWhatAFenceHolds) {
    constexpr size_t kLong = 64 << 20;
    ASSERT_NO_FATAL_FAILURE(connect());
    std::vector<char> source(kLong, 'x');
    const auto target = std::make_unique<char[]>(kLong);
    const ucp_rkey_h key = grant(target.get(), kLong, UCP_MEM_MAP_PROT_REMOTE_WRITE);
    const ucs_status_ptr_t longer =
        ucp_put_nbx(ep_, source.data(), kLong, number_of(target.get()), key, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(longer));
    EXPECT_EQ(put(1, word(2), key_), UCS_OK) << "no fence is between";
    ASSERT_EQ(ucp_request_check_status(longer), UCS_INPROGRESS);

    ASSERT_EQ(ucp_worker_fence(wrap(here_->worker.get())), UCS_OK);
    const uint64_t value = 2;
    uint64_t found = 0;
    const ucs_status_ptr_t first = ucp_put_nbx(ep_, &value, 8, word(2), key_, &kNothing);
    const ucs_status_ptr_t second =
        ucp_put_nbx(ep_, &value, 8, word(3), key_, &kNothing);  // behind one that waits
    const ucs_status_ptr_t third = ucp_get_nbx(ep_, &found, 8, word(2), key_, &kNothing);
    const ucs_status_ptr_t fourth = start_atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, &found, word(4));
    for (const ucs_status_ptr_t each : {first, second, third, fourth})
        EXPECT_TRUE(UCS_PTR_IS_PTR(each));
    while (words_[2] == 1) {
        ASSERT_EQ(words_[3], 0u);
        ASSERT_EQ(words_[4], 0u);
        here_->worker->progress();
    }
    EXPECT_EQ(target[kLong - 1], 'x');
    for (const ucs_status_ptr_t each : {longer, first, second, third, fourth})
        EXPECT_EQ(wait(each), UCS_OK);
    EXPECT_TRUE(endpoint().may_act_in_place());
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(ucp_worker_fence(wrap(here_->worker.get())), UCS_OK);
        EXPECT_EQ(ucp_put_nbx(ep_, &value, 8, word(5), key_, &kNothing), nullptr);
    }
}

// A lane of which nobody knows whether it has done what was posted.
class OpaqueLane final : public uct::RefusingEndpoint {
  public:
    bool is_connected(const uct::RemoteAddress&) const override { return true; }
    bool is_flushed() const override { return is_flushed_; }
    bool is_flushed_ = false;
};

TEST_F(InPlace, AFenceIsForTheDedicatedLaneToo) {
    ASSERT_NO_FATAL_FAILURE(connect());
    uint64_t held = 0;
    auto state = std::make_unique<LaneState>(endpoint(), held);
    auto lane = std::make_unique<OpaqueLane>();
    OpaqueLane& opaque = *lane;
    state->dedicated = std::move(lane);
    endpoint().attach_lane(std::move(state));
    endpoint().note_one_sided(endpoint().dedicated_lane());
    EXPECT_TRUE(endpoint().may_act_in_place()) << "no fence is due";
    here_->worker->fence();
    EXPECT_FALSE(endpoint().may_act_in_place());
    EXPECT_FALSE(endpoint().may_act_in_place()) << "the same at each try";
    opaque.is_flushed_ = true;
    EXPECT_TRUE(endpoint().may_act_in_place());

    // An operation of the peer's processor.
    const uint32_t number = endpoint().remote_operation_started();
    EXPECT_TRUE(endpoint().may_act_in_place()) << "no fence is due";
    here_->worker->fence();
    EXPECT_FALSE(endpoint().may_act_in_place());
    endpoint().remote_operation_finished(number);
    EXPECT_TRUE(endpoint().may_act_in_place());
    endpoint().detach_lane();
}

// Nothing was in place, but the worker's next flush asks the lanes only.
TEST_F(InPlace, AFlushWaitsForAMessageThatHasNoRoom) {
    ASSERT_NO_FATAL_FAILURE(connect());
    const ucp_worker_h worker = wrap(here_->worker.get());
    EXPECT_EQ(ucp_worker_flush_nbx(worker, &kNothing), nullptr);
    EXPECT_EQ(ucp_worker_flush_nb(worker, 0, [](void*, ucs_status_t) {}), nullptr);
    uint64_t value = 1;
    ucs_status_ptr_t sending = nullptr;
    while (sending == nullptr) sending = ucp_tag_send_nbx(ep_, &value, sizeof(value), 1, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sending));
    EXPECT_FALSE(endpoint().may_act_in_place()) << "nothing goes past what waits";
    const ucs_status_ptr_t flush = ucp_worker_flush_nb(worker, 0, [](void*, ucs_status_t) {});
    ASSERT_TRUE(UCS_PTR_IS_PTR(flush));
    EXPECT_EQ(wait(sending), UCS_OK);
    EXPECT_EQ(wait(flush), UCS_OK);
    EXPECT_TRUE(endpoint().may_act_in_place());
    EXPECT_EQ(ucp_worker_flush_nbx(worker, &kNothing), nullptr);
}

// A program that puts and flushes may make no progress for as long as it likes.
class InPlaceFlushes : public InPlace, public testing::WithParamInterface<ucs_thread_mode_t> {};

INSTANTIATE_TEST_SUITE_P(, InPlaceFlushes,
                         testing::Values(UCS_THREAD_MODE_SINGLE, UCS_THREAD_MODE_MULTI));

TEST_P(InPlaceFlushes, EndASamplingWindow) {
    using Flush = void (*)(ucp_worker_h worker, ucp_ep_h ep);
    constexpr Flush kFlushes[] = {
        [](ucp_worker_h worker, ucp_ep_h) {
            EXPECT_EQ(ucp_worker_flush_nbx(worker, &kNothing), nullptr);
        },
        [](ucp_worker_h worker, ucp_ep_h) {
            EXPECT_EQ(ucp_worker_flush_nb(worker, 0, [](void*, ucs_status_t) {}), nullptr);
        },
        [](ucp_worker_h, ucp_ep_h ep) { EXPECT_EQ(ucp_ep_flush_nbx(ep, &kNothing), nullptr); },
    };
    ASSERT_NO_FATAL_FAILURE(connect(kAllFeatures, GetParam(), &clock_));
    const Gate& gate = here_->worker->gate();
    const auto is_counted = [&] { return (gate.bits() & Gate::kAnyTracker) != 0; };
    for (const Flush flush : kFlushes) {
        const auto flush_often = [&] {
            for (int i = 0; i < 100; ++i) flush(wrap(here_->worker.get()), ep_);
        };
        for (int i = 0; i < 1000 && !is_counted(); ++i) {
            clock_.advance(std::chrono::milliseconds(1));
            for (unsigned call = 0; call < here_->worker->config().progress_factor; ++call)
                here_->worker->progress();
        }
        ASSERT_TRUE(is_counted());
        EXPECT_EQ(put(7, word(2), key_), UCS_OK);
        flush_often();
        EXPECT_TRUE(is_counted()) << "its time is not over";
        clock_.advance(std::chrono::seconds(1));
        flush_often();
        EXPECT_FALSE(is_counted());
        EXPECT_EQ(put(7, word(2), key_), UCS_OK);
    }
}

// What a lane has put in the window is taken for what its length has, however late the next
// progress is.
TEST_F(InPlace, PutsWithoutProgressAreRatedByTheWindowThatCountedThem) {
    ASSERT_NO_FATAL_FAILURE(connect(kAllFeatures, UCS_THREAD_MODE_SINGLE, &clock_));
    const auto look = [&] {
        for (unsigned call = 0; call < here_->worker->config().progress_factor; ++call)
            here_->worker->progress();
    };
    // A put and a flush each microsecond, with progress once in 10 s only.
    const ucs::UsageTracker& tracker = *here_->worker->lanes().tracker();
    for (int pause = 0; pause < 3; ++pause) {
        do {
            clock_.advance(std::chrono::milliseconds(1));
            look();
        } while (!tracker.armed());
        for (int i = 0; i < 20'000; ++i) {
            endpoint().touch_if_unlocked(sizeof(uint64_t));
            EXPECT_EQ(ucp_worker_flush_nbx(wrap(here_->worker.get()), &kNothing), nullptr);
            clock_.advance(std::chrono::microseconds(1));
        }
        clock_.advance(std::chrono::seconds(10));
    }
    look();
    const double rate = tracker.usage_of(endpoint().tracker_hook()).messages;
    EXPECT_GT(rate, 1e4);
    EXPECT_LT(rate, 1.1e6);
}

TEST_F(InPlace, NothingOnAnEndpointThatHasFailed) {
    ASSERT_NO_FATAL_FAILURE(connect());
    endpoint().fail(UCS_ERR_CONNECTION_RESET);
    uint64_t value = 9;
    EXPECT_EQ(put(1, word(5), key_), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(get(&value, word(5), key_), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, nullptr, word(5)), UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(words_[5], 0u);
    EXPECT_EQ(value, 9u);
}

TEST_F(InPlace, AProgramGetsTheRequestThatItAsksFor) {
    ASSERT_NO_FATAL_FAILURE(connect());
    ucp_request_param_t later{};
    later.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    uint64_t value = 7;
    const ucs_status_ptr_t put = ucp_put_nbx(ep_, &value, 8, word(2), key_, &later);
    const ucs_status_ptr_t get = ucp_get_nbx(ep_, &value, 8, word(2), key_, &later);
    const ucs_status_ptr_t add =
        start_atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, &value, word(2), UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    for (const ucs_status_ptr_t each : {put, get, add}) {
        EXPECT_TRUE(UCS_PTR_IS_PTR(each));
        EXPECT_EQ(wait(each), UCS_OK);
    }
    EXPECT_EQ(words_[2], 8u);
}

TEST_F(InPlace, WhatIsNoneOfBytesIsRefused) {
    ASSERT_NO_FATAL_FAILURE(connect());
    uint64_t value = 1;
    EXPECT_EQ(wait(ucp_put_nbx(ep_, nullptr, 8, word(2), key_, &kNothing)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(wait(ucp_put_nbx(ep_, &value, 8, word(2), nullptr, &kNothing)),
              UCS_ERR_INVALID_PARAM);
    ucp_request_param_t words{};
    words.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    words.datatype = ucp_dt_make_contig(8);
    EXPECT_EQ(wait(ucp_put_nbx(ep_, &value, 1, word(2), key_, &words)), UCS_OK);
    EXPECT_EQ(words_[2], 1u);
    words.datatype = ucp_dt_make_contig(2);
    EXPECT_EQ(wait(ucp_atomic_op_nbx(ep_, UCP_ATOMIC_OP_ADD, &value, 1, word(2), key_, &words)),
              UCS_ERR_INVALID_PARAM);
    words.datatype = ucp_dt_make_contig(8);
    EXPECT_EQ(wait(ucp_atomic_op_nbx(ep_, UCP_ATOMIC_OP_ADD, &value, 2, word(2), key_, &words)),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(words_[2], 1u);
}

TEST_F(InPlace, NothingThatTheProgramHasNotAskedFor) {
    ASSERT_NO_FATAL_FAILURE(connect(UCP_FEATURE_RMA));
    EXPECT_EQ(put(1, word(2), key_), UCS_OK);
    EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, nullptr, word(2)), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(words_[2], 1u);
}

TEST_F(InPlace, NoPutsWhereOnlyAtomicsWereAskedFor) {
    ASSERT_NO_FATAL_FAILURE(connect(UCP_FEATURE_AMO64));
    uint64_t value = 0;
    EXPECT_EQ(put(1, word(2), key_), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(get(&value, word(2), key_), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, nullptr, word(2)), UCS_OK);
    EXPECT_EQ(words_[2], 1u);
}

// No lane would do them sooner.
TEST_F(InPlace, AnArmedTrackerCountsNone) {
    ASSERT_NO_FATAL_FAILURE(connect());
    uint64_t value = 0;
    std::vector<char> longer(100);
    endpoint().gate().arm(true);
    EXPECT_EQ(put(1, word(2), key_), UCS_OK);
    EXPECT_EQ(wait(ucp_put_nbx(ep_, longer.data(), longer.size(), word(2), key_, &kNothing)),
              UCS_OK);
    EXPECT_EQ(get(&value, word(2), key_), UCS_OK);
    EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, nullptr, word(2)), UCS_OK);
    EXPECT_FALSE(endpoint().tracker_hook().tracked());
    EXPECT_EQ(ucp_tag_send_nbx(ep_, &value, sizeof(value), 1, &kNothing), nullptr);
    EXPECT_TRUE(endpoint().tracker_hook().tracked());
    endpoint().gate().arm(false);
    here_->worker->lanes().tracker()->remove(endpoint().tracker_hook());
}

// Several threads use the worker: who has its lock has all of it.
TEST_F(InPlace, ThreadsTakeTheLock) {
    ASSERT_NO_FATAL_FAILURE(connect(kAllFeatures, UCS_THREAD_MODE_MULTI));
    std::atomic<uint64_t>& shared = reinterpret_cast<std::atomic<uint64_t>&>(words_[2]);
    std::atomic<int> begun{0};
    std::vector<std::thread> threads;
    {
        GateLock lock(endpoint().gate());
        for (int i = 0; i < 3; ++i) {
            threads.emplace_back([&, i] {
                uint64_t found = 0;
                ++begun;
                switch (i) {
                    case 0:
                        EXPECT_EQ(put(1, word(3), key_), UCS_OK);
                        break;
                    case 1:
                        EXPECT_EQ(get(&found, word(2), key_), UCS_OK);
                        EXPECT_GE(found, 100u);
                        break;
                    default:
                        EXPECT_EQ(atomic<uint64_t>(UCP_ATOMIC_OP_ADD, 1, &found, word(2)), UCS_OK);
                        EXPECT_EQ(found, 100u);
                }
            });
        }
        while (begun != 3) std::this_thread::yield();
        for (int i = 0; i < 100; ++i) std::this_thread::yield();
        EXPECT_EQ(shared, 0u);
        EXPECT_EQ(reinterpret_cast<std::atomic<uint64_t>&>(words_[3]), 0u);
        shared = 100;
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(words_[2], 101u);
    EXPECT_EQ(words_[3], 1u);
}

}  // namespace
}  // namespace ucp::test

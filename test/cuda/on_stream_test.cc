// SPDX-License-Identifier: BSD-3-Clause

// Operations on streams between two workers of this process, or one that speaks to itself; which
// transport: UCX_TLS, as transfers.sh sets it.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device.h"
#include "cuda/graphs.h"
#include "cuda/worker.h"
#include "ucp/api/ucpx.h"

namespace {

namespace abi = uct::cuda::abi;
using cuda_test::Buffer;
using cuda_test::driver;
using cuda_test::Exposed;
using cuda_test::Kind;
using cuda_test::Worker;

uint64_t place(const void* address) {
    return reinterpret_cast<uintptr_t>(address);
}

class Stream {
  public:
    Stream() { EXPECT_EQ(driver().stream_create(&stream_, abi::kStreamNonBlocking), 0); }
    ~Stream() { (void)driver().stream_destroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    abi::Stream get() const { return stream_; }
    void copy(void* to, const void* from, size_t length) const {
        EXPECT_EQ(driver().copy_async(place(to), place(from), length, stream_), 0);
    }
    void copy(const Buffer& to, const Buffer& from) const {
        copy(to.data(), from.data(), from.length());
    }
    bool is_done() const { return driver().stream_query(stream_) == abi::kSuccess; }

  private:
    abi::Stream stream_ = nullptr;
};

class OnStreamTest : public ::testing::Test {
  protected:
    void SetUp() override {
        cuda_test::use_device(0);
        first = std::make_unique<Worker>(UCS_THREAD_MODE_MULTI);
        ucp_context_attr_t attributes{};
        attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
        ASSERT_EQ(ucp_context_query(first->context, &attributes), UCS_OK);
        if ((attributes.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) == 0)
            GTEST_SKIP() << "run test/cuda/transfers.sh, which says where the CUDA module is";
        const char* const transports = std::getenv("UCX_TLS");
        if (transports == nullptr || std::string(transports) != "self")
            other = std::make_unique<Worker>(UCS_THREAD_MODE_MULTI);
        there = first->connect(second());
        back = other == nullptr ? there : other->connect(*first);
        // Both know each other before anything waits on a stream.
        uint32_t word = 1, got = 0;
        ucs_status_ptr_t send = ucp_tag_send_nbx(there, &word, 4, 1, &plain);
        ASSERT_EQ(finish(ucp_tag_recv_nbx(second().worker, &got, 4, 1, ~0ul, &plain)), UCS_OK);
        ASSERT_EQ(finish(send), UCS_OK);
    }
    void TearDown() override {
        if (there != nullptr) close(there);
        if (back != nullptr && back != there) close(back);
    }

    Worker& second() { return other != nullptr ? *other : *first; }
    void close(ucp_ep_h endpoint) {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = UCP_EP_CLOSE_FLAG_FORCE;
        (void)finish(ucp_ep_close_nbx(endpoint, &params));
    }
    void progress() {
        if (first->worker != nullptr) ucp_worker_progress(first->worker);
        if (other != nullptr && other->worker != nullptr) ucp_worker_progress(other->worker);
    }
    ucs_status_t finish(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        while (ucp_request_check_status(operation) == UCS_INPROGRESS) progress();
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_free(operation);
        return status;
    }
    // Progress until the streams have done all they were given; false: they hang.
    bool run(const std::vector<const Stream*>& streams) {
        const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        for (const Stream* stream : streams) {
            while (!stream->is_done()) {
                progress();
                if (std::chrono::steady_clock::now() > patience) return false;
            }
        }
        return true;
    }
    static ucpx_stream_op_attr_t ask(ucpx_stream_op_h op) {
        ucpx_stream_op_attr_t attributes{};
        attributes.field_mask = UCPX_STREAM_OP_ATTR_FIELD_STATUS | UCPX_STREAM_OP_ATTR_FIELD_RUNS |
                                UCPX_STREAM_OP_ATTR_FIELD_LENGTH |
                                UCPX_STREAM_OP_ATTR_FIELD_CAPTURED;
        EXPECT_EQ(ucpx_stream_op_query(op, &attributes), UCS_OK);
        return attributes;
    }
    static ucs_status_t status_of(ucpx_stream_op_h op) { return ask(op).status; }

    std::unique_ptr<Worker> first, other;
    ucp_ep_h there = nullptr, back = nullptr;
    const ucp_request_param_t plain{};
};

// What the stream has done before is sent, what it does behind comes too late to be.
TEST_F(OnStreamTest, MessagesAreOrderedWithTheWorkOfBothStreams) {
    const Stream sends, receives;
    uint32_t seed = 0;
    for (const size_t length : {size_t{8}, size_t{3000}, size_t{600003}}) {
        for (const Kind kind : {Kind::kDevice, Kind::kManaged, Kind::kPool, Kind::kVirtual}) {
            SCOPED_TRACE(std::string(cuda_test::name_of(kind)) + ", " + std::to_string(length));
            Buffer before(Kind::kPinned, length), behind(Kind::kPinned, length);
            Buffer source(kind, length), target(kind, length), result(Kind::kPinned, length);
            before.fill(++seed);
            behind.fill(~seed);
            ucpx_stream_op_h send = nullptr, receive = nullptr;
            receives.copy(target, behind);
            ASSERT_EQ(ucpx_recv_on_stream(second().worker, back, target.data(), length, 5, ~0ul,
                                          receives.get(), &receive),
                      UCS_OK);
            receives.copy(result, target);
            EXPECT_EQ(status_of(receive), UCS_INPROGRESS);
            sends.copy(source, before);
            ASSERT_EQ(ucpx_send_on_stream(there, source.data(), length, 5, sends.get(), &send),
                      UCS_OK);
            sends.copy(source, behind);
            ASSERT_TRUE(run({&sends, &receives}));
            EXPECT_EQ(status_of(send), UCS_OK);
            EXPECT_EQ(status_of(receive), UCS_OK);
            EXPECT_EQ(ask(receive).length, length);
            EXPECT_EQ(ask(receive).runs, 1u);
            EXPECT_EQ(ask(receive).captured, 0);
            ucpx_stream_op_release(send);
            ucpx_stream_op_release(receive);
            ASSERT_TRUE(result.holds(seed));
        }
    }
}

TEST_F(OnStreamTest, ManyOneBehindTheOtherWithoutHandles) {
    constexpr int kMessages = 40;
    constexpr size_t kLength = 10000;
    const Stream sends, receives;
    Buffer source(Kind::kDevice, kLength), target(Kind::kDevice, kLength);
    std::vector<std::unique_ptr<Buffer>> from, to;
    for (int i = 0; i < kMessages; ++i) {
        from.push_back(std::make_unique<Buffer>(Kind::kPinned, kLength));
        to.push_back(std::make_unique<Buffer>(Kind::kPinned, kLength));
        from.back()->fill(i);
        sends.copy(source, *from.back());
        ASSERT_EQ(ucpx_send_on_stream(there, source.data(), kLength, 6, sends.get(), nullptr),
                  UCS_OK);
        ASSERT_EQ(ucpx_recv_on_stream(second().worker, nullptr, target.data(), kLength, 6, ~0ul,
                                      receives.get(), nullptr),
                  UCS_OK);
        receives.copy(*to.back(), target);
    }
    ASSERT_TRUE(run({&sends, &receives}));
    for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(to[i]->holds(i)) << i;
}

// Each would wait for the other for ever if it received behind its own send.
TEST_F(OnStreamTest, AGroupsPartsBeginTogether) {
    constexpr size_t kLength = 300000;
    const Stream streams[2];
    Buffer out[] = {{Kind::kDevice, kLength}, {Kind::kDevice, kLength}};
    Buffer in[] = {{Kind::kDevice, kLength}, {Kind::kDevice, kLength}};
    Buffer filled[] = {{Kind::kPinned, kLength}, {Kind::kPinned, kLength}};
    Buffer result[] = {{Kind::kPinned, kLength}, {Kind::kPinned, kLength}};
    ucpx_stream_op_h ops[2] = {};
    for (uint32_t i = 0; i < 2; ++i) {
        filled[i].fill(i + 20);
        streams[i].copy(out[i], filled[i]);
        ucpx_stream_part_t parts[2] = {};
        parts[0].kind = UCPX_STREAM_PART_SEND;
        parts[0].ep = i == 0 ? there : back;
        parts[0].buffer = out[i].data();
        parts[0].length = kLength;
        parts[0].tag = 30 + i;
        parts[1].kind = UCPX_STREAM_PART_RECV;
        parts[1].ep = parts[0].ep;
        parts[1].buffer = in[i].data();
        parts[1].length = kLength;
        parts[1].tag = 31 - i;
        parts[1].tag_mask = ~0ul;
        ASSERT_EQ(ucpx_group_on_stream(i == 0 ? first->worker : second().worker, parts, 2,
                                       sizeof(parts[0]), streams[i].get(), &ops[i]),
                  UCS_OK);
        streams[i].copy(result[i], in[i]);
    }
    ASSERT_TRUE(run({&streams[0], &streams[1]}));
    for (uint32_t i = 0; i < 2; ++i) {
        EXPECT_EQ(status_of(ops[i]), UCS_OK);
        EXPECT_EQ(ask(ops[i]).length, kLength);
        ucpx_stream_op_release(ops[i]);
        EXPECT_TRUE(result[i].holds(21 - i));
    }
}

TEST_F(OnStreamTest, PutsAndSignals) {
    constexpr size_t kLength = 70000;
    const Stream puts, waits;
    Buffer source(Kind::kDevice, kLength), target(Kind::kDevice, kLength);
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    auto word = std::make_unique<uint64_t>(0);
    const Exposed data(second(), there, target.data(), kLength);
    const Exposed signals(second(), there, word.get(), sizeof(*word));
    uint64_t awaited = 0;
    for (uint32_t round = 0; round < 6; ++round) {
        filled.fill(round + 1);
        ucpx_signal_t signal{};
        signal.remote_addr = place(word.get());
        signal.rkey = signals.key;
        signal.op = round % 2 == 0 ? UCPX_SIGNAL_SET : UCPX_SIGNAL_ADD;
        awaited += 10;
        signal.value = signal.op == UCPX_SIGNAL_SET ? awaited : 10;
        ASSERT_EQ(ucpx_signal_wait_on_stream(second().worker, back, word.get(), awaited, 0,
                                             waits.get(), nullptr),
                  UCS_OK);
        waits.copy(result, target);
        puts.copy(source, filled);
        ucpx_stream_op_h put = nullptr, flush = nullptr;
        ASSERT_EQ(ucpx_put_on_stream(there, source.data(), kLength, place(target.data()), data.key,
                                     &signal, puts.get(), &put),
                  UCS_OK);
        ASSERT_EQ(ucpx_flush_on_stream(there, puts.get(), &flush), UCS_OK);
        ASSERT_TRUE(run({&puts, &waits}));
        EXPECT_EQ(status_of(put), UCS_OK);
        EXPECT_EQ(status_of(flush), UCS_OK);
        ucpx_stream_op_release(put);
        ucpx_stream_op_release(flush);
        ASSERT_TRUE(result.holds(round + 1)) << round;
    }
}

// Its end may be seen, and it be given back, before progress has looked at it again.
TEST_F(OnStreamTest, AnOperationIsGivenBackAsSoonAsItHasEnded) {
    constexpr size_t kLength = 300000;
    const Stream sends, receives;
    Buffer source(Kind::kDevice, kLength), target(Kind::kDevice, kLength);
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    for (uint32_t round = 0; round < 8; ++round) {
        filled.fill(round + 1);
        sends.copy(source, filled);
        ucpx_stream_op_h send = nullptr, receive = nullptr;
        ASSERT_EQ(ucpx_send_on_stream(there, source.data(), kLength, 9, sends.get(), &send),
                  UCS_OK);
        ASSERT_EQ(ucpx_recv_on_stream(second().worker, back, target.data(), kLength, 9, ~0ul,
                                      receives.get(), &receive),
                  UCS_OK);
        receives.copy(result, target);
        while (send != nullptr || receive != nullptr) {
            for (ucpx_stream_op_h* op : {&send, &receive}) {
                if (*op == nullptr || status_of(*op) == UCS_INPROGRESS) continue;
                EXPECT_EQ(status_of(*op), UCS_OK);
                ucpx_stream_op_release(*op);
                *op = nullptr;
                // These take the place of the one before.
                ASSERT_EQ(ucpx_flush_on_stream(there, sends.get(), nullptr), UCS_OK);
                ASSERT_EQ(ucpx_flush_on_stream(back, receives.get(), nullptr), UCS_OK);
            }
            progress();
        }
        ASSERT_TRUE(run({&sends, &receives}));
        ASSERT_TRUE(result.holds(round + 1)) << round;
    }
}

TEST_F(OnStreamTest, AStreamWaitsForARequest) {
    constexpr size_t kLength = 300000;
    const Stream stream;
    Buffer source(Kind::kDevice, kLength), target(Kind::kDevice, kLength);
    Buffer result(Kind::kPinned, kLength);
    source.fill(9);
    const ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(second().worker, target.data(), kLength, 7, ~0ul, &plain);
    ASSERT_TRUE(UCS_PTR_IS_PTR(receive));
    ucpx_stream_op_h op = nullptr;
    ASSERT_EQ(ucpx_stream_wait(second().worker, receive, stream.get(), &op), UCS_OK);
    stream.copy(result, target);
    for (int i = 0; i < 100; ++i) progress();
    EXPECT_FALSE(stream.is_done());
    EXPECT_EQ(finish(ucp_tag_send_nbx(there, source.data(), kLength, 7, &plain)), UCS_OK);
    ASSERT_TRUE(run({&stream}));
    EXPECT_EQ(status_of(op), UCS_OK);
    ucpx_stream_op_release(op);
    EXPECT_TRUE(result.holds(9));
    // What has ended leaves nothing to wait for.
    EXPECT_EQ(ucpx_stream_wait(second().worker, nullptr, stream.get(), &op), UCS_OK);
    EXPECT_EQ(op, nullptr);
    EXPECT_EQ(
        ucpx_stream_wait(second().worker, UCS_STATUS_PTR(UCS_ERR_NO_MEMORY), stream.get(), &op),
        UCS_ERR_NO_MEMORY);
}

TEST_F(OnStreamTest, AGraphSendsAndReceivesEachTimeItIsLaunched) {
    constexpr size_t kLength = 20000;
    constexpr uint32_t kLaunches = 25;
    const Stream sends, receives;
    Buffer source(Kind::kDevice, kLength), target(Kind::kDevice, kLength);
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    ucpx_stream_op_h send = nullptr, receive = nullptr;
    {
        cuda_test::CapturedGraph out(sends.get()), in(receives.get());
        sends.copy(source, filled);
        ASSERT_EQ(ucpx_send_on_stream(there, source.data(), kLength, 8, sends.get(), &send),
                  UCS_OK);
        receives.copy(target, filled);
        ASSERT_EQ(ucpx_recv_on_stream(second().worker, back, target.data(), kLength, 8, ~0ul,
                                      receives.get(), &receive),
                  UCS_OK);
        receives.copy(result, target);
        out.end();
        in.end();
        EXPECT_EQ(ask(send).captured, 1);
        EXPECT_EQ(status_of(send), UCS_INPROGRESS);
        for (uint32_t launch = 1; launch <= kLaunches; ++launch) {
            filled.fill(launch);
            in.launch();
            out.launch();
            ASSERT_TRUE(run({&sends, &receives})) << launch;
            ASSERT_TRUE(result.holds(launch)) << launch;
        }
        EXPECT_EQ(status_of(receive), UCS_OK);
        EXPECT_EQ(ask(receive).runs, kLaunches);
        EXPECT_EQ(ask(receive).failures, 0u);
        EXPECT_EQ(ask(receive).length, kLength);
        // Launched one behind the other, before any of them has run.
        for (int launch = 0; launch < 5; ++launch) {
            in.launch();
            out.launch();
        }
        ASSERT_TRUE(run({&sends, &receives}));
        EXPECT_EQ(ask(send).runs, kLaunches + 5);
    }
    ucpx_stream_op_release(send);
    ucpx_stream_op_release(receive);
}

TEST_F(OnStreamTest, AGraphsSignalsGrowByTheirStep) {
    constexpr size_t kLength = 512;
    const Stream puts, waits;
    Buffer source(Kind::kDevice, kLength), target(Kind::kDevice, kLength);
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    auto word = std::make_unique<uint64_t>(0);
    const Exposed data(second(), there, target.data(), kLength);
    const Exposed signals(second(), there, word.get(), sizeof(*word));
    ucpx_signal_t signal{};
    signal.field_mask = UCPX_SIGNAL_FIELD_STEP;
    signal.remote_addr = place(word.get());
    signal.rkey = signals.key;
    signal.op = UCPX_SIGNAL_SET;
    signal.value = 1;
    signal.step = 1;
    ucpx_stream_op_h put = nullptr, wait = nullptr;
    {
        cuda_test::CapturedGraph out(puts.get()), in(waits.get());
        puts.copy(source, filled);
        ASSERT_EQ(ucpx_put_on_stream(there, source.data(), kLength, place(target.data()), data.key,
                                     &signal, puts.get(), &put),
                  UCS_OK);
        ASSERT_EQ(ucpx_signal_wait_on_stream(second().worker, nullptr, word.get(), 1, 1,
                                             waits.get(), &wait),
                  UCS_OK);
        waits.copy(result, target);
        out.end();
        in.end();
        for (uint32_t launch = 1; launch <= 10; ++launch) {
            filled.fill(launch);
            in.launch();
            out.launch();
            ASSERT_TRUE(run({&puts, &waits})) << launch;
            ASSERT_TRUE(result.holds(launch)) << launch;
        }
    }
    EXPECT_EQ(*word, 10u);
    ucpx_stream_op_release(put);
    ucpx_stream_op_release(wait);
}

// The library's copies share no queue of the device with streams that stand at a stop.
TEST_F(OnStreamTest, StreamsThatWaitStandInTheWayOfNoCopy) {
    constexpr size_t kStreams = 16, kLength = 100000;
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Buffer>> targets, results;
    std::vector<const Stream*> all;
    for (size_t i = 0; i < kStreams; ++i) {
        streams.push_back(std::make_unique<Stream>());
        targets.push_back(std::make_unique<Buffer>(Kind::kDevice, kLength));
        results.push_back(std::make_unique<Buffer>(Kind::kPinned, kLength));
        all.push_back(streams.back().get());
        ASSERT_EQ(ucpx_recv_on_stream(second().worker, nullptr, targets[i]->data(), kLength, i,
                                      ~0ul, streams[i]->get(), nullptr),
                  UCS_OK);
        streams[i]->copy(*results[i], *targets[i]);
        streams[i]->copy(*targets[i], *results[i]);
        streams[i]->copy(targets[i]->data(), targets[i]->data() + kLength / 2, 100);
    }
    for (int i = 0; i < 100; ++i) progress();
    Buffer source(Kind::kDevice, kLength);
    for (size_t i = 0; i < kStreams; ++i) {
        const size_t last = kStreams - 1 - i;
        source.fill(static_cast<uint32_t>(last));
        ASSERT_EQ(finish(ucp_tag_send_nbx(there, source.data(), kLength, last, &plain)), UCS_OK);
    }
    ASSERT_TRUE(run(all));
    for (size_t i = 0; i < kStreams; ++i) ASSERT_TRUE(results[i]->holds(static_cast<uint32_t>(i)));
}

TEST_F(OnStreamTest, AThreadOfTheLibraryMakesProgress) {
    constexpr size_t kLength = 70000;
    ASSERT_EQ(ucpx_worker_start_thread(first->worker), UCS_OK);
    ASSERT_EQ(ucpx_worker_start_thread(second().worker), UCS_OK);
    const Stream sends, receives;
    Buffer source(Kind::kDevice, kLength), target(Kind::kDevice, kLength);
    Buffer filled(Kind::kPinned, kLength), result(Kind::kPinned, kLength);
    for (uint32_t round = 0; round < 5; ++round) {
        filled.fill(round);
        sends.copy(source, filled);
        ASSERT_EQ(ucpx_send_on_stream(there, source.data(), kLength, 9, sends.get(), nullptr),
                  UCS_OK);
        ASSERT_EQ(ucpx_recv_on_stream(second().worker, nullptr, target.data(), kLength, 9, ~0ul,
                                      receives.get(), nullptr),
                  UCS_OK);
        receives.copy(result, target);
        ASSERT_EQ(driver().stream_synchronize(sends.get()), abi::kSuccess);
        ASSERT_EQ(driver().stream_synchronize(receives.get()), abi::kSuccess);
        ASSERT_TRUE(result.holds(round));
    }
    ucpx_worker_stop_thread(first->worker);
    ucpx_worker_stop_thread(first->worker);
    // The other's ends with its worker.
}

TEST_F(OnStreamTest, OnlyAWorkerOfSeveralThreadsHasAThread) {
    const Worker single(UCS_THREAD_MODE_SINGLE);
    EXPECT_EQ(ucpx_worker_start_thread(single.worker), UCS_ERR_UNSUPPORTED);
    ucpx_worker_stop_thread(single.worker);
}

// --- what fails ---

TEST_F(OnStreamTest, AnErrorLetsTheStreamGoOn) {
    const Stream stream;
    Buffer source(Kind::kDevice, 1000), target(Kind::kDevice, 100);
    // Longer than there is room for.
    ucpx_stream_op_h receive = nullptr;
    ASSERT_EQ(ucpx_recv_on_stream(second().worker, nullptr, target.data(), 100, 11, ~0ul,
                                  stream.get(), &receive),
              UCS_OK);
    (void)finish(ucp_tag_send_nbx(there, source.data(), 1000, 11, &plain));
    ASSERT_TRUE(run({&stream}));
    EXPECT_EQ(status_of(receive), UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(ask(receive).failures, 1u);
    ucpx_stream_op_release(receive);
    // Past the end of a key.
    const Exposed data(second(), there, target.data(), target.length());
    ucpx_stream_op_h put = nullptr;
    ASSERT_EQ(ucpx_put_on_stream(there, source.data(), 1000, place(target.data()), data.key,
                                 nullptr, stream.get(), &put),
              UCS_OK);
    ASSERT_TRUE(run({&stream}));
    EXPECT_TRUE(UCS_STATUS_IS_ERR(status_of(put)));
    ucpx_stream_op_release(put);
}

TEST_F(OnStreamTest, WhatIsWrongIsRefusedAtTheCall) {
    const Stream stream;
    Buffer buffer(Kind::kDevice, 100);
    alignas(8) static uint64_t words[2];
    const Exposed data(second(), there, buffer.data(), buffer.length());
    ucpx_signal_t signal{};
    signal.remote_addr = place(words) + 4;
    signal.rkey = data.key;
    EXPECT_EQ(ucpx_put_on_stream(there, buffer.data(), 100, place(buffer.data()), data.key, &signal,
                                 stream.get(), nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_put_on_stream(there, buffer.data(), 100, place(buffer.data()), nullptr, nullptr,
                                 stream.get(), nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_signal_wait_on_stream(first->worker, nullptr,
                                         reinterpret_cast<const uint64_t*>(buffer.data()), 1, 0,
                                         stream.get(), nullptr),
              UCS_ERR_UNSUPPORTED);
    EXPECT_EQ(ucpx_signal_wait_on_stream(
                  first->worker, nullptr,
                  reinterpret_cast<const uint64_t*>(reinterpret_cast<char*>(words) + 4), 1, 0,
                  stream.get(), nullptr),
              UCS_ERR_INVALID_PARAM);
    ucpx_stream_part_t part{};
    part.kind = UCPX_STREAM_PART_LAST;
    EXPECT_EQ(ucpx_group_on_stream(first->worker, &part, 1, sizeof(part), stream.get(), nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_group_on_stream(first->worker, &part, 0, sizeof(part), stream.get(), nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucpx_group_on_stream(first->worker, &part, 1, 8, stream.get(), nullptr),
              UCS_ERR_INVALID_PARAM);
    if (other != nullptr) {
        EXPECT_EQ(ucpx_recv_on_stream(first->worker, back, buffer.data(), 100, 1, ~0ul,
                                      stream.get(), nullptr),
                  UCS_ERR_INVALID_PARAM)
            << "an endpoint of another worker";
    }
    EXPECT_TRUE(stream.is_done());
    // The real driver looks into what it takes for a stream.
    if (!cuda_test::is_real()) {
        EXPECT_EQ(ucpx_send_on_stream(there, buffer.data(), 100, 1, &words, nullptr),
                  UCS_ERR_INVALID_PARAM);
        cuda_test::set_faults("cuStreamBatchMemOp:801,cuLaunchKernel:801");
        EXPECT_EQ(ucpx_send_on_stream(there, buffer.data(), 100, 1, stream.get(), nullptr),
                  UCS_ERR_INVALID_PARAM);
        cuda_test::set_faults("");
    }
    (void)driver().context_set(nullptr);
    EXPECT_EQ(ucpx_send_on_stream(there, buffer.data(), 100, 1, nullptr, nullptr),
              UCS_ERR_INVALID_PARAM)
        << "the default stream of no context";
    cuda_test::use_device(0);
}

TEST_F(OnStreamTest, WhatIsCapturedNeedsAHandleAndNoRequest) {
    const Stream stream;
    Buffer buffer(Kind::kDevice, 100);
    buffer.fill(3);
    const ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(second().worker, buffer.data(), 100, 12, ~0ul, &plain);
    {
        cuda_test::CapturedGraph graph(stream.get());
        EXPECT_EQ(ucpx_send_on_stream(there, buffer.data(), 100, 1, stream.get(), nullptr),
                  UCS_ERR_INVALID_PARAM);
        ucpx_stream_op_h op = nullptr;
        EXPECT_EQ(ucpx_stream_wait(second().worker, receive, stream.get(), &op),
                  UCS_ERR_INVALID_PARAM);
        graph.end();
        graph.launch();
        EXPECT_TRUE(run({&stream}));
    }
    EXPECT_EQ(finish(ucp_tag_send_nbx(there, buffer.data(), 100, 12, &plain)), UCS_OK);
    EXPECT_EQ(finish(receive), UCS_OK) << "it is still the program's";
}

TEST_F(OnStreamTest, AReceiveThatNamesItsEndpointEndsWithIt) {
    const Stream receives, waits;
    Buffer target(Kind::kDevice, 100);
    auto word = std::make_unique<uint64_t>(0);
    ucpx_stream_op_h receive = nullptr, wait = nullptr, late = nullptr;
    ASSERT_EQ(ucpx_recv_on_stream(first->worker, there, target.data(), 100, 13, ~0ul,
                                  receives.get(), &receive),
              UCS_OK);
    ASSERT_EQ(
        ucpx_signal_wait_on_stream(first->worker, there, word.get(), 1, 0, waits.get(), &wait),
        UCS_OK);
    for (int i = 0; i < 1000; ++i) progress();
    EXPECT_FALSE(receives.is_done());
    // Its turn comes when there is no endpoint any more.
    ASSERT_EQ(ucpx_send_on_stream(there, target.data(), 100, 14, receives.get(), &late), UCS_OK);
    close(there);
    if (back == there) back = nullptr;
    there = nullptr;
    ASSERT_TRUE(run({&receives, &waits}));
    for (ucpx_stream_op_h op : {receive, wait, late}) {
        EXPECT_EQ(status_of(op), UCS_ERR_CANCELED);
        ucpx_stream_op_release(op);
    }
}

TEST_F(OnStreamTest, AWorkerThatGoesLetsStreamsGoOn) {
    const Stream armed, running, replayed;
    Buffer target(Kind::kDevice, 100);
    ucpx_stream_op_h receive = nullptr, captured = nullptr;
    const ucs_status_ptr_t request =
        ucp_tag_recv_nbx(first->worker, target.data(), 100, 16, ~0ul, &plain);
    cuda_test::CapturedGraph graph(replayed.get());
    ASSERT_EQ(ucpx_recv_on_stream(first->worker, there, target.data(), 100, 15, ~0ul,
                                  replayed.get(), &captured),
              UCS_OK);
    graph.end();
    graph.launch();
    ASSERT_EQ(ucpx_recv_on_stream(first->worker, nullptr, target.data(), 100, 15, ~0ul,
                                  running.get(), &receive),
              UCS_OK);
    for (int i = 0; i < 1000; ++i) progress();
    ASSERT_EQ(ucpx_recv_on_stream(first->worker, nullptr, target.data(), 100, 15, ~0ul, armed.get(),
                                  nullptr),
              UCS_OK);
    ASSERT_EQ(ucpx_stream_wait(first->worker, request, armed.get(), nullptr), UCS_OK);
    EXPECT_FALSE(running.is_done());
    ucp_worker_destroy(first->worker);
    first->worker = nullptr;
    there = nullptr;
    if (other == nullptr) back = nullptr;
    ASSERT_TRUE(run({&armed, &running, &replayed}));
    // And whoever comes later.
    for (int launch = 0; launch < 3; ++launch) graph.launch();
    ASSERT_TRUE(run({&replayed}));
}

// As many as there may be, and others when these have gone.
TEST_F(OnStreamTest, OperationsAreLimitedInNumberAndTheirWordsUsedAgain) {
    // The driver makes who puts a thousand things into one stream wait.
    const Stream streams[16];
    std::vector<const Stream*> all;
    for (const Stream& stream : streams) all.push_back(&stream);
    for (uint64_t round = 1; round <= 2; ++round) {
        auto word = std::make_unique<uint64_t>(0);
        size_t count = 0;
        ucs_status_t status = UCS_OK;
        for (; status == UCS_OK && count < 100000; ++count) {
            status = ucpx_signal_wait_on_stream(second().worker, nullptr, word.get(), round, 0,
                                                streams[count % all.size()].get(), nullptr);
        }
        EXPECT_EQ(status, UCS_ERR_NO_RESOURCE);
        EXPECT_GE(count, 16u);
        *word = round;
        ASSERT_TRUE(run(all));
    }
}

TEST_F(OnStreamTest, AWorkerWithOperationsDoesNotSleep) {
    const Worker sleeper(UCS_THREAD_MODE_SINGLE);
    const Stream stream;
    auto word = std::make_unique<uint64_t>(0);
    const auto arm = [&] {
        ucs_status_t status = UCS_ERR_BUSY;
        for (int tries = 0; tries < 100 && status == UCS_ERR_BUSY; ++tries) {
            ucp_worker_progress(sleeper.worker);
            status = ucp_worker_arm(sleeper.worker);
        }
        return status;
    };
    const ucs_status_t before = arm();
    if (before == UCS_ERR_UNSUPPORTED) GTEST_SKIP() << "this transport cannot sleep";
    EXPECT_EQ(before, UCS_OK);
    ASSERT_EQ(ucpx_signal_wait_on_stream(sleeper.worker, nullptr, word.get(), 1, 0, stream.get(),
                                         nullptr),
              UCS_OK);
    EXPECT_EQ(arm(), UCS_ERR_BUSY);
    *word = 1;
    while (!stream.is_done()) ucp_worker_progress(sleeper.worker);
    EXPECT_EQ(arm(), UCS_OK);
}

}  // namespace

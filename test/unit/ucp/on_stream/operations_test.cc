// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "ucs/memory/detector.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

using ucs::StreamStop;

// A device whose streams the tests move on by hand.
class FakeDevice final : public ucs::MemoryDetector {
  public:
    static FakeDevice& get() {
        static FakeDevice* const device = [] {
            auto* const made = new FakeDevice;
            ucs::register_memory_detector(*made);
            return made;
        }();
        return *device;
    }

    bool detect(const void*, size_t, ucs::MemoryInfo&) const override { return false; }
    bool is_in_use() const override { return in_use; }
    ucs_status_t insert_stop(void* stream, bool may_be_captured, StreamStop* stop) override {
        if (answer != UCS_OK) return answer;
        stop->is_captured = stream == kCaptured;
        if (stop->is_captured && !may_be_captured) return UCS_ERR_INVALID_PARAM;
        auto& words = words_.emplace_back();
        stop->reached = &words[0];
        stop->go = &words[1];
        stop->owner = this;
        stop->set(stop->is_captured ? StreamStop::kIdle : 0);
        stops.push_back(*stop);
        return UCS_OK;
    }
    void remove_stop(const StreamStop&, bool is_lost) override { ++(is_lost ? lost : removed); }

    // The stream has come to the stop.
    void reach(size_t index) const { *stops[index].reached = StreamStop::kReached; }
    bool is_open(size_t index) const { return (*stops[index].go & StreamStop::kGo) != 0; }
    bool is_idle(size_t index) const { return (*stops[index].go & StreamStop::kIdle) != 0; }
    void pass(size_t index) const {
        EXPECT_TRUE(is_open(index));
        *stops[index].reached = StreamStop::kPassed;
    }

    static inline int streams[2];
    static inline void* const kStream = &streams[0];
    static inline void* const kCaptured = &streams[1];

    bool in_use = false;
    ucs_status_t answer = UCS_OK;
    std::vector<StreamStop> stops;
    size_t removed = 0, lost = 0;

  private:
    std::deque<std::array<uint32_t, 2>> words_;
};

class OperationsTest : public ::testing::Test {
  protected:
    OperationsTest() {
        device.in_use = true;
        device.answer = UCS_OK;
        device.stops.clear();
        device.removed = device.lost = 0;
    }
    ~OperationsTest() override { device.in_use = false; }

    static ucpx_stream_op_attr_t ask(ucpx_stream_op_h op) {
        ucpx_stream_op_attr_t attributes{};
        attributes.field_mask = UCPX_STREAM_OP_ATTR_FIELD_STATUS | UCPX_STREAM_OP_ATTR_FIELD_RUNS |
                                UCPX_STREAM_OP_ATTR_FIELD_LENGTH |
                                UCPX_STREAM_OP_ATTR_FIELD_CAPTURED;
        EXPECT_EQ(ucpx_stream_op_query(op, &attributes), UCS_OK);
        return attributes;
    }
    ucs_status_t receive(void* stream, ucpx_stream_op_h* op, ucp_ep_h from = nullptr) {
        return ucpx_recv_on_stream(cluster.worker(1), from, in, sizeof(in), 1, ~0ul, stream, op);
    }
    void send(size_t length = 4) {
        const ucp_request_param_t plain{};
        EXPECT_EQ(cluster.finish(ucp_tag_send_nbx(cluster.endpoint(0, 1), out, length, 1, &plain)),
                  UCS_OK);
    }

    FakeDevice& device = FakeDevice::get();
    Cluster cluster{2};
    char out[16] = "abc";
    char in[16] = {};
};

TEST_F(OperationsTest, ThereAreNoneWithoutADeviceInUse) {
    device.in_use = false;
    ucpx_stream_op_h op = nullptr;
    EXPECT_EQ(receive(FakeDevice::kStream, &op), UCS_ERR_UNSUPPORTED);
    device.in_use = true;
    device.answer = UCS_ERR_NO_RESOURCE;
    EXPECT_EQ(receive(FakeDevice::kStream, &op), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(op, nullptr);
}

TEST_F(OperationsTest, OneBeginsWhenTheStreamComesAndLetsItGoOnAtItsEnd) {
    ucpx_stream_op_h op = nullptr;
    ASSERT_EQ(receive(FakeDevice::kStream, &op), UCS_OK);
    send();
    cluster.steps(100);
    EXPECT_EQ(ask(op).status, UCS_INPROGRESS);
    EXPECT_STREQ(in, "") << "received before the stream had come";
    device.reach(0);
    ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
    EXPECT_STREQ(in, "abc");
    EXPECT_EQ(ask(op).status, UCS_OK);
    EXPECT_EQ(ask(op).runs, 1u);
    EXPECT_EQ(ask(op).length, 4u);
    EXPECT_EQ(device.removed, 1u);
    ucpx_stream_op_release(op);
}

TEST_F(OperationsTest, OneGoesOnWithoutItsHandle) {
    ucpx_stream_op_h op = nullptr;
    ASSERT_EQ(receive(FakeDevice::kStream, &op), UCS_OK);
    device.reach(0);
    cluster.steps(10);
    ucpx_stream_op_release(op);
    cluster.steps(10);
    EXPECT_FALSE(device.is_open(0));
    send();
    ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
    EXPECT_STREQ(in, "abc");
}

TEST_F(OperationsTest, ACapturedOneRunsEachTimeTheStreamComes) {
    ucpx_stream_op_h op = nullptr;
    ASSERT_EQ(receive(FakeDevice::kCaptured, &op), UCS_OK);
    EXPECT_EQ(receive(FakeDevice::kCaptured, nullptr), UCS_ERR_INVALID_PARAM);
    for (uint64_t run = 1; run <= 3; ++run) {
        std::memset(in, 0, sizeof(in));
        ASSERT_TRUE(device.is_idle(0));
        device.reach(0);
        cluster.steps(10);
        EXPECT_FALSE(device.is_open(0));
        EXPECT_EQ(ask(op).status, UCS_INPROGRESS);
        send();
        ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
        EXPECT_STREQ(in, "abc");
        cluster.steps(10);
        // What comes now must not pass by the go of this run.
        EXPECT_FALSE(device.is_idle(0));
        device.pass(0);
        ASSERT_TRUE(cluster.until([&] { return device.is_idle(0); }));
        EXPECT_FALSE(device.is_open(0));
        EXPECT_EQ(ask(op).runs, run);
        EXPECT_EQ(ask(op).status, UCS_OK);
    }
    EXPECT_EQ(device.removed, 0u);
    ucpx_stream_op_release(op);
    cluster.steps(10);
    EXPECT_EQ(device.removed, 1u);
}

TEST_F(OperationsTest, AnErrorIsKeptAndLaterRunsGoOn) {
    ucpx_stream_op_h op = nullptr;
    ASSERT_EQ(receive(FakeDevice::kCaptured, &op), UCS_OK);
    char longer[64] = {};
    const ucp_request_param_t plain{};
    device.reach(0);
    cluster.steps(10);
    (void)cluster.finish(
        ucp_tag_send_nbx(cluster.endpoint(0, 1), longer, sizeof(longer), 1, &plain));
    ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
    device.pass(0);
    ASSERT_TRUE(cluster.until([&] { return device.is_idle(0); }));
    device.reach(0);
    send();
    ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
    EXPECT_EQ(ask(op).status, UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(ask(op).runs, 2u);
    EXPECT_EQ(ask(op).failures, 1u);
    ucpx_stream_op_release(op);
}

TEST_F(OperationsTest, AGroupEndsWhenAllItsPartsHave) {
    char first[8] = {}, second[8] = {};
    ucpx_stream_part_t parts[2] = {};
    for (ucpx_stream_part_t& part : parts) {
        part.kind = UCPX_STREAM_PART_RECV;
        part.length = 8;
        part.tag_mask = ~0ul;
    }
    parts[0].buffer = first;
    parts[0].tag = 2;
    parts[1].buffer = second;
    parts[1].tag = 3;
    ucpx_stream_op_h op = nullptr;
    ASSERT_EQ(ucpx_group_on_stream(cluster.worker(1), parts, 2, sizeof(parts[0]),
                                   FakeDevice::kStream, &op),
              UCS_OK);
    device.reach(0);
    const ucp_request_param_t plain{};
    ASSERT_EQ(cluster.finish(ucp_tag_send_nbx(cluster.endpoint(0, 1), out, 4, 3, &plain)), UCS_OK);
    cluster.steps(100);
    EXPECT_FALSE(device.is_open(0));
    ASSERT_EQ(cluster.finish(ucp_tag_send_nbx(cluster.endpoint(0, 1), out, 3, 2, &plain)), UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
    EXPECT_STREQ(second, "abc");
    EXPECT_EQ(ask(op).length, 7u);
    ucpx_stream_op_release(op);
}

TEST_F(OperationsTest, AWaitForAWordEndsAtItsValueOrPastIt) {
    uint64_t word = UINT64_MAX - 1;
    ucpx_stream_op_h op = nullptr;
    ASSERT_EQ(ucpx_signal_wait_on_stream(cluster.worker(1), nullptr, &word, UINT64_MAX, 3,
                                         FakeDevice::kCaptured, &op),
              UCS_OK);
    device.reach(0);
    cluster.steps(10);
    EXPECT_FALSE(device.is_open(0));
    word = 1;  // past it, around the end
    ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
    device.pass(0);
    ASSERT_TRUE(cluster.until([&] { return device.is_idle(0); }));
    // The next run waits for UINT64_MAX + 3.
    device.reach(0);
    cluster.steps(10);
    EXPECT_FALSE(device.is_open(0));
    word = 2;
    ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
    ucpx_stream_op_release(op);
}

TEST_F(OperationsTest, APutsSignalComesBehindItsData) {
    struct {
        uint64_t word = 0;
        char data[8] = {};
    } there;
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = &there;
    params.length = sizeof(there);
    ucp_mem_h memory = nullptr;
    ASSERT_EQ(ucp_mem_map(cluster.context(1), &params, &memory), UCS_OK);
    void* bytes = nullptr;
    size_t size = 0;
    ucp_rkey_h key = nullptr;
    ASSERT_EQ(ucp_rkey_pack(cluster.context(1), memory, &bytes, &size), UCS_OK);
    ASSERT_EQ(ucp_ep_rkey_unpack(cluster.endpoint(0, 1), bytes, &key), UCS_OK);
    ucp_rkey_buffer_release(bytes);
    ucpx_signal_t signal{};
    signal.field_mask = UCPX_SIGNAL_FIELD_STEP;
    signal.remote_addr = reinterpret_cast<uintptr_t>(&there.word);
    signal.rkey = key;
    signal.op = UCPX_SIGNAL_ADD;
    signal.value = 5;
    signal.step = 1;
    ucpx_stream_op_h op = nullptr;
    ASSERT_EQ(
        ucpx_put_on_stream(cluster.endpoint(0, 1), out, 4, reinterpret_cast<uintptr_t>(there.data),
                           key, &signal, FakeDevice::kCaptured, &op),
        UCS_OK);
    for (const uint64_t told : {5, 5 + 6}) {
        device.reach(0);
        ASSERT_TRUE(cluster.until([&] { return there.word == told; }));
        EXPECT_STREQ(there.data, "abc");
        std::memset(there.data, 0, sizeof(there.data));
        ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
        device.pass(0);
        ASSERT_TRUE(cluster.until([&] { return device.is_idle(0); }));
    }
    EXPECT_EQ(ask(op).status, UCS_OK);
    ucpx_stream_op_release(op);
    ucp_rkey_destroy(key);
    EXPECT_EQ(ucp_mem_unmap(cluster.context(1), memory), UCS_OK);
}

TEST_F(OperationsTest, AReceiveEndsWithTheEndpointItNames) {
    const ucp_ep_h back = cluster.endpoint(1, 0);
    send();
    ASSERT_EQ(receive(FakeDevice::kStream, nullptr), UCS_OK);
    device.reach(0);
    ASSERT_TRUE(cluster.until([&] { return device.is_open(0); }));
    ucpx_stream_op_h op = nullptr, late = nullptr;
    ASSERT_EQ(receive(FakeDevice::kStream, &op, back), UCS_OK);
    ASSERT_EQ(ucpx_flush_on_stream(back, FakeDevice::kStream, &late), UCS_OK);
    device.reach(1);
    cluster.steps(10);
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    (void)ucp_ep_close_nbx(back, &force);
    cluster.forget(1, 0);
    ASSERT_TRUE(cluster.until([&] { return device.is_open(1); }));
    EXPECT_EQ(ask(op).status, UCS_ERR_CANCELED);
    device.reach(2);
    ASSERT_TRUE(cluster.until([&] { return device.is_open(2); }));
    EXPECT_EQ(ask(late).status, UCS_ERR_CANCELED);
    ucpx_stream_op_release(op);
    ucpx_stream_op_release(late);
}

TEST_F(OperationsTest, AWorkersEndOpensAllStopsForGood) {
    const ucp_request_param_t plain{};
    ucpx_stream_op_h captured = nullptr;
    const ucs_status_ptr_t request =
        ucp_tag_recv_nbx(cluster.worker(1), in, sizeof(in), 9, ~0ul, &plain);
    ASSERT_EQ(receive(FakeDevice::kStream, nullptr), UCS_OK);
    ASSERT_EQ(receive(FakeDevice::kStream, nullptr), UCS_OK);
    ASSERT_EQ(receive(FakeDevice::kCaptured, &captured), UCS_OK);
    ASSERT_EQ(ucpx_stream_wait(cluster.worker(1), request, FakeDevice::kStream, nullptr), UCS_OK);
    device.reach(0);
    cluster.steps(10);
    cluster.destroy(1);
    for (const size_t index : {0, 1, 2, 3}) EXPECT_TRUE(device.is_open(index)) << index;
    EXPECT_TRUE(device.is_idle(2));
    EXPECT_EQ(device.removed, 3u);
    EXPECT_EQ(device.lost, 1u);
}

}  // namespace
}  // namespace ucp::test

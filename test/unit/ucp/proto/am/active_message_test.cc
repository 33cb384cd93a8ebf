// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

struct Handled {
    ucp_worker_h worker;
    unsigned calls = 0;
    bool keep = false;
    bool was_keepable = false;
    bool was_announced = false;
    std::string header;
    std::vector<uint8_t> data;
    void* kept = nullptr;
    size_t kept_length = 0;
    ucp_ep_h reply = nullptr;
    ucs_status_ptr_t fetching = nullptr;
};

ucs_status_t handle(void* arg, const void* header, size_t header_length, void* data, size_t length,
                    const ucp_am_recv_param_t* param) {
    auto& handled = *static_cast<Handled*>(arg);
    ++handled.calls;
    handled.header.assign(static_cast<const char*>(header), header_length);
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) handled.reply = param->reply_ep;
    handled.was_keepable = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        handled.was_announced = true;
        handled.data.resize(length);
        handled.fetching =
            ucp_am_recv_data_nbx(handled.worker, data, handled.data.data(), length, &kNothing);
        return UCS_OK;
    }
    if (handled.keep && handled.was_keepable) {
        handled.kept = data;
        handled.kept_length = length;
        return UCS_INPROGRESS;
    }
    const auto* bytes = static_cast<const uint8_t*>(data);
    handled.data.assign(bytes, bytes + length);
    return UCS_OK;
}

class ActiveMessages : public ::testing::TestWithParam<size_t> {
  protected:
    void listen(Handled& handled, uint32_t flags = 0) {
        handled.worker = cluster.worker(1);
        ucp_am_handler_param_t param{};
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                           UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
        param.id = 7;
        param.cb = handle;
        param.arg = &handled;
        param.flags = flags;
        ASSERT_EQ(ucp_worker_set_am_recv_handler(cluster.worker(1), &param), UCS_OK);
    }
    void send(const std::string& header, const std::vector<uint8_t>& bytes, uint32_t flags) {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = flags;
        sending = ucp_am_send_nbx(cluster.endpoint(0, 1), 7, header.data(), header.size(),
                                  bytes.data(), bytes.size(), &param);
        ASSERT_FALSE(UCS_PTR_IS_ERR(sending));
    }

    Cluster cluster{2};
    ucs_status_ptr_t sending = nullptr;
};

TEST_P(ActiveMessages, BringHeaderDataAndReplyEndpoint) {
    Handled handled;
    listen(handled);
    const auto bytes = pattern(GetParam(), 4);
    send("a header", bytes, UCP_AM_SEND_FLAG_REPLY);
    ASSERT_TRUE(cluster.until([&] { return handled.calls == 1; }));
    EXPECT_EQ(cluster.finish(handled.fetching), UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    EXPECT_EQ(handled.header, "a header");
    EXPECT_EQ(handled.data, bytes);
    ASSERT_NE(handled.reply, nullptr);
    uint64_t answer = 0;
    const uint64_t question = 42;
    EXPECT_EQ(cluster.finish(ucp_tag_send_nbx(handled.reply, &question, 8, 1, &kNothing)), UCS_OK);
    EXPECT_EQ(
        cluster.finish(ucp_tag_recv_nbx(cluster.worker(0), &answer, 8, 1, ~uint64_t{0}, &kNothing)),
        UCS_OK);
    EXPECT_EQ(answer, 42u);
}

TEST_P(ActiveMessages, MayBeKept) {
    Handled handled;
    handled.keep = true;
    listen(handled, UCP_AM_FLAG_PERSISTENT_DATA);
    const auto bytes = pattern(GetParam(), 5);
    send("", bytes, UCP_AM_SEND_FLAG_EAGER);
    ASSERT_TRUE(cluster.until([&] { return handled.calls == 1; }));
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    cluster.steps(100);
    if (handled.kept == nullptr) {
        EXPECT_EQ(bytes.size(), 0u);
        return;
    }
    ASSERT_EQ(handled.kept_length, bytes.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), static_cast<const uint8_t*>(handled.kept)));
    ucp_am_data_release(cluster.worker(1), handled.kept);
}

TEST_P(ActiveMessages, AreFetchedIfTheSenderWantsThat) {
    Handled handled;
    listen(handled);
    const auto bytes = pattern(GetParam(), 6);
    send("h", bytes, UCP_AM_SEND_FLAG_RNDV);
    ASSERT_TRUE(cluster.until([&] { return handled.calls == 1; }));
    EXPECT_EQ(cluster.finish(handled.fetching), UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    EXPECT_EQ(handled.was_announced, !bytes.empty());
    EXPECT_EQ(handled.data, bytes);
}

// A header goes in one piece, whatever the lane.
TEST_P(ActiveMessages, HaveHeadersOfALimitedLength) {
    Handled handled;
    listen(handled);
    ucp_worker_attr_t limits{};
    limits.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
    ASSERT_EQ(ucp_worker_query(cluster.worker(0), &limits), UCS_OK);
    const auto bytes = pattern(GetParam(), 7);
    const std::string longest(limits.max_am_header, 'h'), longer = longest + "h";
    EXPECT_EQ(
        UCS_PTR_RAW_STATUS(ucp_am_send_nbx(cluster.endpoint(0, 1), 7, longer.data(), longer.size(),
                                           bytes.data(), bytes.size(), &kNothing)),
        UCS_ERR_INVALID_PARAM);
    send(longest, bytes, 0);
    ASSERT_TRUE(cluster.until([&] { return handled.calls == 1; }));
    EXPECT_EQ(cluster.finish(handled.fetching), UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    EXPECT_EQ(handled.header, longest);
    EXPECT_EQ(handled.data, bytes);
}

// Handlers of the older kind cannot fetch: whatever the length, they get the data.
TEST_P(ActiveMessages, OfTheOlderCallsBringAllData) {
    std::vector<uint8_t> got;
    bool came = false;
    std::pair<std::vector<uint8_t>*, bool*> into{&got, &came};
    const auto store = [](void* arg, void* data, size_t length, ucp_ep_h, unsigned) {
        auto& [bytes, flag] = *static_cast<decltype(into)*>(arg);
        const auto* first = static_cast<const uint8_t*>(data);
        bytes->assign(first, first + length);
        *flag = true;
        return UCS_OK;
    };
    ASSERT_EQ(ucp_worker_set_am_handler(cluster.worker(1), 9, store, &into, 0), UCS_OK);
    const auto bytes = pattern(GetParam(), 7);
    sending = ucp_am_send_nb(
        cluster.endpoint(0, 1), 9, bytes.data(), bytes.size(), ucp_dt_make_contig(1),
        [](void*, ucs_status_t) {}, 0);
    ASSERT_TRUE(cluster.until([&] { return came; }));
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    EXPECT_EQ(got, bytes);
}

// A program may set its handler when its own send has ended; the answer may have come by then.
TEST_P(ActiveMessages, WaitForTheirHandler) {
    const auto bytes = pattern(GetParam(), 8);
    send("early", bytes, UCP_AM_SEND_FLAG_REPLY);
    cluster.steps(100);
    Handled handled;
    listen(handled);
    EXPECT_EQ(handled.calls, 0u) << "handlers are called from progress";
    ASSERT_TRUE(cluster.until([&] { return handled.calls == 1; }));
    EXPECT_EQ(cluster.finish(handled.fetching), UCS_OK);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    EXPECT_EQ(handled.header, "early");
    EXPECT_EQ(handled.data, bytes);
    EXPECT_NE(handled.reply, nullptr);
}

TEST_P(ActiveMessages, WithoutAHandlerLetTheirSendEnd) {
    const auto bytes = pattern(GetParam(), 9);
    send("nobody", bytes, UCP_AM_SEND_FLAG_RNDV);
    cluster.clock.advance(std::chrono::seconds(1));
    cluster.steps(100);
    cluster.clock.advance(std::chrono::seconds(1));
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    cluster.step();
    Handled handled;
    listen(handled);
    cluster.steps(100);
    EXPECT_EQ(handled.calls, 0u) << "dropped after a second";
}

// The numbers that arrive; the handler may take itself away for a while.
struct Numbers {
    ucp_worker_h worker;
    std::vector<uint32_t> seen;
    size_t pause_behind = SIZE_MAX;

    void set(bool is_on) {
        ucp_am_handler_param_t param{};
        param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                           UCP_AM_HANDLER_PARAM_FIELD_ARG;
        param.id = 7;
        param.cb = is_on ? note : nullptr;
        param.arg = this;
        ASSERT_EQ(ucp_worker_set_am_recv_handler(worker, &param), UCS_OK);
    }
    static ucs_status_t note(void* arg, const void*, size_t, void* data, size_t length,
                             const ucp_am_recv_param_t*) {
        auto& self = *static_cast<Numbers*>(arg);
        uint32_t number = 0;
        EXPECT_EQ(length, sizeof(number));
        std::memcpy(&number, data, sizeof(number));
        self.seen.push_back(number);
        if (self.seen.size() == self.pause_behind) self.set(false);
        return UCS_OK;
    }
};

class EarlyMessagesInOrder : public ::testing::Test {
  protected:
    void send(uint32_t first, uint32_t last) {
        for (uint32_t number = first; number < last; ++number) {
            EXPECT_EQ(cluster.finish(ucp_am_send_nbx(cluster.endpoint(0, 1), 7, nullptr, 0, &number,
                                                     sizeof(number), &kNothing)),
                      UCS_OK);
        }
    }
    void expect_all(uint32_t count) {
        ASSERT_EQ(numbers.seen.size(), count);
        for (uint32_t number = 0; number < count; ++number) ASSERT_EQ(numbers.seen[number], number);
    }

    Cluster cluster{2};
    Numbers numbers{cluster.worker(1), {}};
};

TEST_F(EarlyMessagesInOrder, BeforeThoseThatComeLater) {
    send(0, 10);
    cluster.steps(10);
    numbers.set(true);
    send(10, 20);
    cluster.steps(100);
    expect_all(20);
}

TEST_F(EarlyMessagesInOrder, AlsoIfTheHandlerIsTakenAwayMeanwhile) {
    send(0, 10);
    cluster.steps(10);
    numbers.pause_behind = 3;
    numbers.set(true);
    cluster.steps(10);
    expect_all(3);
    send(10, 20);
    cluster.steps(10);
    numbers.set(true);
    numbers.set(true);
    cluster.steps(100);
    expect_all(20);
}

TEST_F(EarlyMessagesInOrder, NotMoreThanTheBound) {
    constexpr uint32_t kRoom = EarlyMessages::kMostMessages;
    send(0, kRoom + 10);
    cluster.steps(100);
    numbers.set(true);
    cluster.steps(100);
    expect_all(kRoom);
}

TEST_F(EarlyMessagesInOrder, AreGoneWithTheirWorker) {
    send(0, 10);
    cluster.steps(10);
    cluster.destroy(1);  // the checker of leaks tells if any stays
}

INSTANTIATE_TEST_SUITE_P(Sizes, ActiveMessages,
                         ::testing::Values(0, 1, 8, 64, 1000, 1024, 5000, 100000));

struct Thrown {};

TEST(Callbacks, ThatThrowLeaveTheWorkerUsable) {
    Cluster cluster(2);
    static unsigned calls;
    calls = 0;
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB;
    handler.id = 7;
    handler.cb = [](void*, const void*, size_t, void*, size_t,
                    const ucp_am_recv_param_t*) -> ucs_status_t {
        if (++calls == 1) throw Thrown();
        return UCS_OK;
    };
    ASSERT_EQ(ucp_worker_set_am_recv_handler(cluster.worker(1), &handler), UCS_OK);
    const auto send = [&] {
        const char word[8] = {};
        const ucs_status_ptr_t sending =
            ucp_am_send_nbx(cluster.endpoint(0, 1), 7, nullptr, 0, word, sizeof(word), &kNothing);
        if (UCS_PTR_IS_PTR(sending)) ucp_request_free(sending);
    };
    send();
    EXPECT_THROW(cluster.steps(1000), Thrown);
    send();
    EXPECT_TRUE(cluster.until([] { return calls == 2; }, 1000));
}

}  // namespace
}  // namespace ucp::test

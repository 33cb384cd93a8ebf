// SPDX-License-Identifier: BSD-3-Clause

// The calls that UCX keeps for older programs, and the rarer ones, judged by what its headers
// promise: what is returned, which callback is called when, what a target holds afterwards.

#include "unit/ucp/capi/older_calls.h"

namespace ucp::test {
namespace {

// --- one-sided: what is returned is the end

TEST_P(OlderCalls, PutAndGetReturnWhenTheBufferMayBeUsedAgain) {
    for (const size_t length : {size_t{1}, size_t{64}, sizeof(memory_)}) {
        memory_.fill(0);
        std::vector<uint8_t> sent(length), back(length);
        for (size_t i = 0; i < length; ++i) sent[i] = static_cast<uint8_t>(i * 7 + length);
        waiting([&] {
            EXPECT_EQ(ucp_put(endpoint_, sent.data(), length, address(0), key_), UCS_OK);
            EXPECT_EQ(ucp_ep_flush(endpoint_), UCS_OK);
            EXPECT_EQ(std::memcmp(memory_.data(), sent.data(), length), 0) << "after the flush";
            EXPECT_EQ(ucp_get(endpoint_, back.data(), length, address(0), key_), UCS_OK);
        });
        EXPECT_EQ(back, sent) << "a get has ended when its call returns";
    }
    EXPECT_EQ(ucp_put(endpoint_, nullptr, 0, address(0), key_), UCS_OK);
    EXPECT_EQ(ucp_get(endpoint_, nullptr, 0, address(0), key_), UCS_OK);
    EXPECT_EQ(ucp_put(endpoint_, &memory_, 8, address(0), nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_get(endpoint_, &memory_, 8, address(0), nullptr), UCS_ERR_INVALID_PARAM);
}

TEST_P(OlderCalls, AFlushReachesTheTargetsOfAllEndpoints) {
    const ucp_ep_h second = connect();
    const uint64_t values[] = {11, 22};
    static int calls;
    const ucp_send_callback_t count = [](void*, ucs_status_t status) {
        EXPECT_EQ(status, UCS_OK);
        ++calls;
    };
    const auto put_then = [&](auto&& flush) {
        memory_.fill(0);
        calls = 0;
        waiting([&] {
            EXPECT_GE(ucp_put_nbi(endpoint_, &values[0], 8, address(0), key_), 0);
            EXPECT_GE(ucp_put_nbi(second, &values[1], 8, address(1), key_), 0);
            flush();
        });
        EXPECT_EQ(memory_[0], 11u);
        EXPECT_EQ(memory_[1], 22u);
    };
    const auto end = [&](ucs_status_ptr_t flush) {
        const bool is_request = UCS_PTR_IS_PTR(flush);
        EXPECT_EQ(finish_near(flush), UCS_OK);
        EXPECT_EQ(calls, is_request ? 1 : 0) << "no callback for what ended in the call";
        calls = 0;
    };
    put_then([&] { EXPECT_EQ(ucp_worker_flush(near_.worker), UCS_OK); });
    put_then([&] { end(ucp_worker_flush_nb(near_.worker, 0, count)); });
    put_then([&] {
        EXPECT_EQ(ucp_ep_flush(second), UCS_OK);
        end(ucp_ep_flush_nb(endpoint_, 0, count));
    });
    EXPECT_EQ(finish(ucp_disconnect_nb(second)), UCS_OK);
}

// --- atomics: an operand of 4 bytes leaves its neighbour alone; the old value is the result

TEST_P(OlderCalls, AtomicsOf32Bits) {
    memory_[0] = 0xaaaaaaaa00000010;
    uint32_t old = 0;
    waiting([&] {
        EXPECT_EQ(ucp_atomic_add32(endpoint_, 0xfffffff1, address(0), key_), UCS_OK);
        EXPECT_EQ(ucp_ep_flush(endpoint_), UCS_OK);
        EXPECT_EQ(first_half(0), 1u) << "modulo 2^32";
        EXPECT_EQ(ucp_atomic_fadd32(endpoint_, 4, address(0), key_, &old), UCS_OK);
        EXPECT_EQ(old, 1u);
        EXPECT_EQ(ucp_atomic_swap32(endpoint_, 77, address(0), key_, &old), UCS_OK);
        EXPECT_EQ(old, 5u);
        EXPECT_EQ(ucp_atomic_cswap32(endpoint_, 76, 88, address(0), key_, &old), UCS_OK);
        EXPECT_EQ(old, 77u);
        EXPECT_EQ(first_half(0), 77u) << "not what it was compared with";
        EXPECT_EQ(ucp_atomic_cswap32(endpoint_, 77, 88, address(0), key_, &old), UCS_OK);
        EXPECT_EQ(old, 77u);
        EXPECT_EQ(first_half(0), 88u);
    });
    EXPECT_EQ(memory_[0] >> 32, 0xaaaaaaaau);
}

TEST_P(OlderCalls, AtomicsOf64Bits) {
    memory_[2] = 0xffffffff;
    memory_[3] = 9;
    uint64_t old = 0;
    waiting([&] {
        EXPECT_EQ(ucp_atomic_add64(endpoint_, 1, address(2), key_), UCS_OK);
        EXPECT_EQ(ucp_ep_flush(endpoint_), UCS_OK);
        EXPECT_EQ(memory_[2], 0x100000000u) << "the carry goes on";
        EXPECT_EQ(ucp_atomic_fadd64(endpoint_, ~uint64_t{0}, address(2), key_, &old), UCS_OK);
        EXPECT_EQ(old, 0x100000000u);
        EXPECT_EQ(ucp_atomic_swap64(endpoint_, 0x1122334455667788, address(2), key_, &old), UCS_OK);
        EXPECT_EQ(old, 0xffffffffu);
        EXPECT_EQ(ucp_atomic_cswap64(endpoint_, 1, 2, address(2), key_, &old), UCS_OK);
        EXPECT_EQ(old, 0x1122334455667788u);
        EXPECT_EQ(memory_[2], 0x1122334455667788u);
        EXPECT_EQ(ucp_atomic_cswap64(endpoint_, old, 2, address(2), key_, &old), UCS_OK);
        EXPECT_EQ(old, 0x1122334455667788u);
        EXPECT_EQ(memory_[2], 2u);
    });
    EXPECT_EQ(memory_[3], 9u);
    EXPECT_EQ(ucp_atomic_add64(endpoint_, 1, address(2), nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_atomic_fadd32(endpoint_, 1, address(2), nullptr, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_atomic_swap64(endpoint_, 1, address(2), key_, nullptr), UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(ucp_atomic_cswap64(endpoint_, 1, 2, address(2), key_, nullptr),
              UCS_ERR_INVALID_PARAM);
    EXPECT_EQ(memory_[2], 2u);
}

TEST_P(OlderCalls, WaitingForMemoryEndsWhenThePeerHasWrittenIt) {
    volatile uint64_t* flag = &memory_[5];
    const uint64_t one = 1;
    EXPECT_GE(ucp_put_nbi(endpoint_, &one, 8, address(5), key_), 0);
    ucs_status_ptr_t flush = ucp_ep_flush_nb(endpoint_, 0, nullptr);
    while (*flag == 0) {
        ucp_worker_wait_mem(far_->worker, const_cast<uint64_t*>(flag));
        step();
    }
    EXPECT_EQ(finish(flush), UCS_OK);
}

// --- tagged messages

// Calls of a callback of the older form, which has no argument of the user's.
struct Calls {
    static inline int sends, receives;
    static inline ucs_status_t status;
    static inline ucp_tag_recv_info_t info;

    static void reset() {
        sends = receives = 0;
        status = UCS_ERR_LAST;
    }
    static void sent(void* request, ucs_status_t end) {
        EXPECT_NE(request, nullptr);
        EXPECT_EQ(end, UCS_OK);
        ++sends;
    }
    static void received(void* request, ucs_status_t end, ucp_tag_recv_info_t* what) {
        EXPECT_NE(request, nullptr);
        ++receives;
        status = end;
        info = *what;
    }
};

TEST_P(OlderCalls, ATaggedReceiveAlwaysCallsBackAndNeverReturnsNull) {
    for (const size_t length : {size_t{8}, kLong}) {
        for (const bool early : {false, true}) {
            for (const bool sync : {false, true}) {
                Calls::reset();
                std::vector<char> source(length, 'x'), sink(length + 1, 0);
                const auto receive = [&] {
                    return ucp_tag_recv_nb(far_->worker, sink.data(), sink.size(), kByte, 0x10,
                                           0xf0, Calls::received);
                };
                const auto send = [&] {
                    return (sync ? ucp_tag_send_sync_nb : ucp_tag_send_nb)(
                        endpoint_, source.data(), length, kByte, 0x17, Calls::sent);
                };
                ucs_status_ptr_t receiving = early ? receive() : nullptr;
                const ucs_status_ptr_t sending = send();
                if (!early) {
                    for (int i = 0; i < 50; ++i) step();
                    if (sync) {
                        EXPECT_EQ(ucp_request_check_status(sending), UCS_INPROGRESS);
                    }
                    receiving = receive();
                }
                ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
                ucp_tag_recv_info_t info{};
                ucs_status_t status;
                while ((status = ucp_tag_recv_request_test(receiving, &info)) == UCS_INPROGRESS) {
                    step();
                }
                EXPECT_EQ(status, UCS_OK);
                EXPECT_EQ(info.length, length);
                EXPECT_EQ(info.sender_tag, 0x17u) << "with the bits outside the mask";
                EXPECT_EQ(Calls::receives, 1);
                EXPECT_EQ(Calls::status, UCS_OK);
                EXPECT_EQ(Calls::info.length, length);
                const bool is_request = UCS_PTR_IS_PTR(sending);
                EXPECT_EQ(finish(sending), UCS_OK);
                EXPECT_EQ(Calls::sends, is_request ? 1 : 0);
                ucp_request_release(receiving);
                EXPECT_EQ(std::memcmp(sink.data(), source.data(), length), 0);
                EXPECT_EQ(sink[length], 0);
            }
        }
    }
}

// MPICH releases what it has just sent, and waits for the callback.
TEST_P(OlderCalls, AReleasedRequestTellsItsEndAndAFreedOneDoesNot) {
    static int calls;
    const ucp_tag_recv_callback_t count = [](void*, ucs_status_t status, ucp_tag_recv_info_t*) {
        EXPECT_EQ(status, UCS_OK);
        ++calls;
    };
    for (const bool is_released : {true, false}) {
        for (const size_t length : {size_t{8}, kLong}) {
            calls = 0;
            const std::vector<char> source(length, 'z');
            std::vector<char> sink(length);
            const ucs_status_ptr_t receiving =
                ucp_tag_recv_nb(far_->worker, sink.data(), length, kByte, 9, ~ucp_tag_t{0}, count);
            ASSERT_TRUE(UCS_PTR_IS_PTR(receiving));
            (is_released ? ucp_request_release : ucp_request_free)(receiving);
            EXPECT_EQ(calls, 0);
            const ucp_request_param_t none{};
            EXPECT_EQ(finish(ucp_tag_send_sync_nbx(endpoint_, source.data(), length, 9, &none)),
                      UCS_OK);
            while (sink != source) step();
            for (int i = 0; i < 50; ++i) step();
            EXPECT_EQ(calls, is_released ? 1 : 0);
        }
    }
}

TEST_P(OlderCalls, ASendInMemoryOfTheCallersLeavesItToTheCaller) {
    ucp_context_attr_t attr{};
    attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE;
    ASSERT_EQ(ucp_context_query(near_.context, &attr), UCS_OK);
    std::vector<std::max_align_t> room(attr.request_size / sizeof(std::max_align_t) + 2);
    // The state lies before the handle; nothing behind it is touched.
    char* request =
        reinterpret_cast<char*>(room.data()) + (room.size() - 1) * sizeof(std::max_align_t);
    std::memset(request, 0x5a, sizeof(std::max_align_t));
    for (const size_t length : {size_t{8}, kLong}) {
        std::vector<char> source(length, 'y'), sink(length);
        ucs_status_t status = ucp_tag_send_nbr(endpoint_, source.data(), length, kByte, 3, request);
        ASSERT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
        const ucp_request_param_t none{};
        EXPECT_EQ(
            finish(ucp_tag_recv_nbx(far_->worker, sink.data(), length, 3, ~ucp_tag_t{0}, &none)),
            UCS_OK);
        while (status == UCS_INPROGRESS) {
            step();
            status = ucp_request_check_status(request);
        }
        EXPECT_EQ(status, UCS_OK);
        EXPECT_EQ(sink, source);
        for (int i = 0; i < 50; ++i) step();
        ucp_tag_recv_info_t info;
        EXPECT_EQ(ucp_tag_probe_nb(far_->worker, 0, 0, 0, &info), nullptr) << "it is sent once";
    }
    for (size_t i = 0; i < sizeof(std::max_align_t); ++i) EXPECT_EQ(request[i], 0x5a);
}

TEST_P(OlderCalls, AProbedMessageIsReceivedByItsHandle) {
    std::vector<char> source(300, 'z'), sink(300), again(300);
    const ucp_request_param_t none{};
    for (const bool older : {false, true}) {
        Calls::reset();
        ucs_status_ptr_t sending =
            ucp_tag_send_nb(endpoint_, source.data(), source.size(), kByte, 9, nullptr);
        ucp_tag_recv_info_t info{};
        ucp_tag_message_h message = nullptr;
        while (message == nullptr) {
            step();
            message = ucp_tag_probe_nb(far_->worker, 9, ~ucp_tag_t{0}, 1, &info);
        }
        EXPECT_EQ(info.length, source.size());
        ucs_status_ptr_t receiving =
            older ? ucp_tag_msg_recv_nb(far_->worker, sink.data(), sink.size(), kByte, message,
                                        Calls::received)
                  : ucp_tag_msg_recv_nbx(far_->worker, again.data(), again.size(), message, &none);
        ASSERT_TRUE(!older || UCS_PTR_IS_PTR(receiving));
        EXPECT_EQ(finish(receiving), UCS_OK);
        EXPECT_EQ(Calls::receives, older ? 1 : 0);
        EXPECT_EQ(finish(sending), UCS_OK);
        EXPECT_EQ(older ? sink : again, source);
    }
}

// --- requests

TEST_P(OlderCalls, ARequestOfTheWorkersServesAnOperationOfTheCallers) {
    void* request = ucp_request_alloc(near_.worker);
    ASSERT_NE(request, nullptr);
    std::vector<char> source(kLong, 'q'), sink(kLong);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_REQUEST;
    param.request = request;
    ASSERT_EQ(ucp_tag_send_nbx(endpoint_, source.data(), kLong, 4, &param), request);

    char text[200] = "";
    ucp_request_attr_t attr{};
    attr.field_mask = UCP_REQUEST_ATTR_FIELD_INFO_STRING | UCP_REQUEST_ATTR_FIELD_STATUS |
                      UCP_REQUEST_ATTR_FIELD_MEM_TYPE;
    attr.debug_string = text;
    EXPECT_EQ(ucp_request_query(request, &attr), UCS_ERR_INVALID_PARAM) << "no room was named";
    attr.field_mask |= UCP_REQUEST_ATTR_FIELD_INFO_STRING_SIZE;
    attr.debug_string_size = sizeof(text);
    ASSERT_EQ(ucp_request_query(request, &attr), UCS_OK);
    EXPECT_EQ(attr.status, UCS_INPROGRESS);
    EXPECT_EQ(attr.mem_type, UCS_MEMORY_TYPE_HOST);
    EXPECT_NE(std::string(text).find("send length " + std::to_string(kLong)), std::string::npos)
        << text;
    EXPECT_NE(std::string(text).find("host memory"), std::string::npos) << text;
    attr.debug_string_size = 5;
    std::memset(text, '#', sizeof(text));
    ASSERT_EQ(ucp_request_query(request, &attr), UCS_OK);
    EXPECT_EQ(std::strlen(text), 4u) << "cut, and ended by a zero";

    const ucp_request_param_t none{};
    EXPECT_EQ(finish(ucp_tag_recv_nbx(far_->worker, sink.data(), kLong, 4, ~ucp_tag_t{0}, &none)),
              UCS_OK);
    while (ucp_request_check_status(request) == UCS_INPROGRESS) step();
    attr.field_mask = UCP_REQUEST_ATTR_FIELD_STATUS;
    ASSERT_EQ(ucp_request_query(request, &attr), UCS_OK);
    EXPECT_EQ(attr.status, UCS_OK);
    EXPECT_EQ(sink, source);
    ucp_request_free(request);
}

// --- endpoints

TEST_P(OlderCalls, AnEndpointIsClosedAfterAFlushOrByForce) {
    std::vector<char> source(100, 'c'), sink(100);
    const ucp_request_param_t none{};
    ucs_status_ptr_t receiving =
        ucp_tag_recv_nbx(far_->worker, sink.data(), sink.size(), 6, ~ucp_tag_t{0}, &none);
    const ucp_ep_h second = connect();
    ucs_status_ptr_t sending =
        ucp_tag_send_nb(second, source.data(), source.size(), kByte, 6, nullptr);
    EXPECT_EQ(finish(ucp_ep_close_nb(second, UCP_EP_CLOSE_MODE_FLUSH)), UCS_OK);
    EXPECT_EQ(finish(sending), UCS_OK);
    EXPECT_EQ(finish(receiving), UCS_OK) << "what was sent before the close arrives";
    EXPECT_EQ(sink, source);

    // By force, what is under way ends: the send as well, in whatever way.
    const ucp_ep_h third = connect();
    std::vector<char> large(kLong);
    sending = ucp_tag_send_sync_nb(third, large.data(), kLong, kByte, 7, nullptr);
    EXPECT_EQ(finish(ucp_ep_close_nb(third, UCP_EP_CLOSE_MODE_FORCE)), UCS_OK);
    EXPECT_NE(finish(sending), UCS_OK) << "cancelled: nobody has received it";
}

TEST_P(OlderCalls, AnEstimateGrowsWithTheMessage) {
    ucp_ep_evaluate_perf_param_t param{};
    ucp_ep_evaluate_perf_attr_t attr{};
    attr.field_mask = UCP_EP_PERF_ATTR_FIELD_ESTIMATED_TIME;
    EXPECT_EQ(ucp_ep_evaluate_perf(endpoint_, &param, &attr), UCS_ERR_INVALID_PARAM);
    param.field_mask = UCP_EP_PERF_PARAM_FIELD_MESSAGE_SIZE;
    param.message_size = 8;
    ASSERT_EQ(ucp_ep_evaluate_perf(endpoint_, &param, &attr), UCS_OK);
    const double small = attr.estimated_time;
    EXPECT_GT(small, 0);
    EXPECT_LT(small, 1e-3);
    param.message_size = size_t{1} << 30;
    ASSERT_EQ(ucp_ep_evaluate_perf(endpoint_, &param, &attr), UCS_OK);
    EXPECT_GT(attr.estimated_time, small + 1e-3) << "a GiB takes more than a millisecond";
    EXPECT_LT(attr.estimated_time, 100);
}

TEST_P(OlderCalls, DescriptionsNameTheTransports) {
    const std::string transport =
        std::string(GetParam()) == "sm" ? std::string("sm_fifo") : GetParam();
    const auto names_it = [&](const std::string& text) {
        return text.find(transport) != std::string::npos;
    };
    EXPECT_PRED1(names_it, printed([&](FILE* to) { ucp_context_print_info(near_.context, to); }));
    EXPECT_PRED1(names_it, printed([&](FILE* to) { ucp_worker_print_info(near_.worker, to); }));
    const std::string text = printed([&](FILE* to) { ucp_ep_print_info(endpoint_, to); });
    EXPECT_PRED1(names_it, text);
    EXPECT_EQ(text.find("-1 bytes"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Over, OlderCalls, testing::Values("self", "sm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

// --- the library, without a peer

TEST(Library, SaysWhatItIs) {
    ucp_lib_attr_t library{};
    library.field_mask = UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL;
    ASSERT_EQ(ucp_lib_query(&library), UCS_OK);
    EXPECT_EQ(library.max_thread_level, UCS_THREAD_MODE_MULTI);
    library.field_mask = 0;
    library.max_thread_level = UCS_THREAD_MODE_LAST;
    ASSERT_EQ(ucp_lib_query(&library), UCS_OK);
    EXPECT_EQ(library.max_thread_level, UCS_THREAD_MODE_LAST) << "nobody asked";

    unsigned major = 0, minor = 0, release = 99;
    ucp_get_version(&major, &minor, &release);
    EXPECT_EQ(major, unsigned{UCP_API_MAJOR});
    EXPECT_EQ(minor, unsigned{UCP_API_MINOR});
    EXPECT_EQ(ucp_get_version_string(),
              std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release));
}

TEST(Library, AContextSaysWhatItIs) {
    const Side side("self", UCP_FEATURE_TAG);
    ucp_context_attr_t attr{};
    attr.field_mask = UCP_ATTR_FIELD_REQUEST_SIZE | UCP_ATTR_FIELD_THREAD_MODE |
                      UCP_ATTR_FIELD_MEMORY_TYPES | UCP_ATTR_FIELD_NAME;
    ASSERT_EQ(ucp_context_query(side.context, &attr), UCS_OK);
    EXPECT_GT(attr.request_size, 0u);
    EXPECT_EQ(attr.thread_mode, UCS_THREAD_MODE_SINGLE);
    EXPECT_NE(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_HOST), 0u);
    EXPECT_STREQ(attr.name, "older calls");
}

// Programs name variables that other versions have: the library works without them, and says so.
TEST(Library, UnknownSettingsAreTaken) {
    ucp_config_t* config = nullptr;
    ASSERT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
    EXPECT_EQ(ucp_config_modify(config, "HANDLE_ERRORS", "bt"), UCS_OK);
    EXPECT_EQ(ucp_config_modify(config, "UCX_CM_REUSEADDR", "y"), UCS_OK);
    EXPECT_EQ(ucp_config_modify(config, "TLS", "self"), UCS_OK);
    EXPECT_EQ(ucp_config_modify(config, "BULK_SLICE_SIZE", "much"), UCS_ERR_INVALID_PARAM);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    ucp_context_h context = nullptr;
    EXPECT_EQ(ucp_init(&params, config, &context), UCS_OK);
    if (context != nullptr) ucp_cleanup(context);
    ucp_config_release(config);
}

TEST(Library, SettingsArePrintedAsAsked) {
    ucp_config_t* config = nullptr;
    ASSERT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
    ASSERT_EQ(ucp_config_modify(config, "TLS", "self,tcp"), UCS_OK);
    const auto print = [&](unsigned flags) {
        return printed([&](FILE* to) {
            ucp_config_print(config, to, "of a test", static_cast<ucs_config_print_flags_t>(flags));
        });
    };
    const std::string values = print(UCS_CONFIG_PRINT_CONFIG);
    EXPECT_NE(values.find("UCX_TLS=self,tcp\n"), std::string::npos);
    EXPECT_EQ(values.find("of a test"), std::string::npos);
    const std::string header = print(UCS_CONFIG_PRINT_HEADER);
    EXPECT_NE(header.find("of a test"), std::string::npos);
    EXPECT_EQ(header.find("UCX_TLS"), std::string::npos);
    EXPECT_GT(print(UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_DOC).size(), 2 * values.size());
    ucp_config_release(config);
}

}  // namespace
}  // namespace ucp::test

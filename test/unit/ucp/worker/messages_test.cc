// SPDX-License-Identifier: BSD-3-Clause

// Tagged messages end to end over the mock transports: every protocol, both sides of matching.

#include <gtest/gtest.h>

#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

struct Received {
    bool done = false;
    ucs_status_t status = UCS_INPROGRESS;
    ucp_tag_recv_info_t info{};
};

ucp_request_param_t receive_into(Received& result) {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                       void* user_data) {
        *static_cast<Received*>(user_data) = {true, status, *info};
        ucp_request_free(request);
    };
    param.user_data = &result;
    return param;
}

class MessageSizes : public ::testing::TestWithParam<size_t> {};

TEST_P(MessageSizes, ArriveWholeWhetherExpectedOrNot) {
    Cluster cluster(2);
    const auto sent = pattern(GetParam(), 7);
    for (const bool is_expected : {true, false}) {
        std::vector<uint8_t> buffer(sent.size() + 8);
        Received result;
        const ucp_request_param_t receive = receive_into(result);
        ucs_status_ptr_t sending = nullptr;
        const auto send = [&] {
            sending =
                ucp_tag_send_nbx(cluster.endpoint(0, 1), sent.data(), sent.size(), 42, &kNothing);
        };
        if (!is_expected) {
            send();
            cluster.steps(200);
        }
        ASSERT_TRUE(UCS_PTR_IS_PTR(ucp_tag_recv_nbx(cluster.worker(1), buffer.data(), buffer.size(),
                                                    42, ~uint64_t{0}, &receive)));
        if (is_expected) send();
        ASSERT_TRUE(cluster.until([&] { return result.done; }));
        EXPECT_EQ(result.status, UCS_OK);
        EXPECT_EQ(result.info.length, sent.size());
        EXPECT_EQ(result.info.sender_tag, 42u);
        EXPECT_EQ(cluster.finish(sending), UCS_OK);
        buffer.resize(sent.size());
        EXPECT_EQ(buffer, sent);
    }
}

TEST_P(MessageSizes, SynchronousSendsEndWhenMatched) {
    Cluster cluster(2);
    const auto sent = pattern(GetParam(), 8);
    const ucs_status_ptr_t sending =
        ucp_tag_send_sync_nbx(cluster.endpoint(0, 1), sent.data(), sent.size(), 1, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(sending));
    cluster.steps(300);
    EXPECT_EQ(ucp_request_check_status(sending), UCS_INPROGRESS);
    std::vector<uint8_t> buffer(sent.size());
    Received result;
    const ucp_request_param_t receive = receive_into(result);
    ucp_tag_recv_nbx(cluster.worker(1), buffer.data(), buffer.size(), 1, ~uint64_t{0}, &receive);
    EXPECT_EQ(cluster.finish(sending), UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return result.done; }));
    EXPECT_EQ(buffer, sent);
}

INSTANTIATE_TEST_SUITE_P(All, MessageSizes,
                         ::testing::Values(0, 1, 8, 64, 65, 1000, 1016, 1017, 2000, 8191, 8192,
                                           60000, 100000, 1 << 20));

TEST(Messages, KeepTheirOrderUnderBackPressure) {
    Cluster::Options options;
    options.fabric.no_resource_probability = 0.5;
    options.fabric.transmit_depth = 2;
    Cluster cluster(2, options);
    constexpr unsigned kCount = 200;
    std::vector<std::vector<uint8_t>> sent, got(kCount);
    std::vector<Received> results(kCount);
    std::vector<ucs_status_ptr_t> sends;
    for (unsigned index = 0; index < kCount; ++index) {
        const size_t length = (index * 37) % 3000;
        sent.push_back(pattern(length, index));
        got[index].resize(3000);
        const ucp_request_param_t receive = receive_into(results[index]);
        ucp_tag_recv_nbx(cluster.worker(1), got[index].data(), 3000, 5, ~uint64_t{0}, &receive);
    }
    for (const auto& message : sent) {
        sends.push_back(
            ucp_tag_send_nbx(cluster.endpoint(0, 1), message.data(), message.size(), 5, &kNothing));
    }
    for (const ucs_status_ptr_t send : sends) EXPECT_EQ(cluster.finish(send), UCS_OK);
    for (unsigned index = 0; index < kCount; ++index) {
        ASSERT_TRUE(cluster.until([&] { return results[index].done; }));
        got[index].resize(results[index].info.length);
        EXPECT_EQ(got[index], sent[index]) << index;
    }
}

TEST(Messages, ReachTheOwnWorker) {
    Cluster cluster(1);
    const auto sent = pattern(5000, 3);
    std::vector<uint8_t> buffer(5000);
    Received result;
    const ucp_request_param_t receive = receive_into(result);
    ucp_tag_recv_nbx(cluster.worker(0), buffer.data(), buffer.size(), 0, 0, &receive);
    EXPECT_EQ(cluster.finish(
                  ucp_tag_send_nbx(cluster.endpoint(0, 0), sent.data(), sent.size(), 9, &kNothing)),
              UCS_OK);
    ASSERT_TRUE(cluster.until([&] { return result.done; }));
    EXPECT_EQ(buffer, sent);
}

TEST(Messages, TruncateWhatDoesNotFit) {
    Cluster cluster(2);
    for (const size_t length : {20ul, 900ul, 5000ul, 100000ul}) {
        const auto sent = pattern(length, length);
        std::vector<uint8_t> buffer(10);
        Received result;
        const ucp_request_param_t receive = receive_into(result);
        ucp_tag_recv_nbx(cluster.worker(1), buffer.data(), buffer.size(), 0, 0, &receive);
        EXPECT_EQ(cluster.finish(ucp_tag_send_nbx(cluster.endpoint(0, 1), sent.data(), sent.size(),
                                                  9, &kNothing)),
                  UCS_OK);
        ASSERT_TRUE(cluster.until([&] { return result.done; })) << length;
        EXPECT_EQ(result.status, UCS_ERR_MESSAGE_TRUNCATED);
    }
}

// Messages between workers, of an id that no protocol uses.
class ControlMessages : public ::testing::TestWithParam<double> {
  protected:
    static constexpr AmId kId{30};

    // Send one of each length. @return how many went by am_short()
    static uint64_t send(uint32_t capabilities, std::span<const size_t> lengths,
                         uct::DeviceType device = uct::DeviceType::kSharedMemory) {
        Cluster::Options options;
        options.fabric.device_type = device;
        options.fabric.no_resource_probability = GetParam();
        options.fabric.capabilities = capabilities;
        Cluster cluster(2, options);
        arrived().clear();
        cluster.inner(1).interfaces().set_handler(
            kId,
            [](void*, void* data, size_t length, uct::ReceiveDescriptor*) {
                const auto* bytes = static_cast<const uint8_t*>(data);
                arrived().emplace_back(bytes, bytes + length);
                return UCS_OK;
            },
            nullptr);
        std::vector<std::vector<uint8_t>> sent;
        Endpoint& endpoint = unwrap(cluster.endpoint(0, 1));
        for (const size_t length : lengths) {
            sent.push_back(pattern(length, length));
            endpoint.send_control(kId, std::as_bytes(std::span(sent.back())));
        }
        EXPECT_TRUE(cluster.until([&] { return arrived().size() == sent.size(); }));
        EXPECT_EQ(arrived(), sent);
        return cluster.fabric.counters(uct::mock::Kind::kScalable).am_short;
    }

  private:
    static std::vector<std::vector<uint8_t>>& arrived() {
        static std::vector<std::vector<uint8_t>> messages;
        return messages;
    }
};

// A header of 8 bytes and the most that am_short() takes behind it.
TEST_P(ControlMessages, TakeNoBufferIfTheyAreShort) {
    const uct::mock::Config usual;
    const size_t most = sizeof(uint64_t) + usual.am.max_short;
    const std::array<size_t, 4> shorts{8, 9, 17, most};
    EXPECT_EQ(send(usual.capabilities, shorts), shorts.size());
    const std::array<size_t, 4> others{0, 7, most + 1, usual.am.max_bcopy};
    EXPECT_EQ(send(usual.capabilities, others), 0u);
    EXPECT_EQ(send(usual.capabilities & ~uint32_t{uct::kAmShort}, shorts), 0u);
    EXPECT_EQ(send(usual.capabilities, shorts, uct::DeviceType::kNetwork), 0u);
}

INSTANTIATE_TEST_SUITE_P(WithRoomAndWithout, ControlMessages, ::testing::Values(0, 0.5));

}  // namespace
}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/select/transport_names.h"

#include <gtest/gtest.h>

#include <string>

namespace ucp::select {
namespace {

constexpr std::string_view kAll[] = {"self",    "sm_fifo", "sm_ring",  "tcp",
                                     "dc_mlx5", "rc_mlx5", "rc_verbs", "ud_verbs"};

ucs::config::AllowList list_of(std::string_view text) {
    ucs::config::AllowList list;
    EXPECT_TRUE(ucs::config::Codec<ucs::config::AllowList>::parse(text, list)) << text;
    return list;
}

// The transports that a value of UCX_TLS admits; auxiliary ones in brackets.
std::string admitted(std::string_view text) {
    std::string result;
    for (const std::string_view name : kAll) {
        const Permission said = permission(list_of(text), name);
        if (said == Permission::kNo) continue;
        if (!result.empty()) result += ' ';
        result += said == Permission::kYes ? std::string(name) : "(" + std::string(name) + ")";
    }
    return result;
}

TEST(TransportNames, MeanWhatUcxMeansByThem) {
    const std::string all = "self sm_fifo sm_ring tcp dc_mlx5 rc_mlx5 rc_verbs ud_verbs";
    const struct {
        const char* value;
        std::string admits;
    } kRows[] = {
        {"all", all},
        {"self", "self"},
        {"loopback", "self"},
        {"sm", "sm_fifo sm_ring"},
        {"shm,self", "self sm_fifo sm_ring"},
        {"posix", "sm_fifo sm_ring"},
        {"sysv,cma", "sm_fifo sm_ring"},
        {"mm", "sm_fifo sm_ring"},
        {"sm_fifo", "sm_fifo"},
        {"tcp", "tcp"},
        {"ib", "dc_mlx5 rc_mlx5 rc_verbs ud_verbs"},
        {"dc", "dc_mlx5"},
        {"dc_x,self", "self dc_mlx5"},
        {"ud", "ud_verbs"},
        {"ud_v", "ud_verbs"},
        {"ud_x", ""},
        {"rc", "(dc_mlx5) rc_mlx5 rc_verbs (ud_verbs)"},
        {"rc_x", "(dc_mlx5) rc_mlx5 (ud_verbs)"},
        {"rc_verbs,ud", "(dc_mlx5) rc_verbs ud_verbs"},
        {"dc,rc,self", "self dc_mlx5 rc_mlx5 rc_verbs (ud_verbs)"},
        {"\\rc_verbs", "rc_verbs"},
        {"\\rc", ""},
        {"^tcp", "self sm_fifo sm_ring dc_mlx5 rc_mlx5 rc_verbs ud_verbs"},
        {"^ib", "self sm_fifo sm_ring tcp"},
        {"^rc", "self sm_fifo sm_ring tcp dc_mlx5 ud_verbs"},
        {"^rc_x,sm", "self tcp dc_mlx5 rc_verbs ud_verbs"},
        {"^cuda", all},
    };
    for (const auto& row : kRows) EXPECT_EQ(admitted(row.value), row.admits) << row.value;
}

std::string objected(std::string_view text, std::span<const std::string_view> found) {
    const auto list = objections(list_of(text), found);
    return list.empty() ? "" : list.front();
}

TEST(TransportNames, SayWhatIsWrongWithAWord) {
    constexpr std::string_view kFew[] = {"self", "dc_mlx5", "rc_mlx5"};
    EXPECT_EQ(objected("all", kFew), "");
    EXPECT_EQ(objected("ib,self", kFew), "");
    EXPECT_EQ(objected("^ib,tcp", kFew), "");
    EXPECT_EQ(objected("rc_mlx", kAll), "there is no transport rc_mlx; did you mean rc_mlx5?");
    EXPECT_EQ(objected("^tpc", kAll), "there is no transport tpc; did you mean tcp?");
    EXPECT_EQ(objected("nonsense-name", kAll), "there is no transport nonsense-name");
    EXPECT_EQ(objected("self,tcp", kFew),
              "tcp is not available here; there are dc_mlx5, rc_mlx5, self");
    EXPECT_EQ(objected("sm", kFew), "sm is not available here; there are dc_mlx5, rc_mlx5, self");
    EXPECT_EQ(objected("ud_x", kAll),
              "Swiftlane has no ud_x: ud_verbs serves mlx5 adapters as well");
    EXPECT_EQ(objected("^ud_mlx5", kAll), "");
    EXPECT_EQ(objections(list_of("a_word,another_word,self"), kAll).size(), 2u);
}

TEST(DeviceNames, ArePortsOrWholeAdapters) {
    EXPECT_TRUE(allows_device(list_of("all"), "mlx5_0:1"));
    EXPECT_TRUE(allows_device(list_of("mlx5_0:1,eth0"), "mlx5_0:1"));
    EXPECT_FALSE(allows_device(list_of("mlx5_0:1"), "mlx5_0:2"));
    EXPECT_TRUE(allows_device(list_of("mlx5_0"), "mlx5_0:2"));
    EXPECT_FALSE(allows_device(list_of("mlx5_0"), "mlx5_01:1"));
    EXPECT_FALSE(allows_device(list_of("^mlx5_0:1"), "mlx5_0:1"));
    EXPECT_TRUE(allows_device(list_of("^mlx5_0:1"), "mlx5_1:1"));
    EXPECT_TRUE(allows_device(list_of("eth0"), "eth0"));
    EXPECT_TRUE(allows_device(list_of("memory0"), "memory"));
}

TEST(DeviceNames, ThatNothingAnswersToAreNamed) {
    constexpr std::string_view kFound[] = {"mlx5_0:1", "mlx5_1:1", "eth0"};
    EXPECT_TRUE(device_objections("UCX_NET_DEVICES", list_of("mlx5_1"), kFound).empty());
    EXPECT_TRUE(device_objections("UCX_NET_DEVICES", list_of("^mlx5_7:1"), kFound).empty());
    const auto said = device_objections("UCX_NET_DEVICES", list_of("mlx5_2:1,eth0"), kFound);
    ASSERT_EQ(said.size(), 1u);
    EXPECT_EQ(said[0],
              "UCX_NET_DEVICES: there is no device mlx5_2:1; did you mean mlx5_0:1? (there are "
              "eth0, mlx5_0:1, mlx5_1:1)");
}

}  // namespace
}  // namespace ucp::select

// SPDX-License-Identifier: BSD-3-Clause

// Worker addresses that this version of the library did not make are refused, and the log says so.

#include <cstring>
#include <string>

#include "ucs/log/log.h"
#include "unit/ucp/cluster.h"
#include "unit/ucs/log/log_capture.h"

namespace ucp::test {
namespace {

ucs_status_t create(Cluster& cluster, const std::string& address) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    ucp_ep_h endpoint = nullptr;
    return ucp_ep_create(cluster.worker(0), &params, &endpoint);
}

TEST(ForeignAddresses, OfAnotherVersionAreRefusedClearly) {
    Cluster cluster(2);
    const auto& own = cluster.inner(1).address();
    std::string other(reinterpret_cast<const char*>(own.data()), own.size());
    ++other[12];  // the version; the checksum before it no longer fits either
    ucs::LogCapture log(ucs::LogLevel::kError);
    EXPECT_EQ(create(cluster, other), UCS_ERR_INVALID_ADDR);
    EXPECT_TRUE(log.contains("both ends must run the same library"));
}

// How the address of a worker of UCX begins: versions and flags in two bytes, a 64-bit id, devices.
TEST(ForeignAddresses, OfUcxAreRefusedClearly) {
    Cluster cluster(2);
    ucs::LogCapture log(ucs::LogLevel::kError);
    std::string foreign("\x20\x41\x9c\x57\x1e\x0b\x73\xd2\x88\x01", 10);
    foreign.append(120, '\x2a');
    EXPECT_EQ(create(cluster, foreign), UCS_ERR_INVALID_ADDR);
    EXPECT_TRUE(log.contains("not UCX at one of them"));
}

}  // namespace
}  // namespace ucp::test

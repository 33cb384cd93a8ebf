// SPDX-License-Identifier: BSD-3-Clause

// What a child of fork() does with the workers that it inherits is nothing to their peers.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "ucp/api/ucp.h"
#include "unit/ucp/no_options.h"

namespace ucp::test {
namespace {

// Two workers of this process that reach each other over one transport.
class Family {
  public:
    explicit Family(const std::string& transport) {
        setenv("UCX_TLS", transport.c_str(), 1);
        if (transport == "tcp") setenv("UCX_NET_DEVICES", "lo", 1);
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_TAG;
        EXPECT_EQ(ucp_init(&params, nullptr, &context_), UCS_OK);
        unsetenv("UCX_TLS");
        unsetenv("UCX_NET_DEVICES");
        const ucp_worker_params_t worker_params{};
        for (ucp_worker_h& worker : workers_) {
            EXPECT_EQ(ucp_worker_create(context_, &worker_params, &worker), UCS_OK);
        }
        ucp_address_t* address = nullptr;
        size_t length = 0;
        EXPECT_EQ(ucp_worker_get_address(workers_[1], &address, &length), UCS_OK);
        ucp_ep_params_t endpoint{};
        endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        endpoint.address = address;
        EXPECT_EQ(ucp_ep_create(workers_[0], &endpoint, &endpoint_), UCS_OK);
        ucp_worker_release_address(workers_[1], address);
    }

    ucs_status_t finish(ucs_status_ptr_t operation) {
        if (!UCS_PTR_IS_PTR(operation)) return UCS_PTR_RAW_STATUS(operation);
        constexpr int kMaxChecks = 10'000'000;
        for (int i = 0; ucp_request_check_status(operation) == UCS_INPROGRESS && i < kMaxChecks;
             ++i) {
            for (const ucp_worker_h worker : workers_) ucp_worker_progress(worker);
        }
        const ucs_status_t status = ucp_request_check_status(operation);
        ucp_request_free(operation);
        return status;
    }
    void expect_traffic() {
        const uint64_t sent = ++number_;
        uint64_t received = 0;
        const ucs_status_ptr_t receiving =
            ucp_tag_recv_nbx(workers_[1], &received, sizeof(received), 1, ~uint64_t{0}, &kNothing);
        EXPECT_EQ(finish(ucp_tag_send_nbx(endpoint_, &sent, sizeof(sent), 1, &kNothing)), UCS_OK);
        EXPECT_EQ(finish(receiving), UCS_OK);
        EXPECT_EQ(received, sent);
    }
    void end() {
        finish(ucp_ep_close_nbx(endpoint_, &kNothing));
        for (const ucp_worker_h worker : workers_) ucp_worker_destroy(worker);
        ucp_cleanup(context_);
    }

  private:
    ucp_context_h context_ = nullptr;
    ucp_worker_h workers_[2] = {};
    ucp_ep_h endpoint_ = nullptr;
    uint64_t number_ = 0;
};

class Fork : public testing::TestWithParam<const char*> {};

TEST_P(Fork, AChildThatCleansUpTakesNothingFromItsParent) {
    Family family(GetParam());
    family.expect_traffic();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        family.end();
        _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < 100; ++i) family.expect_traffic();
    family.end();
}

INSTANTIATE_TEST_SUITE_P(Over, Fork, testing::Values("tcp", "sm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ucp::test

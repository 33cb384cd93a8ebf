// SPDX-License-Identifier: BSD-3-Clause

// An endpoint that fails though its peer lives: the peer hears of it, however long that takes.

#include <gtest/gtest.h>

#include <vector>

#include "unit/ucp/cluster.h"

namespace ucp::test {
namespace {

class Reset : public ::testing::Test {
  protected:
    Reset() {
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = {[](void* arg, ucp_ep_h, ucs_status_t status) {
                                  static_cast<std::vector<ucs_status_t>*>(arg)->push_back(status);
                              },
                              &peers_errors_};
        here_ = cluster_.connect(0, 1);
        there_ = cluster_.connect(1, 0, params);
        cluster_.steps(100);
    }
    // The endpoint fails while its lane takes nothing.
    void reset_without_room() {
        cluster_.fabric.config().no_resource_probability = 1;
        unwrap(here_).reset(UCS_ERR_NO_MEMORY);
        cluster_.steps(1000);
        EXPECT_TRUE(peers_errors_.empty());
        EXPECT_FALSE(cluster_.inner(0).has_work()) << "the worker looks for room all the time";
    }
    void expect_told() {
        cluster_.fabric.config().no_resource_probability = 0;
        cluster_.steps(200);
        EXPECT_EQ(peers_errors_, std::vector{UCS_ERR_CONNECTION_RESET});
    }
    void close(ucp_ep_h endpoint) {
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        EXPECT_EQ(ucp_ep_close_nbx(endpoint, &force), nullptr);
    }

    Cluster cluster_{2};
    std::vector<ucs_status_t> peers_errors_;
    ucp_ep_h here_ = nullptr, there_ = nullptr;
};

TEST_F(Reset, ThePeerIsToldWhenThereIsRoom) {
    reset_without_room();
    expect_told();
    close(here_);
    close(there_);
}

// Nothing of it has ever waited, so there is no queue to post from either.
TEST_F(Reset, AGreetingOfAFailedEndpointMayBeTriedAgain) {
    Endpoint& endpoint = unwrap(here_);
    endpoint.fail(UCS_ERR_CONNECTION_RESET);
    EXPECT_EQ(endpoint.greet(), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(endpoint.greet(), UCS_ERR_NO_RESOURCE);
    EXPECT_FALSE(endpoint.has_greeted());
    close(here_);
    close(there_);
}

TEST_F(Reset, ThePeerIsToldThoughTheEndpointWasClosed) {
    reset_without_room();
    close(here_);
    cluster_.steps(100);
    EXPECT_FALSE(cluster_.inner(0).has_work()) << "the worker tries to free it all the time";
    expect_told();
    EXPECT_EQ(cluster_.inner(0).endpoints().size(), 0u);
    close(there_);
}

TEST_F(Reset, ThePeerIsToldInTheProgressThatFreesTheEndpoint) {
    reset_without_room();
    cluster_.fabric.config().no_resource_probability = 0;
    close(here_);
    expect_told();
    EXPECT_EQ(cluster_.inner(0).endpoints().size(), 0u);
    close(there_);
}

TEST_F(Reset, ALaneThatFailsEndsTheWaitForRoom) {
    const uint64_t word = 1;
    const ucs_status_ptr_t sending = ucp_tag_send_nbx(here_, &word, sizeof(word), 1, &kNothing);
    EXPECT_EQ(sending, nullptr);
    // The message is under way, and will find nobody.
    cluster_.kill(1);
    cluster_.fabric.config().no_resource_probability = 1;
    unwrap(here_).reset(UCS_ERR_NO_MEMORY);
    close(here_);
    EXPECT_TRUE(cluster_.until([&] { return cluster_.inner(0).endpoints().size() == 0; }));
}

TEST_F(Reset, WhoIsToldOnceIsNotToldAgain) {
    unwrap(here_).reset(UCS_ERR_NO_MEMORY);
    expect_told();
    EXPECT_FALSE(unwrap(here_).is_untold());
    EXPECT_FALSE(cluster_.inner(0).has_work());
    close(here_);
    close(there_);
}

}  // namespace
}  // namespace ucp::test

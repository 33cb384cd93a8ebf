// SPDX-License-Identifier: BSD-3-Clause

// What is under way when its endpoint is closed by force, after each step that it takes: an
// initiator goes on with it, and what ends then knows the endpoint.

#include <optional>
#include <string>

#include "system/soft_world.h"
#include "unit/ucp/region.h"

namespace ucp::test {
namespace {

constexpr unsigned kMostSteps = 2000;

// An atomic operation that a loop of compare-swaps does, and how it ended.
class Scene {
  public:
    explicit Scene(const char* policy)
        : world_(options_of(policy)),
          cluster_(world_.cluster),
          endpoint_(cluster_.endpoint(0, 1)),
          word_(cluster_.context(1), 8) {
        word_.open(endpoint_);
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                             UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param.cb.send = [](void*, ucs_status_t status, void* arg) {
            auto& self = *static_cast<Scene*>(arg);
            EXPECT_FALSE(self.is_over());
            self.status_ = status;
        };
        param.user_data = this;
        param.datatype = ucp_dt_make_contig(4);
        param.reply_buffer = &reply_;
        request_ = ucp_atomic_op_nbx(endpoint_, UCP_ATOMIC_OP_OR, &operand_, 1, word_.address(4),
                                     word_.key, &param);
        EXPECT_TRUE(UCS_PTR_IS_PTR(request_));
    }
    ~Scene() { ucp_request_free(request_); }

    bool is_over() const { return status_.has_value(); }
    void step() { cluster_.step(); }

    void close_by_force() {
        ucp_request_param_t force{};
        force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        force.flags = UCP_EP_CLOSE_FLAG_FORCE;
        EXPECT_EQ(cluster_.finish(ucp_ep_close_nbx(endpoint_, &force)), UCS_OK);
        for (unsigned steps = 0; !is_over() && steps < kMostSteps; ++steps) {
            ASSERT_EQ(count_endpoints(), 1u) << "freed before what uses it";
            step();
        }
        EXPECT_TRUE(is_over());
        EXPECT_TRUE(cluster_.until([&] { return count_endpoints() == 0; }, kMostSteps));
    }

  private:
    static SoftWorld::Options options_of(const char* policy) {
        SoftWorld::Options options;
        options.traffic.workers = 2;
        options.variables.push_back({"DC_MLX5_TX_POLICY", policy});
        options.config.atomics = AtomicMode::kDevice;
        return options;
    }

    size_t count_endpoints() const {
        size_t count = 0;
        cluster_.inner(0).endpoints().for_each([&](Endpoint&) { ++count; });
        return count;
    }

    SoftWorld world_;
    Cluster& cluster_;
    const ucp_ep_h endpoint_;
    Region word_;
    uint32_t operand_ = 0x10, reply_ = 0;
    std::optional<ucs_status_t> status_;
    ucs_status_ptr_t request_ = nullptr;
};

class Closing : public testing::TestWithParam<const char*> {};

TEST_P(Closing, ALoopOfSwapsEndsBeforeItsEndpoint) {
    unsigned steps = 0;
    for (bool was_over = false; !was_over && !HasFailure(); ++steps) {
        ASSERT_LT(steps, kMostSteps);
        SCOPED_TRACE(steps);
        Scene scene(GetParam());
        for (unsigned step = 0; step < steps; ++step) scene.step();
        was_over = scene.is_over();
        if (!was_over) scene.close_by_force();
    }
    EXPECT_GT(steps, 2u);
}

INSTANTIATE_TEST_SUITE_P(Policies, Closing, testing::Values("dcs", "rand"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause

// Within a host this processor goes on with a long put in later calls: an atomic operation that the
// target's processor carries out, behind a fence, does not overtake it.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/base/handles.h"
#include "ucp/context/context.h"
#include "ucp/worker/worker.h"
#include "uct/sm/component.h"
#include "unit/ucp/no_options.h"

namespace ucp::test {
namespace {

struct Side {
    Side() {
        Config config;
        std::string error;
        EXPECT_EQ(kConfigTable.load(ucs::config::Source(), config, error), UCS_OK) << error;
        ucp_params_t params{};
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64;
        ContextSeams seams;
        seams.components = std::span<uct::Component* const>(&component, 1);
        EXPECT_EQ(Context::create(params, config, seams, &context), UCS_OK);
        EXPECT_EQ(Worker::create(*context, ucp_worker_params_t{}, &worker), UCS_OK);
    }

    uct::Component* component = &uct::sm::component();
    std::unique_ptr<Context> context;
    std::unique_ptr<Worker> worker;
};

TEST(LocalOrder, AnEmulatedAtomicBehindAFenceWaitsForALongPut) {
    constexpr size_t kLength = 64 << 20;
    Side here, there;
    struct Target {
        std::vector<char> bytes = std::vector<char>(kLength);
        alignas(8) volatile uint64_t flag = 0;
    };
    const auto target = std::make_unique<Target>();
    const auto map = [&](const volatile void* address, size_t length, ucp_mem_h* memory,
                         std::vector<char>& key) {
        ucp_mem_map_params_t params{};
        params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
        params.address = const_cast<void*>(address);
        params.length = length;
        ASSERT_EQ(ucp_mem_map(wrap(there.context.get()), &params, memory), UCS_OK);
        void* packed = nullptr;
        size_t size = 0;
        ASSERT_EQ(ucp_rkey_pack(wrap(there.context.get()), *memory, &packed, &size), UCS_OK);
        key.assign(static_cast<char*>(packed), static_cast<char*>(packed) + size);
        ucp_rkey_buffer_release(packed);
    };
    ucp_mem_h bytes_memory = nullptr, flag_memory = nullptr;
    std::vector<char> bytes_key, flag_key;
    map(target->bytes.data(), kLength, &bytes_memory, bytes_key);
    map(&target->flag, 8, &flag_memory, flag_key);

    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(there.worker->address().data());
    Endpoint* made = nullptr;
    ASSERT_EQ(here.worker->create_endpoint(params, &made), UCS_OK);
    ucp_ep_h endpoint = wrap(made);
    ucp_rkey_h bytes_rkey = nullptr, flag_rkey = nullptr;
    ASSERT_EQ(ucp_ep_rkey_unpack(endpoint, bytes_key.data(), &bytes_rkey), UCS_OK);
    ASSERT_EQ(ucp_ep_rkey_unpack(endpoint, flag_key.data(), &flag_rkey), UCS_OK);

    const std::vector<char> source(kLength, 'x');
    const ucs_status_ptr_t put =
        ucp_put_nbx(endpoint, source.data(), kLength,
                    reinterpret_cast<uintptr_t>(target->bytes.data()), bytes_rkey, &kNothing);
    ASSERT_TRUE(UCS_PTR_IS_PTR(put));
    ASSERT_EQ(ucp_worker_fence(wrap(here.worker.get())), UCS_OK);
    const uint64_t one = 1;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE;
    param.datatype = ucp_dt_make_contig(8);
    const ucs_status_ptr_t raise = ucp_atomic_op_nbx(
        endpoint, UCP_ATOMIC_OP_ADD, &one, 1,
        reinterpret_cast<uintptr_t>(const_cast<uint64_t*>(&target->flag)), flag_rkey, &param);
    ASSERT_TRUE(UCS_PTR_IS_PTR(raise)) << ucs_status_string(UCS_PTR_RAW_STATUS(raise));
    for (int i = 0; i < 100000 && target->flag == 0; ++i) {
        here.worker->progress();
        there.worker->progress();
    }
    EXPECT_EQ(target->flag, 1u);
    EXPECT_EQ(target->bytes.back(), 'x');
    for (const ucs_status_ptr_t request : {put, raise}) {
        for (int i = 0; i < 1000 && ucp_request_check_status(request) == UCS_INPROGRESS; ++i) {
            here.worker->progress();
            there.worker->progress();
        }
        EXPECT_EQ(ucp_request_check_status(request), UCS_OK);
        ucp_request_free(request);
    }
    ucp_rkey_destroy(bytes_rkey);
    ucp_rkey_destroy(flag_rkey);
    ucp_mem_unmap(wrap(there.context.get()), bytes_memory);
    ucp_mem_unmap(wrap(there.context.get()), flag_memory);
}

}  // namespace
}  // namespace ucp::test

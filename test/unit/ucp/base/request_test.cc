// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/base/request.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>

namespace ucp {
namespace {

TEST(Requests, CountWhatTheTransportKeepsAlone) {
    Request request;
    const auto answer = [&](ucs_status_t status) {
        return request.call([&](uct::Completion* completion) {
            EXPECT_EQ(completion, &request);
            EXPECT_EQ(request.count, 2) << "a completion may come within the call";
            return status;
        });
    };
    EXPECT_EQ(answer(UCS_OK), UCS_OK);
    EXPECT_EQ(answer(UCS_ERR_NO_RESOURCE), UCS_ERR_NO_RESOURCE);
    EXPECT_EQ(request.count, 1);
    EXPECT_THROW(request.call([](uct::Completion*) -> ucs_status_t { throw std::bad_alloc(); }),
                 std::bad_alloc);
    EXPECT_EQ(request.count, 1);
    EXPECT_EQ(answer(UCS_INPROGRESS), UCS_INPROGRESS);
    EXPECT_EQ(request.count, 2);
}

TEST(Requests, KeepTheFirstError) {
    Request request;
    request.count = 4;
    for (const ucs_status_t status : {UCS_OK, UCS_ERR_CANCELED, UCS_ERR_IO_ERROR})
        request.complete(status);
    EXPECT_EQ(request.status, UCS_ERR_CANCELED);
}

TEST(Requests, AreFoundByTheirPartAndTheirHandle) {
    struct Part {
        uint64_t number;
    };
    Request request;
    Part& part = request.emplace<Part>(uint64_t{7});
    EXPECT_EQ(&Request::of(part), &request);
    EXPECT_EQ(request.part<Part>().number, 7u);
    EXPECT_EQ(&Request::from_handle(request.handle()), &request);
}

// The members behind the part of one that is partial are whatever was there before.
TEST(Requests, ThatArePartialAreFilledOnce) {
    alignas(Request) std::byte memory[sizeof(Request)];
    std::memset(memory, 0xa5, sizeof(memory));
    auto& request = *new (memory) Request(Request::Partial{});
    request.flags = Request::kPartial | Request::kUserMemory;
    request.fill();
    EXPECT_EQ(request.flags, uint32_t{Request::kUserMemory});
    EXPECT_EQ(request.endpoint, nullptr);
    EXPECT_EQ(request.abort, nullptr);
    EXPECT_EQ(request.wire_id, 0u);
    EXPECT_EQ(request.received, 0u);
    EXPECT_EQ(request.memory_type, UCS_MEMORY_TYPE_HOST);
    request.~Request();
}

// A member counts where the mask says that it is set.
TEST(OperationParameters, HaveTheDefaultsOfTheInterface) {
    ucp_request_param_t param{};
    param.datatype = ucp_dt_make_contig(8);
    param.flags = 3;
    param.user_data = &param;
    param.memory_type = UCS_MEMORY_TYPE_CUDA;
    const OpParams plain(&param);
    EXPECT_EQ(plain.datatype(), ucp_dt_make_contig(1));
    EXPECT_EQ(plain.flags(), 0u);
    EXPECT_EQ(plain.user_data(), nullptr);
    EXPECT_EQ(plain.memory_type(), UCS_MEMORY_TYPE_UNKNOWN);
    param.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS |
                         UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    EXPECT_EQ(plain.datatype(), ucp_dt_make_contig(8));
    EXPECT_EQ(plain.flags(), 3u);
    EXPECT_EQ(plain.user_data(), &param);
    EXPECT_EQ(plain.memory_type(), UCS_MEMORY_TYPE_CUDA);
    // What older versions of the interface mean by these values.
    param.memory_type = UCS_MEMORY_TYPE_RDMA;
    EXPECT_EQ(plain.memory_type(), UCS_MEMORY_TYPE_UNKNOWN);
}

}  // namespace
}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ucs/config/types.h"
#include "ucs/memory/memory_type.h"
#include "ucs/type/status.h"
#include "ucs/type/thread_mode.h"

namespace {

// Programs compare these with what they know of UCX.
TEST(StatusString, IsThatOfUcx) {
    const std::map<int, std::string> texts = {
        {UCS_INPROGRESS, "Operation in progress"},
        {UCS_OK, "Success"},
        {UCS_ERR_NO_MESSAGE, "No pending message"},
        {UCS_ERR_NO_RESOURCE, "No resources are available to initiate the operation"},
        {UCS_ERR_IO_ERROR, "Input/output error"},
        {UCS_ERR_NO_MEMORY, "Out of memory"},
        {UCS_ERR_INVALID_PARAM, "Invalid parameter"},
        {UCS_ERR_UNREACHABLE, "Destination is unreachable"},
        {UCS_ERR_INVALID_ADDR, "Address not valid"},
        {UCS_ERR_NOT_IMPLEMENTED, "Function not implemented"},
        {UCS_ERR_MESSAGE_TRUNCATED, "Message truncated"},
        {UCS_ERR_NO_PROGRESS, "No progress"},
        {UCS_ERR_BUFFER_TOO_SMALL, "Provided buffer is too small"},
        {UCS_ERR_NO_ELEM, "No such element"},
        {UCS_ERR_SOME_CONNECTS_FAILED, "Failed to connect some of the requested endpoints"},
        {UCS_ERR_NO_DEVICE, "No such device"},
        {UCS_ERR_BUSY, "Device is busy"},
        {UCS_ERR_CANCELED, "Request canceled"},
        {UCS_ERR_SHMEM_SEGMENT, "Shared memory error"},
        {UCS_ERR_ALREADY_EXISTS, "Element already exists"},
        {UCS_ERR_OUT_OF_RANGE, "Index out of range"},
        {UCS_ERR_TIMED_OUT, "Operation timed out"},
        {UCS_ERR_EXCEEDS_LIMIT, "User-defined limit was reached"},
        {UCS_ERR_UNSUPPORTED, "Unsupported operation"},
        {UCS_ERR_REJECTED, "Operation rejected by remote peer"},
        {UCS_ERR_NOT_CONNECTED, "Endpoint is not connected"},
        {UCS_ERR_CONNECTION_RESET, "Connection reset by remote peer"},
        {UCS_ERR_ENDPOINT_TIMEOUT, "Endpoint timeout"},
    };
    for (int value = UCS_INPROGRESS; value >= UCS_ERR_LAST; --value) {
        const auto known = texts.find(value);
        EXPECT_EQ(ucs_status_string(static_cast<ucs_status_t>(value)),
                  known != texts.end() ? known->second : "Unknown error " + std::to_string(value));
    }
}

template <size_t N>
void expect_names(const char* const* names, const char* const (&wanted)[N]) {
    for (size_t i = 0; i < N; ++i) EXPECT_STREQ(names[i], wanted[i]);
    EXPECT_EQ(names[N], nullptr);
}

// Programs print these and parse them in their own options: they are part of the interface.
TEST(Names, OfEnumerators) {
    expect_names(ucs_thread_mode_names, {"single", "serialized", "multi"});
    expect_names(ucs_async_mode_names, {"signal", "thread_spinlock", "thread_mutex", "poll"});
    expect_names(ucs_memory_type_names,
                 {"host", "cuda", "cuda-managed", "rocm", "rocm-managed", "rdma", "ze-host",
                  "ze-device", "ze-managed", "gaudi", "unknown"});
    EXPECT_STREQ(ucs_memory_type_names[UCS_MEMORY_TYPE_UNKNOWN], "unknown");
}

}  // namespace

// SPDX-License-Identifier: BSD-3-Clause

// What UCX 1.14 to 1.22 added to the interface, value for value: headers of such a UCX need not be
// installed for it. Names that 1.13 has are compared with its headers by interface.py.

#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "ucp/api/device/ucp_device_impl.h"
#include "ucp/api/device/ucp_host.h"
#include "ucp/api/ucp.h"

namespace {

struct Value {
    const char* name;
    unsigned long long ours;
    unsigned long long theirs;
};
#define VALUE(name, value)                                    \
    Value {                                                   \
#name, static_cast < unsigned long long>(name), value \
    }

TEST(Version, Values) {
    const Value values[] = {
        VALUE(UCP_API_MAJOR, 1),
        VALUE(UCP_API_MINOR, 22),
        VALUE(UCS_MEMORY_TYPE_HOST, 0),
        VALUE(UCS_MEMORY_TYPE_ROCM_MANAGED, 4),
        VALUE(UCS_MEMORY_TYPE_RDMA, 5),
        VALUE(UCS_MEMORY_TYPE_ZE_HOST, 6),
        VALUE(UCS_MEMORY_TYPE_ZE_DEVICE, 7),
        VALUE(UCS_MEMORY_TYPE_ZE_MANAGED, 8),
        VALUE(UCS_MEMORY_TYPE_GAUDI, 9),
        VALUE(UCS_MEMORY_TYPE_LAST, 10),
        VALUE(UCS_MEMORY_TYPE_UNKNOWN, 10),
        VALUE(UCS_MEMORY_TYPES_CPU_ACCESSIBLE, 0x151),
        VALUE(UCS_BIT_GET(0x22, UCS_MEMORY_TYPE_RDMA), 1),
        VALUE(UCS_BIT_GET(0x22, UCS_MEMORY_TYPE_CUDA_MANAGED), 0),
        VALUE(UCP_FEATURE_DEVICE, 1 << 8),
        VALUE(UCP_PARAM_FIELD_NODE_LOCAL_ID, 1 << 9),
        VALUE(UCP_ATTR_FIELD_DEVICE_COUNTER_SIZE, 1 << 4),
        VALUE(UCP_ERR_HANDLING_MODE_FAILOVER, 2),
        VALUE(UCP_MEM_MAP_LOCK, 1 << 4),
        VALUE(UCP_EP_ATTR_FIELD_USER_DATA, 1 << 4),
        VALUE(UCP_DATATYPE_SGL, 4),
        VALUE(ucp_dt_make_sgl(), 4),
        VALUE(UCP_DT_LOCAL_SGL_FIELD_BUFFERS, 1 << 0),
        VALUE(UCP_DT_LOCAL_SGL_FIELD_LENGTHS, 1 << 1),
        VALUE(UCP_DT_LOCAL_SGL_FIELD_MEMHS, 1 << 2),
        VALUE(UCP_DT_LOCAL_SGL_FIELD_COUNTS, 1 << 3),
        VALUE(UCP_DT_LOCAL_SGL_FIELD_STRIDES, 1 << 4),
        VALUE(UCP_DT_REMOTE_SGL_FIELD_REMOTE_ADDRS, 1 << 0),
        VALUE(UCP_DT_REMOTE_SGL_FIELD_LENGTHS, 1 << 1),
        VALUE(UCP_DT_REMOTE_SGL_FIELD_RKEYS, 1 << 2),
        VALUE(UCP_OP_ATTR_FIELD_REMOTE_DATATYPE, 1 << 9),
        VALUE(UCP_OP_ATTR_FIELD_REMOTE, 1 << 10),
        VALUE(UCP_OP_ATTR_FIELD_REMOTE_COUNT, 1 << 11),
        VALUE(UCP_REMOTE_ADDR_INVALID, ~0ull),
        VALUE(UCP_FEATURE_EXPORTED_MEMH, 1 << 7),
        VALUE(UCP_MEM_MAP_PARAM_FIELD_EXPORTED_MEMH_BUFFER, 1 << 5),
        VALUE(UCP_MEM_MAP_SYMMETRIC_RKEY, 1 << 3),
        VALUE(UCP_MEMH_PACK_PARAM_FIELD_FLAGS, 1 << 0),
        VALUE(UCP_MEMH_PACK_FLAG_EXPORT, 1 << 0),
        VALUE(UCP_EP_ATTR_FIELD_TRANSPORTS, 1 << 3),
        VALUE(UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE, 1 << 0),
        VALUE(UCP_DATATYPE_ATTR_FIELD_BUFFER, 1 << 1),
        VALUE(UCP_DATATYPE_ATTR_FIELD_COUNT, 1 << 2),
        VALUE(UCP_AM_SEND_FLAG_COPY_HEADER, 1 << 3),
        VALUE(UCP_OP_ATTR_FIELD_MEMH, 1 << 8),
        VALUE(UCP_OP_ATTR_FLAG_MULTI_SEND, 1 << 19),
        VALUE(UCP_WORKER_ADDRESS_ATTR_FIELD_UID, 1 << 0),
        VALUE(UCP_WORKER_PARAM_FIELD_CLIENT_ID, 1 << 8),
        VALUE(UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID, 1 << 2),
        VALUE(UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID, 1 << 1),
        VALUE(UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH, 1 << 0),
        VALUE(UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY, 1 << 1),
        VALUE(UCP_DEVICE_MEM_LIST_ELEM_FIELD_LOCAL_ADDR, 1 << 2),
        VALUE(UCP_DEVICE_MEM_LIST_ELEM_FIELD_REMOTE_ADDR, 1 << 3),
        VALUE(UCP_DEVICE_MEM_LIST_ELEM_FIELD_LENGTH, 1 << 4),
        VALUE(UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP, 1 << 5),
        VALUE(UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS, 1 << 0),
        VALUE(UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE, 1 << 1),
        VALUE(UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS, 1 << 2),
        VALUE(UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER, 1 << 3),
        VALUE(UCP_DEVICE_COUNTER_PARAMS_FIELD_MEM_TYPE, 1 << 0),
        VALUE(UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH, 1 << 1),
        VALUE(UCP_DEVICE_MEM_LIST_VERSION_V1, 2),
        VALUE(UCP_DEVICE_FLAG_NODELAY, 1 << 0),
        VALUE(UCP_DEVICE_WAY_MAPPED, 1),
        VALUE(UCS_DEVICE_LEVEL_THREAD, 0),
        VALUE(UCS_DEVICE_LEVEL_WARP, 1),
        VALUE(UCS_DEVICE_LEVEL_BLOCK, 2),
        VALUE(UCS_DEVICE_LEVEL_GRID, 3),
        VALUE(UCS_DEVICE_NUM_THREADS_IN_WARP, 32),
    };
    for (const Value& value : values) EXPECT_EQ(value.ours, value.theirs) << value.name;
}

TEST(Version, Layouts) {
    const Value values[] = {
        VALUE(sizeof(ucp_mem_map_params_t), 48),
        VALUE(offsetof(ucp_mem_map_params_t, memory_type), 32),
        VALUE(offsetof(ucp_mem_map_params_t, exported_memh_buffer), 40),
        VALUE(sizeof(ucp_transport_entry_t), 16),
        VALUE(offsetof(ucp_transport_entry_t, device_name), 8),
        VALUE(sizeof(ucp_transports_t), 24),
        VALUE(offsetof(ucp_transports_t, num_entries), 8),
        VALUE(offsetof(ucp_transports_t, entry_size), 16),
        VALUE(sizeof(ucp_ep_attr_t), 328),
        VALUE(offsetof(ucp_ep_attr_t, user_data), 320),
        VALUE(sizeof(ucp_params_t), 88),
        VALUE(offsetof(ucp_params_t, node_local_id), 80),
        VALUE(sizeof(ucp_context_attr_t), 72),
        VALUE(offsetof(ucp_context_attr_t, device_counter_size), 64),
        VALUE(sizeof(ucp_request_param_t), 96),
        VALUE(offsetof(ucp_request_param_t, remote_datatype), 72),
        VALUE(offsetof(ucp_request_param_t, remote), 80),
        VALUE(offsetof(ucp_request_param_t, remote_count), 88),
        VALUE(sizeof(ucp_dt_local_sgl_t), 48),
        VALUE(offsetof(ucp_dt_local_sgl_t, buffers), 8),
        VALUE(offsetof(ucp_dt_local_sgl_t, lengths), 16),
        VALUE(offsetof(ucp_dt_local_sgl_t, memhs), 24),
        VALUE(offsetof(ucp_dt_local_sgl_t, counts), 32),
        VALUE(offsetof(ucp_dt_local_sgl_t, strides), 40),
        VALUE(sizeof(ucp_dt_remote_sgl_t), 32),
        VALUE(offsetof(ucp_dt_remote_sgl_t, remote_addrs), 8),
        VALUE(offsetof(ucp_dt_remote_sgl_t, lengths), 16),
        VALUE(offsetof(ucp_dt_remote_sgl_t, rkeys), 24),
        VALUE(offsetof(ucp_ep_attr_t, local_sockaddr), 40),
        VALUE(offsetof(ucp_ep_attr_t, remote_sockaddr), 168),
        VALUE(offsetof(ucp_ep_attr_t, transports), 296),
        VALUE(sizeof(ucp_datatype_attr_t), 32),
        VALUE(offsetof(ucp_datatype_attr_t, packed_size), 8),
        VALUE(offsetof(ucp_datatype_attr_t, buffer), 16),
        VALUE(offsetof(ucp_datatype_attr_t, count), 24),
        VALUE(sizeof(ucp_memh_pack_params_t), 16),
        VALUE(offsetof(ucp_memh_pack_params_t, flags), 8),
        VALUE(sizeof(ucp_memh_buffer_release_params_t), 8),
        VALUE(sizeof(ucp_rkey_compare_params_t), 8),
        VALUE(sizeof(ucp_device_mem_list_elem_t), 56),
        VALUE(offsetof(ucp_device_mem_list_elem_t, memh), 8),
        VALUE(offsetof(ucp_device_mem_list_elem_t, local_addr), 16),
        VALUE(offsetof(ucp_device_mem_list_elem_t, length), 24),
        VALUE(offsetof(ucp_device_mem_list_elem_t, remote_addr), 32),
        VALUE(offsetof(ucp_device_mem_list_elem_t, rkey), 40),
        VALUE(offsetof(ucp_device_mem_list_elem_t, ep), 48),
        VALUE(sizeof(ucp_device_mem_list_params_t), 40),
        VALUE(offsetof(ucp_device_mem_list_params_t, element_size), 8),
        VALUE(offsetof(ucp_device_mem_list_params_t, num_elements), 16),
        VALUE(offsetof(ucp_device_mem_list_params_t, worker), 24),
        VALUE(offsetof(ucp_device_mem_list_params_t, elements), 32),
        VALUE(sizeof(ucp_device_counter_params_t), 24),
        VALUE(offsetof(ucp_device_counter_params_t, mem_type), 8),
        VALUE(offsetof(ucp_device_counter_params_t, memh), 16),
        // As kernels that were compiled with UCX's headers read them, of lists with one mapped
        // lane.
        VALUE(sizeof(ucp_device_remote_mem_list_t), 8),
        VALUE(offsetof(ucp_device_remote_mem_list_t, num_lanes), 2),
        VALUE(offsetof(ucp_device_remote_mem_list_t, length), 4),
        VALUE(sizeof(ucp_device_remote_mem_elem_t), 24),
        VALUE(offsetof(ucp_device_remote_mem_elem_t, way), 8),
        VALUE(offsetof(ucp_device_remote_mem_elem_t, mapped_offset), 16),
        VALUE(sizeof(ucp_device_local_mem_list_t), 8),
        VALUE(offsetof(ucp_device_local_mem_list_t, num_lanes), 2),
        VALUE(offsetof(ucp_device_local_mem_list_t, length), 4),
        VALUE(sizeof(ucp_device_local_mem_elem_t), 8),
    };
    for (const Value& value : values) EXPECT_EQ(value.ours, value.theirs) << value.name;
}

static_assert(ucp_rkey_h{UCP_RKEY_INVALID} == nullptr);

template <typename Function, typename Signature>
constexpr bool is_a = std::is_same_v<Function, Signature>;

static_assert(is_a<decltype(ucp_memh_pack),
                   ucs_status_t(ucp_mem_h, const ucp_memh_pack_params_t*, void**, size_t*)>);
static_assert(
    is_a<decltype(ucp_memh_buffer_release), void(void*, const ucp_memh_buffer_release_params_t*)>);
static_assert(
    is_a<decltype(ucp_rkey_compare), ucs_status_t(ucp_worker_h, ucp_rkey_h, ucp_rkey_h,
                                                  const ucp_rkey_compare_params_t*, int*)>);
static_assert(is_a<decltype(ucp_dt_query), ucs_status_t(ucp_datatype_t, ucp_datatype_attr_t*)>);
static_assert(is_a<decltype(ucp_worker_address_query),
                   ucs_status_t(ucp_address_t*, ucp_worker_address_attr_t*)>);
static_assert(is_a<decltype(ucp_ep_query), ucs_status_t(ucp_ep_h, ucp_ep_attr_t*)>);
static_assert(
    is_a<decltype(ucp_device_local_mem_list_create),
         ucs_status_t(const ucp_device_mem_list_params_t*, ucp_device_local_mem_list_h*)>);
static_assert(
    is_a<decltype(ucp_device_remote_mem_list_create),
         ucs_status_t(const ucp_device_mem_list_params_t*, ucp_device_remote_mem_list_h*)>);
static_assert(is_a<decltype(ucp_device_get_mem_list_length), uint32_t(const void*)>);
static_assert(is_a<decltype(ucp_device_mem_list_release), void(void*)>);
static_assert(is_a<decltype(ucp_device_counter_init),
                   ucs_status_t(ucp_worker_h, const ucp_device_counter_params_t*, void*)>);
static_assert(
    is_a<uint64_t(ucp_worker_h, const ucp_device_counter_params_t*, void*),
         std::remove_pointer_t<
             decltype(static_cast<uint64_t (*)(ucp_worker_h, const ucp_device_counter_params_t*,
                                               void*)>(ucp_device_counter_read))>>);

}  // namespace

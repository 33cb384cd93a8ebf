// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>

#include "ucp/api/ucp.h"

namespace ucp::test {

// Maps memory of the program. @param prot  what it may be used for; none: the library's default
inline ucp_mem_h map_memory(ucp_context_h context, void* address, size_t length,
                            std::optional<unsigned> prot = {}) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = address;
    params.length = length;
    if (prot) {
        params.field_mask |= UCP_MEM_MAP_PARAM_FIELD_PROT;
        params.prot = *prot;
    }
    ucp_mem_h memory = nullptr;
    EXPECT_EQ(ucp_mem_map(context, &params, &memory), UCS_OK);
    return memory;
}

// The key to mapped memory of that context, for an endpoint to it.
inline ucp_rkey_h key_for(ucp_ep_h endpoint, ucp_context_h context, ucp_mem_h memory) {
    void* packed = nullptr;
    size_t size = 0;
    EXPECT_EQ(ucp_rkey_pack(context, memory, &packed, &size), UCS_OK);
    ucp_rkey_h key = nullptr;
    EXPECT_EQ(ucp_ep_rkey_unpack(endpoint, packed, &key), UCS_OK);
    ucp_rkey_buffer_release(packed);
    return key;
}

}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "ucp/api/ucp.h"
#include "ucp/api/ucpx.h"
#include "unit/ucp/cluster.h"
#include "unit/ucp/remote_key.h"

namespace ucp::test {

// Mapped memory of a worker, with the key that a peer has to it once it was open()ed.
class Region {
  public:
    Region(ucp_context_h context, size_t length, uint8_t value = 0)
        : bytes(length, value),
          memory(map_memory(context, bytes.data(), length)),
          context_(context) {}
    ~Region() {
        close();
        unmap();
    }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    // The key for a peer's endpoint; to be closed before the peer goes.
    void open(ucp_ep_h endpoint) { key = key_for(endpoint, context_, memory); }
    void close() {
        if (key != nullptr) ucp_rkey_destroy(std::exchange(key, nullptr));
    }
    // The key refers to nothing any more.
    void unmap() {
        if (memory == nullptr) return;
        EXPECT_EQ(ucp_mem_unmap(context_, std::exchange(memory, nullptr)), UCS_OK);
    }
    void fill(uint64_t seed) {
        const auto wanted = pattern(bytes.size(), seed);
        std::copy(wanted.begin(), wanted.end(), bytes.begin());
    }
    uint64_t address(size_t offset = 0) const {
        return reinterpret_cast<uintptr_t>(bytes.data()) + offset;
    }

    std::vector<uint8_t> bytes;  // stays where it is
    ucp_mem_h memory;
    ucp_rkey_h key = nullptr;

  private:
    ucp_context_h context_;
};

inline ucs_status_ptr_t start_batch(ucp_ep_h endpoint, bool is_put,
                                    const std::vector<ucpx_piece_t>& pieces,
                                    std::optional<uint64_t> notification = {},
                                    const ucp_request_param_t& param = {}) {
    ucpx_batch_t batch{};
    batch.pieces = pieces.data();
    batch.num_pieces = pieces.size();
    batch.entry_size = sizeof(ucpx_piece_t);
    if (notification) {
        batch.field_mask = UCPX_BATCH_FIELD_NOTIFICATION;
        batch.notification = *notification;
    }
    return is_put ? ucpx_put_batch_nbx(endpoint, &batch, &param)
                  : ucpx_get_batch_nbx(endpoint, &batch, &param);
}

// A batch that tells its value and that payload.
inline ucs_status_ptr_t start_telling(ucp_ep_h endpoint, bool is_put,
                                      const std::vector<ucpx_piece_t>& pieces, uint64_t value,
                                      const std::vector<uint8_t>& payload) {
    ucpx_batch_t batch{};
    batch.field_mask = UCPX_BATCH_FIELD_NOTIFICATION | UCPX_BATCH_FIELD_PAYLOAD;
    batch.pieces = pieces.data();
    batch.num_pieces = pieces.size();
    batch.entry_size = sizeof(ucpx_piece_t);
    batch.notification = value;
    batch.payload = payload.data();
    batch.payload_length = payload.size();
    const ucp_request_param_t param{};
    return is_put ? ucpx_put_batch_nbx(endpoint, &batch, &param)
                  : ucpx_get_batch_nbx(endpoint, &batch, &param);
}

// Of workers in one address space: are the bytes the same here and there?
inline bool is_equal(const ucpx_piece_t& piece) {
    return std::memcmp(piece.local_addr, reinterpret_cast<void*>(piece.remote_addr),
                       piece.length) == 0;
}

}  // namespace ucp::test

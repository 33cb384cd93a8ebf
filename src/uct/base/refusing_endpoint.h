// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/interface.h"

namespace uct {

// An endpoint that refuses every operation in one way: for those that have few, or none.
template <ucs_status_t kNo>
class RefusingEndpointWith : public Endpoint {
  public:
    ucs_status_t am_short(uint8_t, uint64_t, const void*, uint32_t) override { return kNo; }
    ssize_t am_bcopy(uint8_t, PackCallback, void*) override { return kNo; }
    ucs_status_t am_zcopy(uint8_t, std::span<const std::byte>, std::span<const Iov>,
                          Completion*) override {
        return kNo;
    }
    ucs_status_t put_short(const void*, uint32_t, uint64_t, RemoteKey) override { return kNo; }
    ssize_t put_bcopy(PackCallback, void*, uint64_t, RemoteKey) override { return kNo; }
    ucs_status_t put_zcopy(std::span<const Iov>, uint64_t, RemoteKey, Completion*) override {
        return kNo;
    }
    ucs_status_t get_bcopy(UnpackCallback, void*, size_t, uint64_t, RemoteKey,
                           Completion*) override {
        return kNo;
    }
    ucs_status_t get_zcopy(std::span<const Iov>, uint64_t, RemoteKey, Completion*) override {
        return kNo;
    }
    ucs_status_t atomic(AtomicOp, unsigned, uint64_t, uint64_t, void*, uint64_t, RemoteKey,
                        Completion*) override {
        return kNo;
    }
    ucs_status_t fence() override { return kNo; }
    ucs_status_t flush(Completion*) override { return kNo; }
    ucs_status_t check(Completion*) override { return kNo; }
    ucs_status_t pending_add(Pending*) override { return kNo; }
    void pending_remove(Pending*) override {}
};

using RefusingEndpoint = RefusingEndpointWith<UCS_ERR_UNSUPPORTED>;

}  // namespace uct

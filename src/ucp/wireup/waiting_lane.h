// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/api/interface.h"

namespace ucp::wireup {

/**
 * The lane of an endpoint whose peer is not known yet: it never has room, so that everything waits
 * in the endpoint's queues. Nothing is kept of who waits: the endpoint takes its waits back when
 * its real lanes come, and starts anew.
 */
class WaitingLane final : public uct::Endpoint {
  public:
    ucs_status_t am_short(uint8_t, uint64_t, const void*, uint32_t) override {
        return UCS_ERR_NO_RESOURCE;
    }
    ssize_t am_bcopy(uint8_t, uct::PackCallback, void*) override { return UCS_ERR_NO_RESOURCE; }
    ucs_status_t am_zcopy(uint8_t, std::span<const std::byte>, std::span<const uct::Iov>,
                          uct::Completion*) override {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_status_t put_short(const void*, uint32_t, uint64_t, uct::RemoteKey) override {
        return UCS_ERR_NO_RESOURCE;
    }
    ssize_t put_bcopy(uct::PackCallback, void*, uint64_t, uct::RemoteKey) override {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_status_t put_zcopy(std::span<const uct::Iov>, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_status_t get_bcopy(uct::UnpackCallback, void*, size_t, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_status_t get_zcopy(std::span<const uct::Iov>, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_status_t atomic(uct::AtomicOp, unsigned, uint64_t, uint64_t, void*, uint64_t,
                        uct::RemoteKey, uct::Completion*) override {
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_status_t fence() override { return UCS_ERR_NO_RESOURCE; }
    ucs_status_t flush(uct::Completion*) override { return UCS_ERR_NO_RESOURCE; }
    ucs_status_t check(uct::Completion*) override { return UCS_OK; }
    ucs_status_t pending_add(uct::Pending*) override { return UCS_OK; }
    void pending_remove(uct::Pending*) override {}
    bool is_connected(const uct::RemoteAddress&) const override { return false; }
};

}  // namespace ucp::wireup

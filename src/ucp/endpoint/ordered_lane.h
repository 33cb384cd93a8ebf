// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "uct/api/interface.h"

namespace ucp {

// The scalable lane of an endpoint that has just left its dedicated lane: each message says whose
// it is and which round's DMARK it comes after, so that the receiver can hold it until then.
// Messages only; all of them travel as AmId::kOrdered: short ones as short ones, since a queue may
// take more of those, the others through a bounce buffer.
class OrderedLane final : public uct::Endpoint {
  public:
    // @param scalable  outlives this
    OrderedLane(const Lane& scalable, uint64_t sender, uint32_t epoch);

    // What a message may be on this lane.
    Lane lane() { return {*this, attributes_, domains_}; }

    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload,
                          uint32_t length) override;
    ssize_t am_bcopy(uint8_t id, uct::PackCallback pack, void* arg) override;
    ucs_status_t am_zcopy(uint8_t, std::span<const std::byte>, std::span<const uct::Iov>,
                          uct::Completion*) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t pending_add(uct::Pending* pending) override {
        return scalable_.pending_add(pending);
    }
    void pending_remove(uct::Pending* pending) override { scalable_.pending_remove(pending); }

    // --- not for messages ---
    ucs_status_t put_short(const void*, uint32_t, uint64_t, uct::RemoteKey) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ssize_t put_bcopy(uct::PackCallback, void*, uint64_t, uct::RemoteKey) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t put_zcopy(std::span<const uct::Iov>, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t get_bcopy(uct::UnpackCallback, void*, size_t, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t get_zcopy(std::span<const uct::Iov>, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t atomic(uct::AtomicOp, unsigned, uint64_t, uint64_t, void*, uint64_t,
                        uct::RemoteKey, uct::Completion*) override {
        return UCS_ERR_UNSUPPORTED;
    }
    ucs_status_t fence() override { return UCS_ERR_UNSUPPORTED; }
    ucs_status_t flush(uct::Completion*) override { return UCS_ERR_UNSUPPORTED; }
    ucs_status_t check(uct::Completion*) override { return UCS_ERR_UNSUPPORTED; }
    bool is_connected(const uct::RemoteAddress&) const override { return false; }

  private:
    // Bytes behind a short message's first eight: they are put together on the stack.
    static constexpr size_t kMostShort = 256;

    struct Short;
    struct Wrapped;
    static size_t pack_short(void* destination, void* arg);
    static size_t pack_wrapped(void* destination, void* arg);

    uct::Endpoint& scalable_;
    uct::InterfaceAttributes attributes_;
    const DomainPair domains_;
    const size_t most_short_;  // bytes behind the first eight; 0: the lane has no short messages
    OrderedHeader header_;
};

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucp/bulk/crew.h"

namespace ucp::bulk {

/**
 * A mover's strand as the strand driver sees it: a dedicated transport endpoint that can be
 * connected and destroyed, each carried out by the mover. Nothing is posted on it by others.
 */
class LentEnd final : public uct::Endpoint {
  public:
    explicit LentEnd(std::shared_ptr<MoverStrand> strand);
    ~LentEnd() override;

    const std::shared_ptr<MoverStrand>& strand() const { return strand_; }

    ucs_status_t get_address(std::span<std::byte> address) const override;
    ucs_status_t connect(const uct::RemoteAddress& remote) override;
    bool is_connected(const uct::RemoteAddress& remote) const override;

    ucs_status_t am_short(uint8_t, uint64_t, const void*, uint32_t) override { return kNo; }
    ssize_t am_bcopy(uint8_t, uct::PackCallback, void*) override { return kNo; }
    ucs_status_t am_zcopy(uint8_t, std::span<const std::byte>, std::span<const uct::Iov>,
                          uct::Completion*) override {
        return kNo;
    }
    ucs_status_t put_short(const void*, uint32_t, uint64_t, uct::RemoteKey) override { return kNo; }
    ssize_t put_bcopy(uct::PackCallback, void*, uint64_t, uct::RemoteKey) override { return kNo; }
    ucs_status_t put_zcopy(std::span<const uct::Iov>, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return kNo;
    }
    ucs_status_t get_bcopy(uct::UnpackCallback, void*, size_t, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return kNo;
    }
    ucs_status_t get_zcopy(std::span<const uct::Iov>, uint64_t, uct::RemoteKey,
                           uct::Completion*) override {
        return kNo;
    }
    ucs_status_t atomic(uct::AtomicOp, unsigned, uint64_t, uint64_t, void*, uint64_t,
                        uct::RemoteKey, uct::Completion*) override {
        return kNo;
    }
    ucs_status_t fence() override { return kNo; }
    ucs_status_t flush(uct::Completion*) override { return kNo; }
    ucs_status_t check(uct::Completion*) override { return kNo; }
    ucs_status_t pending_add(uct::Pending*) override { return kNo; }
    void pending_remove(uct::Pending*) override {}

  private:
    static constexpr ucs_status_t kNo = UCS_ERR_UNSUPPORTED;

    const std::shared_ptr<MoverStrand> strand_;
};

}  // namespace ucp::bulk

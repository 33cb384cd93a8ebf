// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucp/bulk/threads/shared_queue.h"
#include "uct/base/refusing_endpoint.h"

namespace ucp::bulk {

/**
 * A mover's strand as the strand driver sees it: a dedicated transport endpoint that can be
 * connected and destroyed, each carried out by the mover. Nothing is posted on it by others.
 */
class LentEnd final : public uct::RefusingEndpoint {
  public:
    explicit LentEnd(std::shared_ptr<MoverStrand> strand);
    ~LentEnd() override;

    const std::shared_ptr<MoverStrand>& strand() const { return strand_; }

    ucs_status_t get_address(std::span<std::byte> address) const override;
    ucs_status_t connect(const uct::RemoteAddress& remote) override;
    bool is_connected(const uct::RemoteAddress& remote) const override;

  private:
    const std::shared_ptr<MoverStrand> strand_;
};

}  // namespace ucp::bulk

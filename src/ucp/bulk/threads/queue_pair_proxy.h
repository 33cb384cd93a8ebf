// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "ucp/bulk/threads/shared_queue.h"
#include "uct/base/refusing_endpoint.h"

namespace ucp::bulk {

/**
 * A thread's queue pair as the queue pair driver sees it: a dedicated transport endpoint that can
 * be connected and destroyed, each carried out by the thread. Nothing is posted on it by others.
 */
class QueuePairProxy final : public uct::RefusingEndpoint {
  public:
    explicit QueuePairProxy(std::shared_ptr<ThreadQueuePair> queue_pair);
    ~QueuePairProxy() override;

    const std::shared_ptr<ThreadQueuePair>& queue_pair() const { return queue_pair_; }

    ucs_status_t get_address(std::span<std::byte> address) const override;
    ucs_status_t connect(const uct::RemoteAddress& remote) override;
    bool is_connected(const uct::RemoteAddress& remote) const override;

  private:
    const std::shared_ptr<ThreadQueuePair> queue_pair_;
};

}  // namespace ucp::bulk

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/threads/queue_pair_proxy.h"

#include <utility>

#include "ucp/bulk/threads/bulk_thread.h"

namespace ucp::bulk {

QueuePairProxy::QueuePairProxy(std::shared_ptr<ThreadQueuePair> queue_pair)
    : queue_pair_(std::move(queue_pair)) {
    queue_pair_->proxy = this;
}

QueuePairProxy::~QueuePairProxy() {
    queue_pair_->proxy = nullptr;
    queue_pair_->thread.close(*queue_pair_);
}

ucs_status_t QueuePairProxy::get_address(std::span<std::byte> address) const {
    ucs_status_t status = UCS_ERR_CONNECTION_RESET;
    queue_pair_->thread.call([&] {
        if (queue_pair_->transport != nullptr)
            status = queue_pair_->transport->get_address(address);
    });
    return status;
}

ucs_status_t QueuePairProxy::connect(const uct::RemoteAddress& remote) {
    ucs_status_t status = UCS_ERR_CONNECTION_RESET;
    queue_pair_->thread.call([&] {
        if (queue_pair_->transport != nullptr) status = queue_pair_->transport->connect(remote);
    });
    return status;
}

bool QueuePairProxy::is_connected(const uct::RemoteAddress& remote) const {
    bool is_connected = false;
    queue_pair_->thread.call([&] {
        is_connected =
            queue_pair_->transport != nullptr && queue_pair_->transport->is_connected(remote);
    });
    return is_connected;
}

}  // namespace ucp::bulk

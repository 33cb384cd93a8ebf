// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/bulk/threads/queue_pair_proxy.h"

#include <utility>

#include "ucp/bulk/threads/bulk_thread.h"

namespace ucp::bulk {

LentEnd::LentEnd(std::shared_ptr<MoverStrand> strand) : strand_(std::move(strand)) {
    strand_->end = this;
}

LentEnd::~LentEnd() {
    strand_->end = nullptr;
    strand_->mover.close(*strand_);
}

ucs_status_t LentEnd::get_address(std::span<std::byte> address) const {
    ucs_status_t status = UCS_ERR_CONNECTION_RESET;
    strand_->mover.call([&] {
        if (strand_->transport != nullptr) status = strand_->transport->get_address(address);
    });
    return status;
}

ucs_status_t LentEnd::connect(const uct::RemoteAddress& remote) {
    ucs_status_t status = UCS_ERR_CONNECTION_RESET;
    strand_->mover.call([&] {
        if (strand_->transport != nullptr) status = strand_->transport->connect(remote);
    });
    return status;
}

bool LentEnd::is_connected(const uct::RemoteAddress& remote) const {
    bool is_connected = false;
    strand_->mover.call([&] {
        is_connected = strand_->transport != nullptr && strand_->transport->is_connected(remote);
    });
    return is_connected;
}

}  // namespace ucp::bulk

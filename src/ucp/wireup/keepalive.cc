// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/wireup/keepalive.h"

namespace ucp {

void Keepalive::check(ucs::Time now) {
    due_ = ucs::deadline(now, interval_);
    unsigned checked = 0;
    uint32_t last = 0;
    // Endpoints are listed in the order of their serial numbers.
    endpoints_.for_each([&](Endpoint& endpoint) {
        if (endpoint.serial() <= last_ || checked == count_) return;
        if (!endpoint.has_flag(Endpoint::kPeerErrors) || endpoint.is_failed()) return;
        const Lane lane = endpoint.scalable_lane();
        if ((lane.attributes.capabilities & uct::kCheckPeer) == 0) return;
        ++checked;
        last = endpoint.serial();
        const ucs_status_t status = lane.endpoint.check(nullptr);
        // One without room has something under way, which finds out by itself.
        if (status != UCS_OK && status != UCS_INPROGRESS && status != UCS_ERR_NO_RESOURCE) {
            endpoint.fail(status);
        }
    });
    last_ = last;  // 0: from the start
}

}  // namespace ucp

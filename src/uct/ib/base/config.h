// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>

#include "ucs/config/table.h"
#include "ucs/config/values.h"

namespace uct::ib {

// What the interfaces share; every transport has its own values of these. ud uses only some.
struct TransportConfig {
    unsigned tx_queue_len;
    unsigned tx_cq_len;
    unsigned tx_cq_moderation;
    unsigned tx_max_poll;
    unsigned tx_min_inline;
    unsigned tx_min_sge = 5;
    unsigned rx_queue_len;
    unsigned rx_queue_initial;
    unsigned rx_max_poll;
    ucs::config::MemorySize segment_size;
    unsigned max_rd_atomic;
    unsigned retry_count;
    unsigned rnr_retry_count;
    ucs::Duration timeout;
    ucs::Duration rnr_timeout;
    bool fc_enable;
    unsigned fc_window;
    double fc_hard_threshold;
    ucs::Duration fc_request_timeout;

    unsigned service_level;
    unsigned traffic_class;
    unsigned hop_limit;
    std::optional<unsigned> gid_index;
    std::optional<unsigned> pkey;
    std::optional<unsigned> path_mtu;
};

// The variables of transports over datagrams, and of those over connections, for a table of each:
// the transport's own prefix wins over UCX_RC_, UCX_DC_ or UCX_UD_, and that over UCX_IB_.
std::span<const ucs::config::Field<TransportConfig>> datagram_fields();
std::span<const ucs::config::Field<TransportConfig>> connected_fields();

}  // namespace uct::ib

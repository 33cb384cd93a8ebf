// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ucs/config/table.h"
#include "ucs/config/values.h"

namespace uct::ib {

/** What the interfaces share; every transport has its own values of these. ud uses only some. */
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

enum class TxPolicy : uint8_t { kDcs, kDcsQuota, kRand };

struct DcConfig {
    unsigned num_dci;
    TxPolicy tx_policy;
    unsigned tx_quota;
};

struct UdConfig {
    ucs::Duration timeout;
    ucs::Duration timer_tick;
    double timer_backoff;
    unsigned max_window;
};

enum class TransportKind : uint8_t { kRcMlx5, kRcVerbs, kDcMlx5, kUdVerbs };

/** Tables of the environment: the specific prefix wins over UCX_RC_ or UCX_DC_, and that over
 * UCX_IB_. */
const ucs::config::Table<TransportConfig>& transport_table(TransportKind kind);
const ucs::config::Table<DcConfig>& dc_table();
const ucs::config::Table<UdConfig>& ud_table();

}  // namespace uct::ib

template <>
struct ucs::config::EnumNames<uct::ib::TxPolicy> {
    struct Entry {
        uct::ib::TxPolicy value;
        std::string_view name;
    };
    static constexpr Entry kNames[] = {
        {uct::ib::TxPolicy::kDcs, "dcs"},
        {uct::ib::TxPolicy::kDcsQuota, "dcs_quota"},
        {uct::ib::TxPolicy::kRand, "rand"},
    };
};

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ucs/config/table.h"
#include "ucs/config/values.h"

namespace uct::tcp {

// UCX_TCP_...: names and meanings as in UCX where UCX has them.
struct Config {
    ucs::config::MemorySize tx_seg_size;
    ucs::config::MemorySize rx_seg_size;
    unsigned max_iov;
    ucs::config::MemorySize sendv_thresh;
    bool prefer_default;
    bool put_enable;
    bool conn_nb;
    unsigned max_poll;
    ucs::config::MemorySize turn;
    unsigned max_conn_retries;
    bool nodelay;
    unsigned burst;
    std::optional<ucs::config::MemorySize> sndbuf;
    std::optional<ucs::config::MemorySize> rcvbuf;
    std::optional<ucs::config::MemorySize> send_ahead;
    std::string congestion;
    ucs::config::Range<uint16_t> port_range;
    size_t max_num_eps;
    std::vector<std::string> af_prio;
    unsigned busy_poll;  // microseconds
    ucs::Duration keepidle;
    unsigned keepcnt;
    ucs::Duration keepintvl;
    std::optional<ucs::Duration> user_timeout;
    ucs::config::Ternary failover;

    unsigned connections;
    ucs::config::MemorySize stripe_size;
    unsigned tx_queue_len;
    ucs::Duration conn_timeout;
    ucs::Duration hello_timeout;
    unsigned max_handshakes;
    std::string job_key;
    bool encrypt;
};

const ucs::config::Table<Config>& config_table();

}  // namespace uct::tcp

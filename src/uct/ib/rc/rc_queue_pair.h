// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/ib/base/ib_interface.h"

// Reliable connections: making queue pairs and taking them through their states.
namespace uct::ib {

// A queue pair in the reset state; null if the device refuses, with errno.
// @param extended    post with ibv_wr_*
// @param max_inline  asked for; becomes what was granted
QpPtr create_rc_queue_pair(IbInterface& interface, bool extended, uint32_t* max_inline);

// Reset to init. @return false if the device refuses, with errno
bool initialize_rc(ibv_qp* qp, const Device& device, const Device::Path& path);

struct RcConnection {
    const Device& device;
    const Device::Path& path;
    const TransportConfig& config;
    PortAddress remote_port;
    QpAddress remote;
    QpAddress local;
};

// Init to ready to send. @return false if the device refuses, with errno
bool connect_rc(ibv_qp* qp, const RcConnection& connection);

}  // namespace uct::ib

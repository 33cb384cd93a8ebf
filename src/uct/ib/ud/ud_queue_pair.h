// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/ib/base/ib_interface.h"

namespace uct::ib::ud {

/**
 * A queue pair of datagrams in the reset state, on the interface's queues.
 * @param max_inline  in: bytes asked for; out: granted
 * @return null, with errno
 */
QpPtr create_queue_pair(IbInterface& interface, uint32_t* max_inline);
/** From the reset state to ready to send. @param key  its Q_Key */
bool start_queue_pair(ibv_qp* qp, const Device& device, const Device::Path& path, uint32_t key);

}  // namespace uct::ib::ud

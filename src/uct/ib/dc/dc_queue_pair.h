// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "uct/ib/base/device.h"

// Dynamically connected transport: its targets (DCT) and initiators (DCI).
namespace uct::ib {

class IbInterface;

// Can the adapter make a target and an initiator? Tries with objects of its own.
bool probe_dc(ibv_context* context);

// A target that accepts senders; null if the device refuses, with errno.
QpPtr create_dct(IbInterface& interface);

// An initiator in the reset state; null if the device refuses, with errno.
// @param max_inline  asked for; becomes what was granted
QpPtr create_dci(IbInterface& interface, uint32_t* max_inline);

// Reset to ready to send. @return false if the device refuses, with errno
bool bring_up_dci(ibv_qp* qp, const IbInterface& interface);

}  // namespace uct::ib

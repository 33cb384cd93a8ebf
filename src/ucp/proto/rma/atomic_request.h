// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "ucp/base/request.h"
#include "ucp/mem/remote_memory.h"
#include "ucp/proto/rma/rma.h"

namespace ucp {

/**
 * The part of an atomic operation.
 *
 * A lane whose device has the operation does it. Else, if the device can compare and swap 8 bytes,
 * a loop of those on the 8-byte word around the operand does it, so that all operations on a word
 * go through one device and are atomic among each other. Else it is emulated.
 */
struct AtomicRequest {
    OneSided* owner;
    AtomicArguments arguments;
    uint64_t address;
    const RemoteMemory* remote;
    std::optional<uint32_t> number = {};  //!< a flush waits for the answer, not for the lane
    uint64_t guess = 0;                   //!< what the 8-byte word is believed to hold
    uint64_t found = 0;                   //!< where the device puts the old value
    void* device_result = nullptr;        //!< where `result` goes in the end
    uint64_t result = 0;                  //!< of the operation, for a device's memory
    struct Step : uct::Completion {
        Request* request = nullptr;
    } step{};  //!< of one compare-swap
};

void set_atomic_result(const AtomicRequest& atomic, uint64_t value);

}  // namespace ucp

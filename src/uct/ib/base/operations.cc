// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/base/operations.h"

namespace uct::ib::finish {

void release(SendOperation& operation, ucs_status_t status) {
    operation.release();
}

void complete(SendOperation& operation, ucs_status_t status) {
    Completion* const completion = operation.completion;
    operation.release();
    if (completion != nullptr) completion->complete(status);
}

void unpack(SendOperation& operation, ucs_status_t status) {
    if (status == UCS_OK) {
        const auto& buffer = reinterpret_cast<const BounceBuffer&>(operation);
        operation.unpack(operation.argument, buffer.data, operation.length);
    }
    complete(operation, status);
}

void store_atomic(SendOperation& operation, ucs_status_t status) {
    if (status == UCS_OK && operation.argument != nullptr) {
        const auto& buffer = reinterpret_cast<const BounceBuffer&>(operation);
        std::memcpy(operation.argument, buffer.data, sizeof(uint64_t));
    }
    complete(operation, status);
}

}  // namespace uct::ib::finish

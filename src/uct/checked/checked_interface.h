// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "uct/base/forwarding.h"
#include "uct/checked/checked_messages.h"

namespace uct {

// A transport whose messages bear a checksum, which the receiver compares before anybody sees them
// (UCX_CHECKSUM, docs/design/checksums.md). Both ends must be of this kind.
//
// It lets through messages alone. Nothing runs at the target of a put, a get or an atomic by an
// adapter or through shared memory, and so nothing could look at the bytes: whoever uses the
// interface asks the peer's processor by messages instead.
class CheckedInterface final : public ForwardingInterface {
  public:
    // What is below it, opened with what the worker gives its interfaces.
    using Open = std::function<ucs_status_t(const InterfaceParams&, std::unique_ptr<Interface>*)>;
    // @return as `open`; UCS_ERR_UNSUPPORTED: the transport's messages have no room
    static ucs_status_t create(const InterfaceParams& params, const Open& open,
                               CheckedMessages& messages, std::unique_ptr<Interface>* interface);

    ucs_status_t create_endpoint(const RemoteAddress& remote,
                                 std::unique_ptr<Endpoint>* endpoint) override;
    unsigned progress() override {
        messages_.polled(attributes_);
        return ForwardingInterface::progress();
    }

    // --- for its endpoints ---

    bool admits(uint8_t id, const void* data, size_t length) {
        return messages_.admits(id, data, length);
    }

  private:
    CheckedInterface(const InterfaceParams& params, CheckedMessages& messages)
        : ForwardingInterface(params), messages_(messages) {}
    ucs_status_t limit();

    CheckedMessages& messages_;
};

}  // namespace uct

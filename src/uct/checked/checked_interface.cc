// SPDX-License-Identifier: BSD-3-Clause
// Compiled alone: it is off by default, and shall not change what compilers inline of transports.
#include "uct/checked/checked_interface.h"

#include <algorithm>
#include <utility>

#include "uct/checked/checked_endpoint.h"

namespace uct {
namespace {

constexpr uint32_t kPasses = kAmShort | kAmBcopy | kAmZcopy | kCheckPeer | kEventFd;

}  // namespace

ucs_status_t CheckedInterface::create(const InterfaceParams& params, const Open& open,
                                      CheckedMessages& messages,
                                      std::unique_ptr<Interface>* interface) {
    std::unique_ptr<CheckedInterface> made(new CheckedInterface(params, messages));
    std::unique_ptr<Interface> inner;
    ucs_status_t status = open(made->below(messages.table()), &inner);
    if (status != UCS_OK) return status;
    made->adopt(std::move(inner));
    status = made->limit();
    if (status == UCS_OK) *interface = std::move(made);
    return status;
}

// The transport is open: what is left of it for messages with their words.
ucs_status_t CheckedInterface::limit() {
    attributes_.capabilities &= kPasses;
    attributes_.atomic32_ops = attributes_.atomic64_ops = 0;
    attributes_.put = attributes_.get = {};
    OperationLimits& am = attributes_.am;
    constexpr size_t kWord = sizeof(CheckWord);
    if (am.max_bcopy <= kWord) return UCS_ERR_UNSUPPORTED;
    am.max_bcopy -= kWord;
    am.max_long_bcopy -= std::min(am.max_long_bcopy, kWord);
    if (am.max_short < kWord) attributes_.capabilities &= ~uint32_t{kAmShort};
    am.max_short =
        std::min(am.max_short - std::min(am.max_short, kWord), CheckedEndpoint::kMostShort);
    if (am.max_header < kWord) attributes_.capabilities &= ~uint32_t{kAmZcopy};
    am.max_header =
        std::min(am.max_header - std::min(am.max_header, kWord), CheckedEndpoint::kMostHeader);
    return UCS_OK;
}

ucs_status_t CheckedInterface::create_endpoint(const RemoteAddress& remote,
                                               std::unique_ptr<Endpoint>* endpoint) {
    return create_endpoint_of<CheckedEndpoint>(*this, remote, endpoint);
}

}  // namespace uct

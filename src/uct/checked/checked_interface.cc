// SPDX-License-Identifier: BSD-3-Clause
#include "uct/checked/checked_interface.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ucs/log/log.h"
#include "uct/base/am.h"
#include "uct/checked/checked_endpoint.h"
#include "uct/checked/crc32c.h"

namespace uct {
namespace {

constexpr uint32_t kPasses = kAmShort | kAmBcopy | kAmZcopy | kCheckPeer | kEventFd;

bool is_whole(uint8_t id, const void* data, size_t length) {
    CheckWord word;
    if (length < sizeof(word)) return false;
    std::memcpy(&word, data, sizeof(word));
    const std::byte* const message = static_cast<const std::byte*>(data) + sizeof(word);
    if (word.length != length - sizeof(word)) return false;
    return crc32c(id, message, word.length) == word.crc;
}

}  // namespace

ucs_status_t CheckedInterface::create(const InterfaceParams& params, const Open& open,
                                      const Report& report, std::unique_ptr<Interface>* interface) {
    std::unique_ptr<CheckedInterface> made(new CheckedInterface(params, report));
    InterfaceParams below{params.clock,
                          params.random,
                          made->table_,
                          failed,
                          made.get(),
                          params.worker_id,
                          params.estimated_endpoints,
                          params.config};
    ucs_status_t status = open(below, &made->inner_);
    if (status == UCS_OK) status = made->adopt();
    if (status == UCS_OK) *interface = std::move(made);
    return status;
}

CheckedInterface::CheckedInterface(const InterfaceParams& params, const Report& report)
    : params_(params), report_(report) {
    for (unsigned id = 0; id < kMaxAmId; ++id) {
        slots_[id] = {this, static_cast<uint8_t>(id)};
        table_.entries[id] = {receive, &slots_[id]};
    }
    table_.lost = params.am_table.lost != nullptr ? lost : nullptr;
    table_.lost_arg = this;
    // What a message says is not asked about before it is known to be what was sent.
    table_.admits = [](void*, PeerIdentity&, uint8_t, const void*, size_t) { return true; };
    table_.sender = params.am_table.sender;
    if (table_.sender == nullptr) table_.admits = nullptr;
}

/** The transport is open: what is left of it for messages with their words. */
ucs_status_t CheckedInterface::adopt() {
    attributes_ = inner_->attributes();
    attributes_.capabilities &= kPasses;
    attributes_.atomic32_ops = attributes_.atomic64_ops = 0;
    attributes_.put = attributes_.get = {};
    OperationLimits& am = attributes_.am;
    constexpr size_t kWord = sizeof(CheckWord);
    if (am.max_bcopy <= kWord) return UCS_ERR_UNSUPPORTED;
    am.max_bcopy -= kWord;
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
    std::unique_ptr<Endpoint> inner;
    const ucs_status_t status = inner_->create_endpoint(remote, &inner);
    if (status == UCS_OK) *endpoint = std::make_unique<CheckedEndpoint>(*this, std::move(inner));
    return status;
}

bool CheckedInterface::admits(uint8_t id, const void* data, size_t length) {
    const AmTable& handlers = params_.am_table;
    PeerIdentity* const from = handlers.sender != nullptr ? *handlers.sender : nullptr;
    if (is_over_ || (from != nullptr && from->is_over)) return false;
    if (!is_whole(id, data, length)) [[unlikely]] {
        ucs::log_error(
            "a message of kind {} and {} bytes came over {} on {} and is not what was sent: its "
            "checksum (UCX_CHECKSUM) is wrong",
            id, length, attributes_.transport, attributes_.device);
        is_over_ = from == nullptr;
        report_.corrupted(report_.arg, from);
        return false;
    }
    return from == nullptr || handlers.admits == nullptr ||
           handlers.admits(handlers.admits_arg, *from, id,
                           static_cast<const std::byte*>(data) + sizeof(CheckWord),
                           length - sizeof(CheckWord));
}

ucs_status_t CheckedInterface::receive(void* arg, void* data, size_t length,
                                       ReceiveDescriptor* descriptor) {
    const auto& [self, id] = *static_cast<const Slot*>(arg);
    if (!self->admits(id, data, length)) return UCS_OK;
    const AmTable::Entry& entry = self->params_.am_table.entries[id];
    return entry.handler(entry.arg, static_cast<std::byte*>(data) + sizeof(CheckWord),
                         length - sizeof(CheckWord), descriptor);
}

/** A handler had no memory: the message had been checked. */
void CheckedInterface::lost(void* arg, uint8_t id, const void* data, size_t length) {
    const AmTable& handlers = static_cast<CheckedInterface*>(arg)->params_.am_table;
    handlers.lost(handlers.lost_arg, id, static_cast<const std::byte*>(data) + sizeof(CheckWord),
                  length - sizeof(CheckWord));
}

void CheckedInterface::failed(void* arg, Endpoint* inner, ucs_status_t status) {
    const auto& self = *static_cast<CheckedInterface*>(arg);
    const auto found = self.endpoints_.find(inner);
    if (found != self.endpoints_.end())
        self.params_.error_handler(self.params_.error_arg, found->second, status);
}

}  // namespace uct

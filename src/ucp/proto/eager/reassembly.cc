// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/eager/reassembly.h"

#include <algorithm>
#include <new>
#include <utility>

#include "ucs/log/log.h"

namespace ucp {

void Reassembly::clear() {
    while (!messages_.empty()) {
        const Sink sink = messages_.begin()->second.sink;
        messages_.erase(messages_.begin());
        sink.finish(sink.target, UCS_ERR_CANCELED);
    }
}

bool Reassembly::charge_more(HeldBytes& held, uint64_t sender, size_t bytes) {
    if (held.grow(interfaces_.peer_memory(), bytes)) return true;
    interfaces_.too_much(sender);
    return false;
}

void Reassembly::begin(MessageId id, size_t total, size_t arrived, Sink sink) {
    bool is_new = false;
    try {
        is_new = messages_.try_emplace(id, Message{total, arrived, sink}).second;
    } catch (const std::bad_alloc&) {
        sink.finish(sink.target, UCS_ERR_NO_MEMORY);
        return;
    }
    if (!is_new) {
        ucs::log_warn("worker {:016x} began message {} twice: dropped", id.sender, id.number);
        sink.finish(sink.target, UCS_ERR_IO_ERROR);
    }
}

void Reassembly::redirect(MessageId id, Sink sink) {
    const auto found = messages_.find(id);
    if (found != messages_.end()) found->second.sink = sink;
}

void Reassembly::give_up(ucs::Time now) {
    constexpr unsigned kLooks = 8;
    for (auto& [sender, failed] : failed_) {
        if (failed.looks++ == 0) failed.since = now;
    }
    const auto is_over = [now](const auto& entry) {
        return entry.second.looks >= kLooks && now - entry.second.since >= kGiveUpAfter;
    };
    // The end of a message may bring anything about.
    for (auto over = std::ranges::find_if(failed_, is_over); over != failed_.end();
         over = std::ranges::find_if(failed_, is_over)) {
        const auto [sender, failed] = *over;
        failed_.erase(over);
        end_all_of(sender, failed.status);
    }
}

ucs::Time Reassembly::next_deadline() const {
    ucs::Time next = ucs::kNever;
    for (const auto& [sender, failed] : failed_) next = std::min(next, failed.since + kGiveUpAfter);
    return next;
}

void Reassembly::end_all_of(uint64_t sender, ucs_status_t status) {
    const auto is_his = [sender](const auto& entry) { return entry.first.sender == sender; };
    // The end of one may be the end of another.
    for (auto found = std::ranges::find_if(messages_, is_his); found != messages_.end();
         found = std::ranges::find_if(messages_, is_his)) {
        const Sink sink = found->second.sink;
        messages_.erase(found);
        sink.finish(sink.target, status);
    }
}

ucs_status_t Reassembly::on_fragment(void* arg, void* data, size_t length,
                                     uct::ReceiveDescriptor*) {
    auto& self = *static_cast<Reassembly*>(arg);
    FragmentHeader header;
    std::span<const std::byte> rest;
    if (!read_header(data, length, &header, &rest) || rest.empty()) {
        ucs::log_warn("a fragment of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    const std::byte* const payload = rest.data();
    const size_t bytes = rest.size();
    const MessageId id = header.id;
    const auto found = self.messages_.find(id);
    if (found == self.messages_.end()) return UCS_OK;
    if (!self.failed_.empty()) [[unlikely]] {
        const auto failed = self.failed_.find(id.sender);
        if (failed != self.failed_.end()) failed->second.looks = 0;
    }
    Message& message = found->second;
    const uint64_t offset = header.offset;
    if (offset != message.arrived || bytes > message.total - message.arrived) {
        ucs::log_warn("a fragment of worker {:016x} is out of its place: dropped", id.sender);
        return UCS_OK;
    }
    message.arrived += bytes;
    const Sink sink = message.sink;
    const bool whole = message.arrived == message.total;
    if (whole) self.messages_.erase(found);
    const ucs_status_t status = sink.store(sink.target, offset, payload, bytes);
    if (!whole && status != UCS_OK) self.messages_.erase(id);
    if (whole || status != UCS_OK) {
        sink.finish(sink.target, status);
        self.interfaces_.is_enough() = true;
    }
    return UCS_OK;
}

}  // namespace ucp

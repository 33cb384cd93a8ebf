// SPDX-License-Identifier: BSD-3-Clause
// What an association awaits the peer's answer for: one-sided operations, flushes, fences.
#include <algorithm>
#include <bit>
#include <new>

#include "uct/base/completion_group.h"
#include "uct/tcp/association/association.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

namespace {

// The peer bounds its answers by this; the association's own flushes have some room more. Slots are
// named by one byte.
constexpr size_t kMostOperations = 224, kMostSlots = 256;
constexpr unsigned kSlotBits = 8;
static_assert(kMostSlots <= 1u << kSlotBits);

}  // namespace
size_t Association::operation_room() const {
    return kMostOperations - std::min(kMostOperations, operation_count_);
}

RemoteOperation* Association::start_operation(RemoteOperation::Kind kind,
                                              const AssociationUser* owner,
                                              Completion* completion) {
    size_t slot = first_free_;
    while (slot < operations_.size() && operations_[slot] != nullptr) ++slot;
    if (slot == kMostSlots) return nullptr;
    if (slot == operations_.size()) {
        try {
            operations_.push_back(nullptr);
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }
    RemoteOperation* made = context_.buffers.operations.create(kind);
    if (made == nullptr) return nullptr;
    operations_[slot] = made;
    first_free_ = slot + 1;
    ++operation_count_;
    made->name = ++serial_ << kSlotBits | static_cast<uint32_t>(slot);
    if (made->name == wire::kNoOperation) made->name = ++serial_ << kSlotBits | slot;
    made->owner = owner;
    made->completion = completion;
    return made;
}

RemoteOperation* Association::find_operation(uint32_t name) {
    const size_t slot = name & ((1u << kSlotBits) - 1);
    if (slot >= operations_.size()) return nullptr;
    RemoteOperation* found = operations_[slot];
    return found != nullptr && found->name == name ? found : nullptr;
}

void Association::take_out(const RemoteOperation& operation) {
    const size_t slot = operation.name & ((1u << kSlotBits) - 1);
    operations_[slot] = nullptr;
    first_free_ = std::min(first_free_, slot);
    if (operation_count_-- == kMostOperations) room_made();
}

void Association::release(RemoteOperation& operation) {
    take_out(operation);
    context_.buffers.operations.destroy(&operation);
}

void Association::finish_operation(RemoteOperation& operation, ucs_status_t status) {
    if (status == UCS_OK) {
        status = operation.failure;
    } else if (RemoteOperation* last = find_operation(operation.last)) {
        last->failure = status;
    }
    // The peer handles what comes on a connection in order: an answer answers all before it.
    for (auto& connection : connections_) {
        if (connection == nullptr) continue;
        connection->acknowledged =
            std::max(connection->acknowledged, operation.covered[connection->index()]);
    }
    Completion* completion = operation.abandoned ? nullptr : operation.completion;
    const bool unpacks = operation.kind == RemoteOperation::Kind::kGetCopy && status == UCS_OK &&
                         !operation.abandoned;
    if (unpacks) {
        operation.unpack(operation.unpack_argument, operation.copy.get(), operation.length);
    }
    const uint32_t name = operation.is_ridden ? operation.name : wire::kNoOperation;
    const unsigned connection = operation.connection;
    release(operation);
    if (completion != nullptr) completion->complete(status);
    if (name != wire::kNoOperation) answer_riders(name, connection);
}

// A flush behind a chain that is under way asks nothing that the end of the chain does not tell.
// @return whether the answer to that is one to the flush
bool Association::ride(RemoteOperation& flush, const TcpConnection& connection) {
    if (flush.rides_on != wire::kNoOperation) return false;
    RemoteOperation* const chain = find_operation(connection.last_chain);
    if (chain == nullptr || chain->is_cut || chain->connection != connection.index() ||
        chain->covered[connection.index()] != connection.one_sided) {
        return false;
    }
    flush.rides_on = chain->name;
    chain->is_ridden = true;
    return true;
}

void Association::answer_riders(uint32_t name, unsigned connection) {
    for (size_t slot = 0; slot < operations_.size(); ++slot) {
        RemoteOperation* const flush = operations_[slot];
        if (flush == nullptr || flush->rides_on != name) continue;
        flush->rides_on = wire::kNoOperation;
        on_flush_reply(*flush, connection);
    }
}

void Association::release_unasked(OutputList& dropped) {
    uint64_t within = 0;  // of the frame that the last buffer ends in, so much is in the next
    for (OutputItem& item : dropped) {
        if (item.kind != OutputItem::Kind::kCopied) continue;
        const std::byte* data = static_cast<CopiedOutput&>(item).data();
        uint64_t position = within;
        while (position < item.length) {
            // Frames with their fixed headers are in one buffer.
            const auto frame = read_as<wire::FrameHeader>(data + position);
            const std::byte* fixed = data + position + sizeof(frame);
            const uint64_t head = sizeof(frame) + wire::shape_of(frame.type).fixed;
            // Cut short for lack of memory: the connection is about to end, and all with it.
            if (!frame.is_marked() || item.length - position < head) return;
            uint32_t name = wire::kNoOperation;
            if (frame.type == wire::FrameType::kGet) name = read_as<wire::Get>(fixed).operation;
            if (frame.type == wire::FrameType::kAtomic) {
                name = read_as<wire::Atomic>(fixed).operation;
            }
            if (RemoteOperation* operation = find_operation(name)) release(*operation);
            position += sizeof(frame) + frame.length + wire::padding(frame.length);
        }
        within = position - item.length;
    }
}

ucs_status_t Association::ask(const AssociationUser* owner, Completion* completion, bool probe) {
    if (owner != nullptr && !has_operation_room()) return UCS_ERR_NO_RESOURCE;
    RemoteOperation* operation = start_operation(RemoteOperation::Kind::kFlush, owner, completion);
    if (operation == nullptr)
        return operation_count_ < kMostSlots ? UCS_ERR_NO_MEMORY : UCS_ERR_NO_RESOURCE;
    if (probe) connection(0);
    for (auto& connection : connections_) {
        if (connection == nullptr) continue;
        operation->covered[connection->index()] = connection->one_sided;
        if (!connection->has_one_sided() && !(probe && connection->index() == 0)) continue;
        operation->waiting |= static_cast<uint8_t>(1u << connection->index());
        if (connection->has_one_sided() && ride(*operation, *connection)) continue;
        struct {
            wire::FrameHeader frame;
            wire::Reply flush;
        } message{{sizeof(wire::Reply), wire::FrameType::kFlush, 0, wire::kMark},
                  {operation->name, 0}};
        const iovec piece{&message, sizeof(message)};
        connection->send({&piece, 1}, sizeof(message));
    }
    return UCS_INPROGRESS;
}

ucs_status_t Association::flush(const AssociationUser* owner, Completion* completion) {
    const auto asks = [](const auto& connection) {
        return connection != nullptr && connection->has_one_sided();
    };
    const auto waits = [](const auto& connection) {
        return connection != nullptr && !connection->has_one_sided() && !connection->is_settled();
    };
    const bool needs_peer = std::ranges::any_of(connections_, asks);
    if (std::ranges::none_of(connections_, waits)) {
        return needs_peer ? ask(owner, completion, false) : UCS_OK;
    }
    CompletionGroup* parts = CompletionGroup::start(completion);
    for (auto& connection : connections_) {
        if (!waits(connection) || connection->queue().append_marker(owner, parts->add())) continue;
        parts->cancel();
        parts->abandon();
        return UCS_ERR_NO_MEMORY;
    }
    if (needs_peer) {
        const ucs_status_t status = ask(owner, parts->add(), false);
        if (status != UCS_INPROGRESS) {
            parts->cancel();
            parts->abandon();
            return status;
        }
    }
    return parts->finish();
}
RemoteOperation* Association::start_put_chain(const AssociationUser* owner, Completion* completion,
                                              unsigned connection) {
    RemoteOperation* made = start_operation(RemoteOperation::Kind::kFlush, owner, completion);
    if (made == nullptr) return nullptr;
    made->chained = true;
    made->connection = static_cast<uint8_t>(connection);
    made->waiting = static_cast<uint8_t>(1u << connection);
    return made;
}

void Association::end_chain(RemoteOperation& operation) {
    TcpConnection& chains = connection(operation.connection);
    operation.covered[chains.index()] = chains.one_sided;
    chains.last_chain = operation.name;
}

bool Association::on_flush_reply(RemoteOperation& operation, unsigned connection) {
    const auto bit = static_cast<uint8_t>(1u << connection);
    if ((operation.waiting & bit) == 0) return false;
    if (connection == 0 && operation.again > 0) {
        --operation.again;
        return true;
    }
    operation.waiting &= static_cast<uint8_t>(~bit);
    if (operation.waiting == 0) finish_operation(operation, UCS_OK);
    return true;
}

void Association::fence() {
    for (const auto& connection : connections_) {
        if (connection == nullptr || !connection->has_one_sided()) continue;
        fenced_ |= static_cast<uint8_t>(1u << connection->index());
    }
}

ucs_status_t Association::passes_fence_to(unsigned targets) {
    if (fenced_ == 0) [[likely]]
        return UCS_OK;
    for (const auto& connection : connections_) {
        if (connection == nullptr || connection->has_one_sided()) continue;
        fenced_ &= static_cast<uint8_t>(~(1u << connection->index()));
    }
    // What may go to several connections can overtake on any of them.
    if (fenced_ == 0 || (std::has_single_bit(targets) && fenced_ == targets)) return UCS_OK;
    if (fencing_) return UCS_ERR_NO_RESOURCE;
    fence_done_.count = 1;
    const ucs_status_t status = ask(nullptr, &fence_done_, false);
    fencing_ = status == UCS_INPROGRESS;
    return fencing_ ? UCS_ERR_NO_RESOURCE : status;
}

void Association::fence_passed() {
    fencing_ = false;
    room_made();
}

}  // namespace uct::tcp

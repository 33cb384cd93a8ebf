// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/association/responder.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ucs/log/log.h"
#include "uct/base/atomics.h"
#include "uct/tcp/association/association.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

namespace {

template <typename Body>
void send_fixed(TcpConnection& connection, wire::FrameType type, const Body& body) {
    struct {
        wire::FrameHeader frame;
        Body body;
    } message{{sizeof(Body), type, 0, wire::kMark}, body};
    static_assert(sizeof(message) % wire::kAlignment == 0);
    const iovec piece{&message, sizeof(message)};
    connection.send({&piece, 1}, sizeof(message));
}

bool is_sound(const wire::Atomic& atomic) {
    return std::has_single_bit(atomic.code) &&
           atomic.code <= static_cast<uint8_t>(AtomicOp::kCompareSwap) &&
           (atomic.size == 4 || atomic.size == 8) && atomic.address % atomic.size == 0;
}

}  // namespace

size_t slice(const iovec* pieces, size_t count, uint64_t offset, uint64_t length, iovec* part) {
    size_t used = 0;
    for (size_t i = 0; i < count && length > 0; ++i) {
        if (offset >= pieces[i].iov_len) {
            offset -= pieces[i].iov_len;
            continue;
        }
        const size_t taken = std::min<uint64_t>(pieces[i].iov_len - offset, length);
        part[used++] = {static_cast<std::byte*>(pieces[i].iov_base) + offset, taken};
        length -= taken;
        offset = 0;
    }
    return used;
}

Landing::Landing(Association& association, const wire::Put* put, uint32_t operation)
    : association_(association), put_(put), operation_(operation) {
    if (put != nullptr) regions_.emplace(association.buffers().regions);
}

bool Landing::covers(uint64_t length) {
    return regions_->find(put_->key, put_->address, length, PeerRights::kWrite) != nullptr;
}

size_t Landing::find(uint64_t offset, uint64_t length, iovec* pieces) {
    if (put_ != nullptr) {
        std::byte* memory =
            regions_->find(put_->key, put_->address + offset, length, PeerRights::kWrite);
        if (memory == nullptr) return 0;
        pieces[0] = {memory, length};
        return 1;
    }
    RemoteOperation* operation = association_.find_operation(operation_);
    if (operation == nullptr || operation->abandoned) return 0;
    if (operation->kind == RemoteOperation::Kind::kGetCopy) {
        pieces[0] = {operation->copy.get() + offset, length};
        return 1;
    }
    return slice(operation->pieces.data(), operation->pieces_count, offset, length, pieces);
}

void refuse(TcpConnection& connection, uint32_t endpoint, uint32_t operation) {
    send_fixed(connection, wire::FrameType::kRefused, wire::Refused{endpoint, operation});
}

void answer_flush(TcpConnection& connection, const wire::Reply& flush) {
    send_fixed(connection, wire::FrameType::kFlushReply, flush);
}

void answer_get(TcpConnection& connection, Association& association, const wire::Get& get) {
    RegionTable& regions = association.buffers().regions;
    std::byte* memory =
        get.length <= wire::kMaxPayload
            ? RegionTable::Reader(regions).find(get.key, get.address, get.length, PeerRights::kRead)
            : nullptr;
    if (memory == nullptr) {
        refuse(connection, get.endpoint, get.operation);
        return;
    }
    ReferringOutput* answer = connection.queue().make();
    if (answer == nullptr) {
        ucs::log_error("no memory for the answer to a read of {} bytes: it fails", get.length);
        refuse(connection, wire::kNobody, get.operation);
        return;
    }
    const uint32_t length = sizeof(wire::Reply) + get.length;
    const wire::FrameHeader frame{length, wire::FrameType::kGetReply, 0, wire::kMark};
    const wire::Reply reply{get.operation, 0};
    std::memcpy(answer->head.data(), &frame, sizeof(frame));
    std::memcpy(answer->head.data() + sizeof(frame), &reply, sizeof(reply));
    answer->head_length = sizeof(frame) + sizeof(reply);
    answer->pieces[0] = {memory, get.length};
    answer->pieces_count = 1;
    answer->tail = static_cast<uint8_t>(wire::padding(length));
    answer->key = get.key;
    const bool was_empty = connection.queue().empty();
    connection.queue().append(answer);
    connection.send_queued(was_empty);
}

void answer_atomic(TcpConnection& connection, Association& association,
                   const wire::Atomic& atomic) {
    const uint32_t waits = atomic.wants_reply != 0 ? atomic.operation : wire::kNoOperation;
    uint64_t old = 0;
    {
        RegionTable::Reader regions(association.buffers().regions);
        std::byte* memory = is_sound(atomic) ? regions.find(atomic.key, atomic.address, atomic.size,
                                                            PeerRights::kAll)
                                             : nullptr;
        if (memory != nullptr) {
            const auto code = static_cast<AtomicOp>(atomic.code);
            old = apply_atomic(code, atomic.size, memory, atomic.operand, atomic.compare);
        } else {
            refuse(connection, atomic.endpoint, waits);
            return;
        }
    }
    if (atomic.wants_reply == 0) return;
    send_fixed(connection, wire::FrameType::kAtomicReply,
               wire::AtomicReply{{atomic.operation, 0}, old});
}

bool on_atomic_reply(Association& association, const wire::AtomicReply& reply) {
    RemoteOperation* operation = association.find_operation(reply.reply.operation);
    if (operation == nullptr || operation->kind != RemoteOperation::Kind::kAtomic) return false;
    if (!operation->abandoned && operation->result != nullptr) {
        std::memcpy(operation->result, &reply.old_value, operation->size);
    }
    association.finish_operation(*operation, UCS_OK);
    return true;
}

bool on_flush_reply(Association& association, const wire::Reply& reply, unsigned connection) {
    RemoteOperation* operation = association.find_operation(reply.operation);
    if (operation == nullptr || operation->kind != RemoteOperation::Kind::kFlush) return false;
    return association.on_flush_reply(*operation, connection);
}

void on_refused(Association& association, const wire::Refused& refused) {
    const bool is_short = refused.endpoint == wire::kNobody;
    AssociationUser* const user = is_short ? nullptr : association.find_user(refused.endpoint);
    if (user != nullptr) user->on_refused();
    // Ending the operation may free the endpoint, and failing the endpoint abandons the operation.
    RemoteOperation* operation = association.find_operation(refused.operation);
    if (operation != nullptr && operation->kind != RemoteOperation::Kind::kFlush) {
        association.finish_operation(*operation, is_short ? UCS_ERR_NO_MEMORY : UCS_ERR_IO_ERROR);
    }
}

}  // namespace uct::tcp

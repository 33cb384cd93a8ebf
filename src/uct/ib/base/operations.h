// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>

#include "uct/base/am.h"
#include "uct/ib/base/ib_interface.h"

namespace uct::ib {

// What runs when work requests are complete.
namespace finish {
void release(SendOperation& operation, ucs_status_t status);
void complete(SendOperation& operation, ucs_status_t status);
void unpack(SendOperation& operation, ucs_status_t status);
void store_atomic(SendOperation& operation, ucs_status_t status);
}  // namespace finish

// The operations of an endpoint over a send queue, the same for rc and dc.
//
// Derived gives:
//   IbInterface& base()
//   SendQueue* acquire(ucs_status_t* status)   a queue with room, or why not
//   SendQueue* acquire_message(status)         likewise, and a credit of flow control
//   size_t kFront                              bytes of a message before what the user sends
//   void write_front(std::byte*, uint8_t id)   writes them
//   front(id, header)                          the same and the header of a short message: an
//                                              object, or a reference until the next call
//   plain_front(id, header)                    the same of a plain message
//   void message_posted()                      a credit is used
//   bool post(SendQueue&, WorkRequest&, SendOperation*)
//   SendQueue* plain_queue()                   a queue with room for a plain message: no flow
//                                              control, no fence, no signal;
//                                              null: whatever the reason, acquire_message() knows
//   bool post_plain(SendQueue&, pieces)        post that, and count it
//   ssize_t post_chain(SendQueue&, opcode, pieces, SendOperation&, immediate)
//   bool keeps_requests()                      requests must be kept until they are complete, so
//                                              that they can be posted anew: no inline sends
template <typename Derived>
class Operations : public Endpoint {
  public:
    ucs_status_t am_short(uint8_t id, uint64_t header, const void* payload, uint32_t length) final {
        SendQueue* queue = self().plain_queue();
        if (queue == nullptr) [[unlikely]]
            return message_slow(id, header, payload, length);
        const auto& front = self().plain_front(id, header);
        const ibv_data_buf pieces[] = {
            {const_cast<void*>(static_cast<const void*>(&front)), sizeof(front)},
            {const_cast<void*>(payload), length}};
        return self().post_plain(*queue, pieces) ? UCS_OK : UCS_ERR_IO_ERROR;
    }

    ssize_t am_bcopy(uint8_t id, PackCallback pack, void* arg) final {
        SendQueue* queue;
        BounceBuffer* buffer;
        const ucs_status_t status = take_room(&Derived::acquire_message, &queue, &buffer);
        if (status != UCS_OK) [[unlikely]]
            return status;
        // The packed bytes lie aligned, what goes before them right before.
        constexpr size_t kFront = Derived::kFront;
        const size_t length = pack_or_release(pack, buffer->data + kAligned, arg,
                                              [&] { base().bounce_pool().release(buffer); });
        self().write_front(buffer->data + kAligned - kFront, id);
        WorkRequest request(Opcode::kSend);
        request.add(buffer->data + kAligned - kFront, length + kFront, buffer->local_key);
        if (!post_copied(*queue, request, *buffer)) [[unlikely]]
            return UCS_ERR_IO_ERROR;
        self().message_posted();
        return static_cast<ssize_t>(length);
    }

    ucs_status_t am_zcopy(uint8_t id, std::span<const std::byte> header, std::span<const Iov> iov,
                          Completion* completion) final {
        if (iov.size() > base().attributes().am.max_iov ||
            header.size() > base().attributes().am.max_header) {
            return UCS_ERR_INVALID_PARAM;
        }
        SendQueue* queue;
        BounceBuffer* buffer;
        ucs_status_t status = take_room(&Derived::acquire_message, &queue, &buffer);
        if (status != UCS_OK) [[unlikely]]
            return status;
        constexpr size_t kFront = Derived::kFront;
        self().write_front(buffer->data, id);
        if (!header.empty()) std::memcpy(buffer->data + kFront, header.data(), header.size());
        WorkRequest request(Opcode::kSend);
        request.signaled = completion != nullptr;
        request.add(buffer->data, header.size() + kFront, buffer->local_key);
        add(request, iov);
        buffer->operation.finish = finish::complete;
        buffer->operation.completion = completion;
        status = post_waiting(*queue, request, buffer->operation);
        if (status == UCS_INPROGRESS) self().message_posted();
        return status;
    }

    ucs_status_t put_short(const void* data, uint32_t length, uint64_t remote_address,
                           RemoteKey key) final {
        ucs_status_t status;
        SendQueue* queue = self().acquire(&status);
        if (queue == nullptr) [[unlikely]]
            return status;
        WorkRequest request = remote(Opcode::kWrite, remote_address, key);
        if (self().keeps_requests()) [[unlikely]] {
            BounceBuffer* buffer = base().bounce_buffer();
            if (buffer == nullptr) return base().none_left(base().bounce_pool());
            std::memcpy(buffer->data, data, length);
            request.add(buffer->data, length, buffer->local_key);
            return post_copied(*queue, request, *buffer) ? UCS_OK : UCS_ERR_IO_ERROR;
        }
        request.inlined = true;
        if (length > 0) request.add(data, length);
        return self().post(*queue, request, nullptr) ? UCS_OK : UCS_ERR_IO_ERROR;
    }

    ssize_t put_bcopy(PackCallback pack, void* arg, uint64_t remote_address, RemoteKey key) final {
        SendQueue* queue;
        BounceBuffer* buffer;
        const ucs_status_t status = take_room(&Derived::acquire, &queue, &buffer);
        if (status != UCS_OK) [[unlikely]]
            return status;
        const size_t length =
            pack_or_release(pack, buffer->data, arg, [&] { base().bounce_pool().release(buffer); });
        WorkRequest request = remote(Opcode::kWrite, remote_address, key);
        if (length > 0) request.add(buffer->data, length, buffer->local_key);
        if (!post_copied(*queue, request, *buffer)) [[unlikely]]
            return UCS_ERR_IO_ERROR;
        return static_cast<ssize_t>(length);
    }

    ucs_status_t put_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) final {
        return transfer(Opcode::kWrite, iov, remote_address, key, completion);
    }

    ucs_status_t get_bcopy(UnpackCallback unpack, void* arg, size_t length, uint64_t remote_address,
                           RemoteKey key, Completion* completion) final {
        SendQueue* queue;
        BounceBuffer* buffer;
        const ucs_status_t status = take_room(&Derived::acquire, &queue, &buffer);
        if (status != UCS_OK) [[unlikely]]
            return status;
        WorkRequest request = remote(Opcode::kRead, remote_address, key);
        request.signaled = true;
        if (length > 0) request.add(buffer->data, length, buffer->local_key);
        SendOperation& operation = buffer->operation;
        operation.finish = finish::unpack;
        operation.completion = completion;
        operation.unpack = unpack;
        operation.argument = arg;
        operation.length = static_cast<uint32_t>(length);
        return post_waiting(*queue, request, operation);
    }

    ucs_status_t get_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                           Completion* completion) final {
        return transfer(Opcode::kRead, iov, remote_address, key, completion);
    }

    ucs_status_t atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                        void* result, uint64_t remote_address, RemoteKey key,
                        Completion* completion) final {
        if (size != 8 || (base().attributes().atomic64_ops & static_cast<uint8_t>(op)) == 0) {
            return UCS_ERR_UNSUPPORTED;
        }
        SendQueue* queue;
        BounceBuffer* buffer;
        const ucs_status_t status = take_room(&Derived::acquire, &queue, &buffer);
        if (status != UCS_OK) [[unlikely]]
            return status;
        WorkRequest request = remote(
            op == AtomicOp::kAdd ? Opcode::kFetchAdd : Opcode::kCompareSwap, remote_address, key);
        request.operand = operand;
        request.compare = compare;
        request.signaled = true;
        request.add(buffer->data, sizeof(uint64_t), buffer->local_key);
        buffer->operation.finish = finish::store_atomic;
        buffer->operation.completion = completion;
        buffer->operation.argument = result;
        return post_waiting(*queue, request, buffer->operation);
    }

    ucs_status_t check(Completion* completion) final {
        // A write of no bytes is acknowledged by a living peer and needs no key.
        return transfer(Opcode::kWrite, {}, 0, 0, completion);
    }

    ssize_t put_chain(std::span<const ChainPiece> pieces, Completion* completion) final {
        return chain(Opcode::kWrite, pieces, completion);
    }

    ssize_t get_chain(std::span<const ChainPiece> pieces, Completion* completion) final {
        return chain(Opcode::kRead, pieces, completion);
    }

  protected:
    static constexpr size_t kAligned = 16;

    IbInterface& base() { return self().interface(); }

    // For a flush: run the completion when all that is posted now is complete.
    ucs_status_t flush_queue(SendQueue& queue, const DcTarget& target, const void* owner,
                             Completion* completion) {
        if (completion == nullptr) {
            queue.signal(target);
            return UCS_INPROGRESS;
        }
        SendOperation* operation = base().operation();
        if (operation == nullptr) return base().none_left(base().operation_pool());
        operation->pool = &base().operation_pool();
        operation->finish = finish::complete;
        operation->completion = completion;
        operation->owner = owner;
        if (!queue.ride(*operation, target)) {
            operation->release();
            return UCS_ERR_NO_RESOURCE;
        }
        return UCS_INPROGRESS;
    }

    ssize_t chain(Opcode opcode, std::span<const ChainPiece> pieces, Completion* completion,
                  const uint32_t* immediate = nullptr) {
        if (pieces.empty()) return 0;
        // Several endpoints of a shared initiator would each need a record of every piece.
        if (self().keeps_requests()) [[unlikely]]
            return UCS_ERR_UNSUPPORTED;
        ucs_status_t status;
        SendQueue* queue = self().acquire(&status);
        if (queue == nullptr) return status == UCS_ERR_NO_RESOURCE ? 0 : status;
        SendOperation* operation = base().operation();
        if (operation == nullptr) [[unlikely]] {
            status = base().none_left(base().operation_pool());
            return status == UCS_ERR_NO_RESOURCE ? 0 : status;
        }
        operation->pool = &base().operation_pool();
        operation->finish = finish::complete;
        operation->completion = completion;
        const ssize_t taken = self().post_chain(*queue, opcode, pieces, *operation, immediate);
        if (taken <= 0) [[unlikely]]
            operation->release();
        return taken;
    }

  private:
    Derived& self() { return static_cast<Derived&>(*this); }

    // A queue and a bounce buffer. @return UCS_OK, or why there is not both
    [[gnu::always_inline]] ucs_status_t take_room(SendQueue* (Derived::*acquire)(ucs_status_t*),
                                                  SendQueue** queue, BounceBuffer** buffer) {
        ucs_status_t status;
        *queue = (self().*acquire)(&status);
        if (*queue == nullptr) [[unlikely]] {
            *buffer = nullptr;
            return status;
        }
        *buffer = base().bounce_buffer();
        if (*buffer == nullptr) [[unlikely]]
            return base().none_left(base().bounce_pool());
        return UCS_OK;
    }

    static WorkRequest remote(Opcode opcode, uint64_t remote_address, RemoteKey key) {
        WorkRequest request(opcode);
        request.remote_key = static_cast<uint32_t>(key);
        request.remote_address = remote_address;
        return request;
    }

    static void add(WorkRequest& request, std::span<const Iov> iov) {
        for (const Iov& piece : iov) {
            if (piece.length == 0) continue;
            request.add(piece.buffer, piece.length,
                        static_cast<const MemoryRegion*>(piece.memory)->local_key());
        }
    }

    // Post with a bounce buffer that goes back when done.
    bool post_copied(SendQueue& queue, WorkRequest& request, BounceBuffer& buffer) {
        buffer.operation.pool = &base().bounce_pool();
        buffer.operation.finish = finish::release;
        if (self().post(queue, request, &buffer.operation)) [[likely]]
            return true;
        buffer.operation.release();
        return false;
    }

    // Post with an operation that carries a user's completion.
    ucs_status_t post_waiting(SendQueue& queue, WorkRequest& request, SendOperation& operation) {
        operation.pool = &base().bounce_pool();
        if (self().post(queue, request, &operation)) [[likely]]
            return UCS_INPROGRESS;
        operation.release();
        return UCS_ERR_IO_ERROR;
    }

    // A short message that is not plain.
    [[gnu::noinline]] ucs_status_t message_slow(uint8_t id, uint64_t header, const void* payload,
                                                uint32_t length) {
        ucs_status_t status;
        SendQueue* queue = self().acquire_message(&status);
        if (queue == nullptr) return status;
        if (self().keeps_requests()) return message_copied(*queue, id, &header, payload, length);
        const auto& front = self().front(id, header);
        WorkRequest request(Opcode::kSend);
        request.inlined = true;
        request.add(&front, sizeof(front));
        if (length > 0) request.add(payload, length);
        if (!self().post(*queue, request, nullptr)) return UCS_ERR_IO_ERROR;
        self().message_posted();
        return UCS_OK;
    }

    ucs_status_t message_copied(SendQueue& queue, uint8_t id, const uint64_t* header,
                                const void* payload, uint32_t length) {
        BounceBuffer* buffer = base().bounce_buffer();
        if (buffer == nullptr) return base().none_left(base().bounce_pool());
        constexpr size_t kFront = Derived::kFront;
        self().write_front(buffer->data, id);
        std::memcpy(buffer->data + kFront, header, sizeof(*header));
        if (length > 0) std::memcpy(buffer->data + kFront + sizeof(*header), payload, length);
        WorkRequest request(Opcode::kSend);
        request.add(buffer->data, kFront + sizeof(*header) + length, buffer->local_key);
        if (!post_copied(queue, request, *buffer)) return UCS_ERR_IO_ERROR;
        self().message_posted();
        return UCS_OK;
    }

    ucs_status_t transfer(Opcode opcode, std::span<const Iov> iov, uint64_t remote_address,
                          RemoteKey key, Completion* completion) {
        if (iov.size() > base().attributes().put.max_iov) return UCS_ERR_INVALID_PARAM;
        ucs_status_t status;
        SendQueue* queue = self().acquire(&status);
        if (queue == nullptr) [[unlikely]]
            return status;
        SendOperation* operation = base().operation();
        if (operation == nullptr) [[unlikely]]
            return base().none_left(base().operation_pool());
        WorkRequest request = remote(opcode, remote_address, key);
        request.signaled = completion != nullptr;
        request.inlined = iov.empty();
        add(request, iov);
        if (request.pieces == 0) request.inlined = opcode == Opcode::kWrite;
        operation->pool = &base().operation_pool();
        operation->finish = finish::complete;
        operation->completion = completion;
        if (self().post(*queue, request, operation)) [[likely]]
            return UCS_INPROGRESS;
        operation->release();
        return UCS_ERR_IO_ERROR;
    }
};

}  // namespace uct::ib

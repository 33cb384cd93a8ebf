// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "uct/base/am.h"
#include "uct/base/atomics.h"
#include "uct/self/self_interface.h"

namespace uct {

namespace {

std::byte* append(std::byte* to, const void* from, size_t length) {
    if (length > 0) std::memcpy(to, from, length);
    return to + length;
}

}  // namespace

ucs_status_t SelfEndpoint::am_short(uint8_t id, uint64_t header, const void* payload,
                                    uint32_t length) {
    SelfMessage* message = interface_.allocate(id);
    if (message == nullptr) return UCS_ERR_NO_RESOURCE;
    append(append(message->data(), &header, sizeof(header)), payload, length);
    message->length = sizeof(header) + length;
    interface_.send(message);
    return UCS_OK;
}

ssize_t SelfEndpoint::am_bcopy(uint8_t id, PackCallback pack, void* arg) {
    SelfMessage* message = interface_.allocate(id);
    if (message == nullptr) return UCS_ERR_NO_RESOURCE;
    message->length = pack_or_release(pack, message->data(), arg, [&] { message->release(); });
    interface_.send(message);
    return static_cast<ssize_t>(message->length);
}

ucs_status_t SelfEndpoint::am_zcopy(uint8_t id, std::span<const std::byte> header,
                                    std::span<const Iov> iov, Completion* completion) {
    SelfMessage* message = interface_.allocate(id);
    if (message == nullptr) return UCS_ERR_NO_RESOURCE;
    std::byte* end = append(message->data(), header.data(), header.size());
    for (const Iov& piece : iov) end = append(end, piece.buffer, piece.length);
    message->length = static_cast<size_t>(end - message->data());
    interface_.send(message);
    return UCS_OK;
}

SelfEndpoint::~SelfEndpoint() {
    interface_.copies().cancel(*this);
    if (is_fenced_) interface_.fence_waits(false);
    interface_.pending().drop_all(waiting_);
}

ucs_status_t SelfEndpoint::fence() {
    if (!has_copies() || is_fenced_) return UCS_OK;
    is_fenced_ = true;
    interface_.fence_waits(true);
    return UCS_OK;
}

void SelfEndpoint::copies_done() {
    if (!is_fenced_) return;
    is_fenced_ = false;
    interface_.fence_waits(false);
}

ucs_status_t SelfEndpoint::put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                                     RemoteKey key) {
    if (is_fenced_) return UCS_ERR_NO_RESOURCE;
    append(reinterpret_cast<std::byte*>(remote_address), buffer, length);
    return UCS_OK;
}

ssize_t SelfEndpoint::put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                                RemoteKey key) {
    if (is_fenced_ || !interface_.copies().has_room()) return UCS_ERR_NO_RESOURCE;
    const size_t length = pack(reinterpret_cast<void*>(remote_address), arg);
    interface_.copies().spend(length);
    return static_cast<ssize_t>(length);
}

ucs_status_t SelfEndpoint::put_zcopy(std::span<const Iov> iov, uint64_t remote_address,
                                     RemoteKey key, Completion* completion) {
    if (is_fenced_) return UCS_ERR_NO_RESOURCE;
    return interface_.copies().start(*this, {CopyDirection::kPut, iov, remote_address, key},
                                     completion);
}

ucs_status_t SelfEndpoint::get_bcopy(UnpackCallback unpack, void* arg, size_t length,
                                     uint64_t remote_address, RemoteKey key,
                                     Completion* completion) {
    if (is_fenced_ || !interface_.copies().has_room()) return UCS_ERR_NO_RESOURCE;
    unpack(arg, reinterpret_cast<const void*>(remote_address), length);
    interface_.copies().spend(length);
    return UCS_OK;
}

ucs_status_t SelfEndpoint::get_zcopy(std::span<const Iov> iov, uint64_t remote_address,
                                     RemoteKey key, Completion* completion) {
    if (is_fenced_) return UCS_ERR_NO_RESOURCE;
    return interface_.copies().start(*this, {CopyDirection::kGet, iov, remote_address, key},
                                     completion);
}

ucs_status_t SelfEndpoint::atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                                  void* result, uint64_t remote_address, RemoteKey key,
                                  Completion* completion) {
    if (is_fenced_) return UCS_ERR_NO_RESOURCE;
    const uint64_t old =
        apply_atomic(op, size, reinterpret_cast<void*>(remote_address), operand, compare);
    if (result != nullptr) std::memcpy(result, &old, size);
    return UCS_OK;
}

ucs_status_t SelfEndpoint::pending_add(Pending* pending) {
    if (interface_.has_room() && waiting_.empty()) return UCS_ERR_BUSY;
    interface_.pending().add(waiting_, *pending);
    return UCS_OK;
}

}  // namespace uct

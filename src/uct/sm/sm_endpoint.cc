// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_endpoint.h"

#include <atomic>
#include <cstring>

#include "ucs/sys/sanitizer.h"
#include "uct/base/atomics.h"

namespace uct::sm {

SmEndpoint::~SmEndpoint() {
    if (status_ == UCS_OK) status_ = UCS_ERR_CANCELED;
    interface_.copies().cancel(*this);
    interface_.pending().drop_all(*this);
    interface_.remove(*this);
}

// --- remote memory

// An operation's result is the caller's; that the owner has gone concerns the endpoint as well. A
// worker that has gone in peace took its memory with it, though its process may live.
ucs_status_t SmEndpoint::moved(ucs_status_t status) {
    const bool is_without_owner =
        status == UCS_ERR_INVALID_ADDR && outbox() != nullptr && outbox()->is_closed();
    if (status == UCS_ERR_ENDPOINT_TIMEOUT || is_without_owner)
        return fail(UCS_ERR_ENDPOINT_TIMEOUT);
    return status;
}

ucs_status_t SmEndpoint::ready_to_copy() const {
    const ucs_status_t status = one_sided_status();
    return status == UCS_OK && !interface_.copies().has_room() ? UCS_ERR_NO_RESOURCE : status;
}

ucs_status_t SmEndpoint::copy(CopyDirection direction, std::span<const Iov> iov,
                              uint64_t remote_address, RemoteKey key, Completion* completion) {
    if (const ucs_status_t status = one_sided_status(); status != UCS_OK) return status;
    if (iov.size() == 1) {
        // It looks at the rights itself.
        const ucs_status_t status =
            interface_.copy_short(direction, iov.front(), remote_address, key);
        if (status != UCS_ERR_NO_RESOURCE) return moved(status);
    }
    const PeerRights wanted =
        direction == CopyDirection::kPut ? PeerRights::kWrite : PeerRights::kRead;
    const LocalCopy copy(direction, iov, remote_address, key);
    if (!RemoteRegion::from(key).allows(wanted, remote_address, copy.left()))
        return moved(UCS_ERR_INVALID_ADDR);
    return moved(interface_.copy(*this, copy, completion));
}

ucs_status_t SmEndpoint::put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                                   RemoteKey key) {
    if (const ucs_status_t status = one_sided_status(); status != UCS_OK) return status;
    const RemoteRegion& region = RemoteRegion::from(key);
    if (region.is_mapped() && region.allows(PeerRights::kWrite, remote_address, length))
        [[likely]] {
        const ucs::IgnoredByThreadSanitizer stands_for_a_peer;
        std::memcpy(region.local(remote_address), buffer, length);
        return UCS_OK;
    }
    const Iov piece{const_cast<void*>(buffer), length, nullptr};
    return moved(region.write({&piece, 1}, remote_address));
}

ssize_t SmEndpoint::put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                              RemoteKey key) {
    if (const ucs_status_t status = ready_to_copy(); status != UCS_OK) return status;
    std::byte* scratch = interface_.scratch();
    const size_t length = pack(scratch, arg);
    interface_.spend(length);
    const Iov piece{scratch, length, nullptr};
    const ucs_status_t status = moved(RemoteRegion::from(key).write({&piece, 1}, remote_address));
    if (status != UCS_OK) return status;
    return static_cast<ssize_t>(length);
}

ucs_status_t SmEndpoint::put_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                                   Completion* completion) {
    return copy(CopyDirection::kPut, iov, remote_address, key, completion);
}

ucs_status_t SmEndpoint::get_bcopy(UnpackCallback unpack, void* arg, size_t length,
                                   uint64_t remote_address, RemoteKey key, Completion* completion) {
    if (const ucs_status_t status = ready_to_copy(); status != UCS_OK) return status;
    const RemoteRegion& region = RemoteRegion::from(key);
    interface_.spend(length);
    if (region.is_mapped()) {
        if (!region.allows(PeerRights::kRead, remote_address, length))
            return moved(UCS_ERR_INVALID_ADDR);
        unpack(arg, region.local(remote_address), length);
        return UCS_OK;
    }
    std::byte* scratch = interface_.scratch();
    const Iov piece{scratch, length, nullptr};
    const ucs_status_t status = moved(region.read({&piece, 1}, remote_address));
    if (status == UCS_OK) unpack(arg, scratch, length);
    return status;
}

ucs_status_t SmEndpoint::get_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                                   Completion* completion) {
    return copy(CopyDirection::kGet, iov, remote_address, key, completion);
}

ssize_t SmEndpoint::copy_pieces(CopyDirection direction, std::span<const ChainPiece> pieces) {
    const ucs_status_t ready = ready_to_copy();
    if (ready == UCS_ERR_NO_RESOURCE) return 0;
    if (ready != UCS_OK) return ready;
    size_t bytes = 0;
    const ssize_t taken = interface_.pieces().copy(direction, pieces, &bytes);
    interface_.spend(bytes);
    if (taken < 0) return moved(static_cast<ucs_status_t>(taken));
    return taken;
}

ucs_status_t SmEndpoint::atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                                void* result, uint64_t remote_address, RemoteKey key,
                                Completion* completion) {
    if (const ucs_status_t status = one_sided_status(); status != UCS_OK) return status;
    const RemoteRegion& region = RemoteRegion::from(key);
    if (!region.is_mapped()) return UCS_ERR_UNSUPPORTED;
    if (!region.allows(PeerRights::kAll, remote_address, size)) return moved(UCS_ERR_INVALID_ADDR);
    const uint64_t old = apply_atomic(op, size, region.local(remote_address), operand, compare);
    if (result != nullptr) std::memcpy(result, &old, size);
    return UCS_OK;
}

ucs_status_t SmEndpoint::fence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (has_copies()) one_sided_ = UCS_ERR_NO_RESOURCE;
    return status_;
}

ucs_status_t SmEndpoint::flush(Completion* completion) {
    if (status_ == UCS_ERR_NOT_CONNECTED) return UCS_OK;
    if (status_ != UCS_OK) return status_;
    return interface_.copies().flush(*this, completion);
}

// --- room and death

ucs_status_t SmEndpoint::pending_add(Pending* pending) {
    if (status_ != UCS_OK) return status_;
    if (may_post() && empty()) return UCS_ERR_BUSY;
    interface_.pending().add(*this, *pending);
    interface_.wake_own_progress();
    return UCS_OK;
}

ucs_status_t SmEndpoint::fail(ucs_status_t status) {
    if (status_ != UCS_OK) return status_;
    status_ = status;
    stop();
    interface_.pending().drop_all(*this);
    interface_.report_later(*this, status);
    return status;
}

ucs_status_t SmEndpoint::check(Completion* completion) {
    if (status_ != UCS_OK) return status_;
    if (outbox()->is_closed()) return fail(UCS_ERR_ENDPOINT_TIMEOUT);
    look_at_peer();
    return status_;
}

// A peer that closed its queue before it went has gone in peace: that matters to those only who
// have something to say to it, or said it too late.
void SmEndpoint::look_at_peer() {
    if (status_ != UCS_OK) return;
    const bool is_closed = outbox()->is_closed();
    if (is_closed ? !empty() || has_lost() : !outbox()->has_reader())
        fail(UCS_ERR_ENDPOINT_TIMEOUT);
}

}  // namespace uct::sm

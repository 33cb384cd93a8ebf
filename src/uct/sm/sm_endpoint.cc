// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/sm_endpoint.h"

#include <atomic>
#include <cstring>

#include "uct/base/atomics.h"

namespace uct::sm {

SmEndpoint::~SmEndpoint() {
    interface_.pending().drop_all(*this);
    interface_.remove(*this);
}

// --- remote memory

/** An operation's result is the caller's; that the owner has gone concerns the endpoint as well. */
ucs_status_t SmEndpoint::moved(ucs_status_t status) {
    if (status == UCS_ERR_ENDPOINT_TIMEOUT) return fail(status);
    return status;
}

ucs_status_t SmEndpoint::put_short(const void* buffer, uint32_t length, uint64_t remote_address,
                                   RemoteKey key) {
    if (status_ != UCS_OK) return status_;
    const Iov piece{const_cast<void*>(buffer), length, nullptr};
    return moved(RemoteRegion::from(key).write({&piece, 1}, remote_address));
}

ssize_t SmEndpoint::put_bcopy(PackCallback pack, void* arg, uint64_t remote_address,
                              RemoteKey key) {
    if (status_ != UCS_OK) return status_;
    std::byte* scratch = interface_.scratch();
    const size_t length = pack(scratch, arg);
    const Iov piece{scratch, length, nullptr};
    const ucs_status_t status = moved(RemoteRegion::from(key).write({&piece, 1}, remote_address));
    if (status != UCS_OK) return status;
    return static_cast<ssize_t>(length);
}

ucs_status_t SmEndpoint::put_zcopy(std::span<const Iov> iov, uint64_t remote_address, RemoteKey key,
                                   Completion* completion) {
    if (status_ != UCS_OK) return status_;
    return moved(RemoteRegion::from(key).write(iov, remote_address));
}

ucs_status_t SmEndpoint::get_bcopy(UnpackCallback unpack, void* arg, size_t length,
                                   uint64_t remote_address, RemoteKey key, Completion* completion) {
    if (status_ != UCS_OK) return status_;
    const RemoteRegion& region = RemoteRegion::from(key);
    if (region.is_mapped()) {
        if (!region.allows(PeerRights::kRead, remote_address, length)) return UCS_ERR_INVALID_ADDR;
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
    if (status_ != UCS_OK) return status_;
    return moved(RemoteRegion::from(key).read(iov, remote_address));
}

ucs_status_t SmEndpoint::atomic(AtomicOp op, unsigned size, uint64_t operand, uint64_t compare,
                                void* result, uint64_t remote_address, RemoteKey key,
                                Completion* completion) {
    if (status_ != UCS_OK) return status_;
    const RemoteRegion& region = RemoteRegion::from(key);
    if (!region.is_mapped()) return UCS_ERR_UNSUPPORTED;
    if (!region.allows(PeerRights::kAll, remote_address, size)) return UCS_ERR_INVALID_ADDR;
    const uint64_t old = apply_atomic(op, size, region.local(remote_address), operand, compare);
    if (result != nullptr) std::memcpy(result, &old, size);
    return UCS_OK;
}

ucs_status_t SmEndpoint::fence() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return status_;
}

// --- room and death

ucs_status_t SmEndpoint::pending_add(Pending* pending) {
    if (status_ != UCS_OK) return status_;
    if (has_room() && empty()) return UCS_ERR_BUSY;
    interface_.pending().add(*this, *pending);
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
    if (is_closed ? !empty() || has_lost() : !outbox()->owner().is_alive())
        fail(UCS_ERR_ENDPOINT_TIMEOUT);
}

}  // namespace uct::sm

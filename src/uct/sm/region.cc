// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/region.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "ucs/sys/sanitizer.h"

namespace uct::sm {

template <RemoteRegion::Direction kDirection>
ucs_status_t RemoteRegion::through_kernel(const Iov& piece, uint64_t address) const {
    for (size_t done = 0; done < piece.length;) {
        const iovec here{static_cast<std::byte*>(piece.buffer) + done, piece.length - done};
        const iovec there{reinterpret_cast<void*>(address + done), piece.length - done};
        const ssize_t moved = kDirection == Direction::kWrite
                                  ? process_vm_writev(owner(), &here, 1, &there, 1, 0)
                                  : process_vm_readv(owner(), &here, 1, &there, 1, 0);
        if (moved <= 0) {
            if (moved < 0 && errno == EINTR) continue;
            if (moved < 0 && errno == ESRCH) return UCS_ERR_ENDPOINT_TIMEOUT;
            return moved < 0 && errno == EFAULT ? UCS_ERR_INVALID_ADDR : UCS_ERR_IO_ERROR;
        }
        done += static_cast<size_t>(moved);
    }
    return UCS_OK;
}

template <RemoteRegion::Direction kDirection>
ucs_status_t RemoteRegion::copy(std::span<const Iov> pieces, uint64_t address) const {
    size_t length = 0;
    for (const Iov& piece : pieces) length += piece.length;
    constexpr PeerRights kWanted =
        kDirection == Direction::kWrite ? PeerRights::kWrite : PeerRights::kRead;
    if (!allows(kWanted, address, length)) return UCS_ERR_INVALID_ADDR;
    const ucs::IgnoredByThreadSanitizer stands_for_a_peer;
    for (const Iov& piece : pieces) {
        if (piece.length == 0) continue;
        if (!is_mapped()) {
            const ucs_status_t status = through_kernel<kDirection>(piece, address);
            if (status != UCS_OK) return status;
        } else if (kDirection == Direction::kWrite) {
            std::memcpy(local(address), piece.buffer, piece.length);
        } else {
            std::memcpy(piece.buffer, local(address), piece.length);
        }
        address += piece.length;
    }
    return UCS_OK;
}

ucs_status_t RemoteRegion::write(std::span<const Iov> pieces, uint64_t address) const {
    return copy<Direction::kWrite>(pieces, address);
}

ucs_status_t RemoteRegion::read(std::span<const Iov> pieces, uint64_t address) const {
    return copy<Direction::kRead>(pieces, address);
}

JointCopy RemoteRegion::offer(CopyDirection direction, const Iov& piece, uint64_t address) const {
    static const Process self = Process::self();
    // A child of fork() would be taken for its parent.
    if (Process::own_number() != self.pid) return {};
    return {*source_.board,
            {.owner = self,
             .local = reinterpret_cast<uint64_t>(piece.buffer),
             .remote = address,
             .length = piece.length,
             .chunk = 0,
             .key = source_.number,
             .key_slot = source_.index,
             .direction = direction},
            owner_};
}

namespace {

PeerRights rights_for(CopyDirection direction) {
    return direction == CopyDirection::kPut ? PeerRights::kWrite : PeerRights::kRead;
}

// Pieces from the front that lie in the first `bytes` of all.
size_t whole_pieces(std::span<const ChainPiece> pieces, size_t bytes) {
    size_t count = 0;
    for (; count < pieces.size() && pieces[count].length <= bytes; ++count)
        bytes -= pieces[count].length;
    return count;
}

size_t total(std::span<const ChainPiece> pieces) {
    size_t bytes = 0;
    for (const ChainPiece& piece : pieces) bytes += piece.length;
    return bytes;
}

}  // namespace

// What the kernel stops at is tried alone, to learn why: so the error is that of one piece.
ssize_t PieceCopier::through_kernel(CopyDirection direction, std::span<const ChainPiece> pieces,
                                    size_t* bytes) {
    if (vectors_ == nullptr) vectors_.reset(new (std::nothrow) Vectors);
    if (vectors_ == nullptr) return UCS_ERR_NO_MEMORY;
    const pid_t owner = RemoteRegion::from(pieces.front().key).owner();
    size_t count = 0, wanted = 0;
    for (const ChainPiece& piece : pieces) {
        const RemoteRegion& region = RemoteRegion::from(piece.key);
        if (count == kMostPieces || region.is_mapped() || region.owner() != owner ||
            (count != 0 && wanted + piece.length > kMostBytes) ||
            !region.allows(rights_for(direction), piece.remote, piece.length))
            break;
        vectors_->here[count] = {piece.local, piece.length};
        vectors_->there[count++] = {reinterpret_cast<void*>(piece.remote), piece.length};
        wanted += piece.length;
    }
    if (count == 0) return UCS_ERR_INVALID_ADDR;
    const iovec* const here = vectors_->here.data();
    const iovec* const there = vectors_->there.data();
    const ssize_t moved = direction == CopyDirection::kPut
                              ? process_vm_writev(owner, here, count, there, count, 0)
                              : process_vm_readv(owner, here, count, there, count, 0);
    const size_t whole =
        whole_pieces(pieces.first(count), moved < 0 ? 0 : static_cast<size_t>(moved));
    if (whole == 0 && wanted != 0) {
        const ChainPiece& first = pieces.front();
        const Iov piece{first.local, first.length, nullptr};
        const RemoteRegion& region = RemoteRegion::from(first.key);
        const ucs_status_t status = direction == CopyDirection::kPut
                                        ? region.write({&piece, 1}, first.remote)
                                        : region.read({&piece, 1}, first.remote);
        if (status != UCS_OK) return status;
        *bytes += first.length;
        return 1;
    }
    *bytes += total(pieces.first(whole));
    return static_cast<ssize_t>(whole);
}

ssize_t PieceCopier::copy(CopyDirection direction, std::span<const ChainPiece> pieces,
                          size_t* bytes) {
    size_t done = 0;
    *bytes = 0;
    while (done < pieces.size() && *bytes < kMostBytes) {
        const ChainPiece& next = pieces[done];
        const RemoteRegion& region = RemoteRegion::from(next.key);
        ssize_t count = 1;
        if (!region.is_mapped()) {
            count = through_kernel(direction, pieces.subspan(done), bytes);
        } else if (!region.allows(rights_for(direction), next.remote, next.length)) {
            count = UCS_ERR_INVALID_ADDR;
        } else {
            const ucs::IgnoredByThreadSanitizer stands_for_a_peer;
            std::byte* const there = region.local(next.remote);
            std::memcpy(direction == CopyDirection::kPut ? there : next.local,
                        direction == CopyDirection::kPut ? next.local : there, next.length);
            *bytes += next.length;
        }
        if (count < 0) return done == 0 ? count : static_cast<ssize_t>(done);
        done += static_cast<size_t>(count);
        // One call of the system is enough for a turn.
        if (!region.is_mapped()) break;
    }
    return static_cast<ssize_t>(done);
}

bool may_access(uint32_t pid, uint64_t address) {
    char byte;
    const iovec here{&byte, 1};
    const iovec there{reinterpret_cast<void*>(address), 1};
    const ssize_t moved = process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    return moved == 1 || errno == EFAULT;
}

}  // namespace uct::sm

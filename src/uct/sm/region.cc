// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/region.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace uct::sm {

template <RemoteRegion::Direction kDirection>
ucs_status_t RemoteRegion::through_kernel(const Iov& piece, uint64_t address) const {
    for (size_t done = 0; done < piece.length;) {
        const iovec here{static_cast<std::byte*>(piece.buffer) + done, piece.length - done};
        const iovec there{reinterpret_cast<void*>(address + done), piece.length - done};
        const ssize_t moved = kDirection == Direction::kWrite
                                  ? process_vm_writev(pid_, &here, 1, &there, 1, 0)
                                  : process_vm_readv(pid_, &here, 1, &there, 1, 0);
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

bool may_access(uint32_t pid, uint64_t address) {
    char byte;
    const iovec here{&byte, 1};
    const iovec there{reinterpret_cast<void*>(address), 1};
    const ssize_t moved = process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    return moved == 1 || errno == EFAULT;
}

}  // namespace uct::sm

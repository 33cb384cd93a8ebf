// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "uct/api/types.h"

namespace uct {

enum class CopyDirection : uint8_t { kPut, kGet };

// A copy under way between pieces of this process and contiguous bytes of a peer.
class LocalCopy {
  public:
    static constexpr size_t kMaxPieces = 4;

    // At most kMaxPieces pieces.
    LocalCopy(CopyDirection direction, std::span<const Iov> pieces, uint64_t remote, RemoteKey key)
        : direction_(direction), remote_(remote), key_(key) {
        std::ranges::copy(pieces, pieces_.begin());
        for (const Iov& piece : pieces) left_ += piece.length;
    }

    CopyDirection direction() const { return direction_; }
    RemoteKey key() const { return key_; }
    uint64_t remote() const { return remote_; }
    // Bytes that are not copied yet.
    size_t left() const { return left_; }

    // The next contiguous bytes of this process, at most so many; only while some are left.
    Iov next(size_t most) {
        while (offset_ == pieces_[piece_].length) {
            ++piece_;
            offset_ = 0;
        }
        const Iov& piece = pieces_[piece_];
        return {static_cast<std::byte*>(piece.buffer) + offset_,
                std::min(piece.length - offset_, most), piece.memory};
    }
    // These are copied.
    void advance(size_t bytes) {
        offset_ += bytes;
        remote_ += bytes;
        left_ -= bytes;
    }

  private:
    std::array<Iov, kMaxPieces> pieces_{};
    const CopyDirection direction_;
    uint8_t piece_ = 0;
    size_t offset_ = 0;  // in that piece
    size_t left_ = 0;
    uint64_t remote_;
    const RemoteKey key_;
};

}  // namespace uct

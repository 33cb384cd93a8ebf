// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/piece_copy.h"

#include <algorithm>

namespace uct::cuda {

void PieceCopy::copy_alone(std::byte* to, const std::byte* from, size_t length) {
    const ucs_status_t status = context_.begin(direction_, to, from, length, &ticket_);
    if (status_ == UCS_OK) status_ = status;
}

// For one more piece. @return false: there is no memory for lists, or no kernel
bool PieceCopy::make_room() {
    if (used_ < kInChunk) return true;
    launch();
    std::byte* const chunk = context_.takes_lists() ? staging_.take() : nullptr;
    if (chunk == nullptr) return false;
    chunks_.push_back(chunk);
    list_ = reinterpret_cast<KernelPiece*>(chunk);
    used_ = 0;
    return true;
}

void PieceCopy::add(std::byte* to, const std::byte* from, size_t length) {
    const bool is_within = direction_ == Direction::kWithin || direction_ == Direction::kWithinToo;
    const size_t most = is_within ? kLongPiece : kLongHostPiece;
    if (length > most) return copy_alone(to, from, length);
    for (size_t at = 0; at < length; at += kCut) {
        if (!make_room()) return copy_alone(to + at, from + at, length - at);
        room().front() = {reinterpret_cast<uint64_t>(to + at),
                          reinterpret_cast<uint64_t>(from + at), std::min(kCut, length - at)};
        added(1);
    }
}

void PieceCopy::launch() {
    if (waiting_ == 0) return;
    const std::span<const KernelPiece> pieces(list_ + used_ - waiting_, waiting_);
    waiting_ = 0;
    if (pieces.size() >= kMinPieces) {
        const ucs_status_t status = context_.begin_list(direction_, pieces, &ticket_);
        if (status == UCS_OK) return;
        if (status != UCS_ERR_UNSUPPORTED) {
            if (status_ == UCS_OK) status_ = status;
            return;
        }
    }
    for (const KernelPiece& piece : pieces) {
        copy_alone(reinterpret_cast<std::byte*>(piece.to),
                   reinterpret_cast<const std::byte*>(piece.from), piece.length);
    }
}

ucs_status_t PieceCopy::test() {
    ucs_status_t status = UCS_OK;
    if (ticket_.context != nullptr) {
        status = context_.test(ticket_);
        // A device that has failed writes no flag any more.
        if (status == UCS_INPROGRESS && ++polls_ % kPollsPerQuery == 0)
            status = context_.query(ticket_);
        if (status == UCS_INPROGRESS) return status;
    }
    if (status_ != UCS_OK) status = status_;
    for (Mapping* mapping : mappings_held_) mappings_.put(*mapping);
    for (std::byte* chunk : chunks_) staging_.put(chunk);
    delete this;
    return status;
}

}  // namespace uct::cuda

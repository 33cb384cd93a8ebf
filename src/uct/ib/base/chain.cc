// SPDX-License-Identifier: BSD-3-Clause

// Several work requests to one doorbell.

#include <endian.h>

#include <algorithm>

#include "uct/ib/base/ib_domain.h"
#include "uct/ib/base/send_queue.h"

namespace uct::ib {

namespace {

uint32_t local_key(const ChainPiece& piece) {
    return static_cast<const MemoryRegion*>(piece.memory)->local_key();
}

uint64_t local_address(const ChainPiece& piece) {
    return reinterpret_cast<uintptr_t>(piece.local);
}

}  // namespace

ssize_t SendQueue::post_chain(Opcode opcode, std::span<const ChainPiece> pieces,
                              const DcTarget& target, SendOperation& operation,
                              const uint32_t* immediate) {
    if (!has_room()) return 0;
    const size_t room =
        std::min<size_t>(depth_ - outstanding(), static_cast<size_t>(credits_.available));
    const size_t length = std::min({pieces.size(), room, kMaxChain});
    if (length < pieces.size()) immediate = nullptr;
    pieces = pieces.first(length);
    size_t taken = pieces.size();
    if (extended_ != nullptr) {
        if (!chain_extended(opcode, pieces, target, immediate)) taken = 0;
    } else {
        taken = chain_plain(opcode, pieces, immediate);
    }
    if (taken == 0) [[unlikely]] {
        refused();
        return UCS_ERR_IO_ERROR;
    }
    posted_ += static_cast<uint32_t>(taken);
    credits_.available -= static_cast<int>(taken);
    operation.index = posted_;
    operation.has_request = true;
    operations_.push_back(operation);
    if (taken == pieces.size()) [[likely]] {
        signaled_ = posted_;
    } else {
        signal(target);  // the driver kept the last one, which was to tell the end
    }
    count_plain();
    return static_cast<ssize_t>(taken);
}

bool SendQueue::chain_extended(Opcode opcode, std::span<const ChainPiece> pieces,
                               const DcTarget& target, const uint32_t* immediate) {
    ibv_qp_ex* const qp = extended_;
    uint64_t id = uint64_t{token_} << 32 | posted_;
    ibv_wr_start(qp);
    qp->wr_flags = 0;
    for (const ChainPiece& piece : pieces) {
        qp->wr_id = ++id;
        const auto key = static_cast<uint32_t>(piece.key);
        const uint32_t* with = nullptr;
        if (&piece == &pieces.back()) {
            qp->wr_flags = IBV_SEND_SIGNALED;
            with = immediate;
        }
        if (with != nullptr) {
            ibv_wr_rdma_write_imm(qp, key, piece.remote, htobe32(*with));
        } else if (opcode == Opcode::kWrite) {
            ibv_wr_rdma_write(qp, key, piece.remote);
        } else {
            ibv_wr_rdma_read(qp, key, piece.remote);
        }
        if (dynamic_ != nullptr) mlx5dv_wr_set_dc_addr(dynamic_, target.ah, target.number, kDcKey);
        ibv_wr_set_sge(qp, local_key(piece), local_address(piece),
                       static_cast<uint32_t>(piece.length));
    }
    return ibv_wr_complete(qp) == 0;
}

size_t SendQueue::chain_plain(Opcode opcode, std::span<const ChainPiece> pieces,
                              const uint32_t* immediate) {
    ibv_send_wr requests[kMaxChain];
    ibv_sge local[kMaxChain];
    const size_t count = pieces.size();
    const uint64_t id = uint64_t{token_} << 32 | posted_;
    for (size_t i = 0; i < count; ++i) {
        const ChainPiece& piece = pieces[i];
        local[i] = {local_address(piece), static_cast<uint32_t>(piece.length), local_key(piece)};
        ibv_send_wr& request = requests[i];
        request.wr_id = id + 1 + i;
        request.next = i + 1 < count ? &requests[i + 1] : nullptr;
        request.sg_list = &local[i];
        request.num_sge = 1;
        request.opcode = opcode == Opcode::kWrite ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        request.send_flags = i + 1 < count ? 0 : unsigned{IBV_SEND_SIGNALED};
        request.wr.rdma = {pieces[i].remote, static_cast<uint32_t>(pieces[i].key)};
    }
    if (immediate != nullptr) {
        requests[count - 1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        requests[count - 1].imm_data = htobe32(*immediate);
    }
    ibv_send_wr* bad;
    if (ibv_post_send(qp_.get(), requests, &bad) == 0) return count;
    return static_cast<size_t>(bad - requests);
}

}  // namespace uct::ib

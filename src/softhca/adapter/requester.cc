// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/requester.h"

#include <algorithm>

#include "softhca/adapter/gpu_memory.h"

namespace softhca {
namespace {

constexpr uint64_t kMaxMessage = uint64_t{1} << 30;

bool is_atomic(uint8_t opcode) {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

// Whether the adapter executes such a request on such a queue.
bool supported(QpKind kind, uint8_t opcode) {
    switch (opcode) {
        case IBV_WR_SEND:
        case IBV_WR_SEND_WITH_IMM:
            return kind != QpKind::kDct;
        case IBV_WR_SEND_WITH_INV:
            return kind == QpKind::kRc || kind == QpKind::kDci;
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return kind != QpKind::kUd;
        case IBV_WR_RDMA_READ:
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return kind == QpKind::kRc || kind == QpKind::kDci;
        default:
            return false;
    }
}

uint8_t completion_opcode(uint8_t opcode) {
    switch (opcode) {
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return IBV_WC_RDMA_WRITE;
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        case IBV_WR_BIND_MW:
            return IBV_WC_BIND_MW;
        case IBV_WR_LOCAL_INV:
            return IBV_WC_LOCAL_INV;
        default:
            return IBV_WC_SEND;
    }
}

void push_send_completion(Qp& qp, const Wqe& wqe, uint32_t position, ibv_wc_status status) {
    Cqe cqe{};
    cqe.wr_id = wqe.wr_id;
    cqe.qpn = qp.record->number.load(std::memory_order_relaxed);
    cqe.status = uint8_t(status);
    cqe.opcode = completion_opcode(wqe.opcode);
    cqe.byte_len = wqe.length;
    cqe.wqe_index = position;
    push_completion(*qp.fabric, Cq::of(qp.base.send_cq)->record->number, cqe, false);
}

// An error of a DCI stream. @return whether the queue's other streams go on.
bool fail_stream(Qp& qp, uint16_t stream) {
    if (qp.max_failed_streams == 0) return false;
    qp.failed_streams.push_back(stream);
    return qp.failed_streams.size() < qp.max_failed_streams;
}

}  // namespace

bool stream_failed(const Qp& qp, const Wqe& wqe) {
    return std::ranges::find(qp.failed_streams, wqe.stream) != qp.failed_streams.end();
}

bool takes_data(uint8_t opcode) {
    return opcode == IBV_WR_RDMA_READ || is_atomic(opcode);
}

uint64_t outgoing_bytes(const Wqe& wqe) {
    return takes_data(wqe.opcode) ? 0 : wqe.length;
}

ibv_wc_status prepare(Qp& qp, uint32_t position, GatherList* gather) {
    const Wqe& wqe = qp.wqe(position);
    if (!supported(qp.kind, wqe.opcode)) return IBV_WC_LOC_QP_OP_ERR;
    gather->count = 0;
    gather->length = 0;
    if (wqe.inlined) {
        gather->iov[gather->count++] = {qp.wqe_data(position), wqe.length};
        gather->length = wqe.length;
    } else {
        const uint32_t access = takes_data(wqe.opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;
        const auto* sge = reinterpret_cast<const ibv_sge*>(qp.wqe_data(position));
        for (int i = 0; i < wqe.num_sge; ++i) {
            if (sge[i].length == 0) continue;
            const uint64_t addr = translate(*qp.fabric, sge[i].lkey, sge[i].addr, sge[i].length,
                                            access, qp.pd, qp.record->owner);
            if (addr == 0 || gpu::is_gone(reinterpret_cast<const void*>(addr)))
                return IBV_WC_LOC_PROT_ERR;
            gather->iov[gather->count++] = {reinterpret_cast<void*>(addr), sge[i].length};
            gather->length += sge[i].length;
        }
    }
    const bool too_long =
        gather->length > kMaxMessage ||
        (qp.kind == QpKind::kUd && gather->length > (128u << qp.record->path_mtu)) ||
        (is_atomic(wqe.opcode) && gather->length != 8);
    return too_long ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

RequestMessage make_request(Qp& qp, const Wqe& wqe, const GatherList& gather) {
    const bool datagram = qp.kind == QpKind::kUd || qp.kind == QpKind::kDci;
    RequestMessage request{};
    request.src_qpn = qp.record->number.load(std::memory_order_relaxed);
    request.dest_qpn = datagram ? wqe.dest_qpn : qp.record->dest_qpn;
    request.src_lid = qp.record->lid;
    request.dest_lid = datagram ? wqe.dest_lid : qp.record->dlid;
    request.src_kind = qp.kind;
    request.opcode = wqe.opcode;
    request.sl = wqe.sl;
    request.solicited = (wqe.flags & IBV_SEND_SOLICITED) != 0;
    request.has_grh = wqe.has_grh;
    request.imm = wqe.imm;
    request.rkey = wqe.rkey;
    request.qkey = wqe.qkey;
    request.remote_addr = wqe.remote_addr;
    request.length = gather.length;
    request.compare_add = wqe.compare_add;
    request.swap = wqe.swap;
    request.dc_key = wqe.dc_key;
    request.iov = const_cast<iovec*>(gather.iov);
    request.num_iov = gather.count;
    return request;
}

ibv_wc_status status_of(Reply reply) {
    switch (reply) {
        case Reply::kAck:
            return IBV_WC_SUCCESS;
        case Reply::kRnr:
            return IBV_WC_RNR_RETRY_EXC_ERR;
        case Reply::kAccess:
            return IBV_WC_REM_ACCESS_ERR;
        case Reply::kInvalidRequest:
            return IBV_WC_REM_INV_REQ_ERR;
        case Reply::kRemoteOperation:
            return IBV_WC_REM_OP_ERR;
        case Reply::kNotReady:
        case Reply::kSilence:
            break;
    }
    return IBV_WC_RETRY_EXC_ERR;
}

uint64_t rnr_wait_ns(uint8_t timer) {
    // Table 45 of the InfiniBand specification, in units of 10 us.
    static constexpr uint32_t kTimer[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                            16,    24,   32,   48,    64,    96,    128,   192,
                                            256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                            4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return uint64_t{kTimer[timer & 31]} * 10000;
}

uint64_t ack_wait_ns(uint8_t timeout) {
    return timeout == 0 ? 0 : uint64_t{4096} << (timeout & 31);
}

void complete_oldest(Qp& qp, ibv_wc_status status) {
    const uint32_t position = qp.sq_done;
    const Wqe& wqe = qp.wqe(position);
    if (status != IBV_WC_SUCCESS || qp.sig_all || (wqe.flags & IBV_SEND_SIGNALED) != 0) {
        push_send_completion(qp, wqe, position, status);
    }
    qp.sq_done = position + 1;
    if (int32_t(qp.sq_next - qp.sq_done) < 0) qp.sq_next = qp.sq_done;
    if (status == IBV_WC_SUCCESS || status == IBV_WC_WR_FLUSH_ERR) return;
    if (fail_stream(qp, wqe.stream)) return;
    if (qp.kind == QpKind::kUd) {
        qp.record->state.store(QpState::kSqe, std::memory_order_release);
    } else {
        qp.completing = true;
        fail_qp(*qp.fabric, *qp.record, -1);
        qp.completing = false;
    }
    flush_send_queue(qp);
}

void flush_send_queue(Qp& qp) {
    while (qp.sq_done != qp.sq_tail) complete_oldest(qp, IBV_WC_WR_FLUSH_ERR);
    qp.sq_next = qp.sq_tail;
}

}  // namespace softhca

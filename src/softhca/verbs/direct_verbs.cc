// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/verbs/direct_verbs.h"

#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "softhca/verbs/verbs_ops.h"

namespace softhca {
namespace {

constexpr size_t kHugePage = 2 * 1024 * 1024;

bool huge_page_free() {
    void* page = mmap(nullptr, kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (page == MAP_FAILED) return false;
    munmap(page, kHugePage);
    return true;
}

ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
    constexpr uint64_t kMask =
        MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
        MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    constexpr uint32_t kFlags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
                                MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE |
                                MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE;
    if (dv != nullptr) {
        const bool flags = (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS) != 0;
        const bool ops = (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) != 0;
        if ((dv->comp_mask & ~kMask) != 0 || (flags && (dv->create_flags & ~kFlags) != 0) ||
            (ops && dv->send_ops_flags != 0)) {
            return refuse(EOPNOTSUPP);
        }
        const mlx5dv_dci_streams& streams = dv->dc_init_attr.dci_streams;
        if ((dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) != 0 &&
            (streams.log_num_concurent > kMaxLogDciStreams ||
             streams.log_num_errored > kMaxLogDciStreams)) {
            return refuse(EINVAL);
        }
    }
    return create_any_qp(*Context::of(context), *attr, dv);
}

// How completions are compressed, padded and sized does not show behind the verbs interface.
int check_cq(const mlx5dv_cq_init_attr* dv) {
    const uint64_t mask = dv != nullptr ? dv->comp_mask : 0;
    constexpr uint64_t kMask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE |
                               MLX5DV_CQ_INIT_ATTR_MASK_FLAGS | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    constexpr unsigned kFormats =
        MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM | MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
    if ((mask & ~kMask) != 0) return EOPNOTSUPP;
    const bool sized = (mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE) != 0;
    const int error = sized ? check_cqe_size(dv->cqe_size) : check_cqe_size_variable();
    if (error != 0) return error;
    if ((mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) != 0 &&
        (!std::has_single_bit(unsigned(dv->cqe_comp_res_format)) ||
         (dv->cqe_comp_res_format & ~kFormats) != 0)) {
        return EINVAL;
    }
    if ((mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) != 0) {
        if ((dv->flags & ~MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD) != 0) return EINVAL;
        if (dv->flags != 0 && (!sized || dv->cqe_size != 128)) return EINVAL;
    }
    return 0;
}

ibv_cq_ex* create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr, mlx5dv_cq_init_attr* dv) {
    if (const int error = check_cq(dv); error != 0) return refuse(error);
    return create_cq_ex(context, attr);
}

int reset_dci_stream(ibv_qp* handle, uint16_t stream) {
    Qp& qp = *Qp::of(handle);
    qp.sq_lock.lock();
    const bool was_failed = std::erase(qp.failed_streams, stream) != 0;
    qp.sq_lock.unlock();
    return was_failed ? 0 : EINVAL;
}

const softhca_direct_verbs kTable = {
    create_qp,
    create_cq,
    reset_dci_stream,
    [](ibv_qp_ex* qp) { return &Qp::of(qp)->dv; },
    [](ibv_context* context) { return Context::of(context)->fabric->now_ns(); },
};

}  // namespace

int check_queue_memory(const char* variable) {
    const char* type = std::getenv(variable);
    return type != nullptr && std::string_view(type) == "HUGE" && !huge_page_free() ? ENOMEM : 0;
}

int check_cqe_size(unsigned long size) {
    return size == 64 || size == 128 ? 0 : EINVAL;
}

int check_cqe_size_variable() {
    const char* size = std::getenv("MLX5_CQE_SIZE");
    return size == nullptr ? 0 : check_cqe_size(std::strtoul(size, nullptr, 10));
}

}  // namespace softhca

const softhca_direct_verbs* softhca_get_direct_verbs() {
    return &softhca::kTable;
}

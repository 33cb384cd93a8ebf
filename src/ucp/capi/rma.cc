// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <new>
#include <vector>

#include "ucp/base/handles.h"
#include "ucp/bulk/batch/batch.h"
#include "ucp/capi/compat.h"
#include "ucp/mem/device_memory.h"
#include "ucp/proto/rma/rma.h"
#include "ucp/worker/worker.h"

using namespace ucp;

namespace {

bool device_op(ucp_atomic_op_t opcode, uct::AtomicOp* op) {
    using uct::AtomicOp;
    static constexpr AtomicOp kOps[UCP_ATOMIC_OP_LAST] = {AtomicOp::kAdd,         AtomicOp::kSwap,
                                                          AtomicOp::kCompareSwap, AtomicOp::kAnd,
                                                          AtomicOp::kOr,          AtomicOp::kXor};
    const auto index = static_cast<size_t>(opcode);
    if (index >= UCP_ATOMIC_OP_LAST) return false;
    *op = kOps[index];
    return true;
}

ucs_status_t load(const void* from, size_t size, uint64_t* value) {
    *value = 0;
    return copy_memory(value, from, size);
}

// `value` is the operand X of the interface: what a compare-swap compares with.
ucs_status_t make_arguments(ucp_atomic_op_t opcode, uint64_t value, size_t size, void* reply,
                            AtomicArguments* arguments) {
    if (size != 4 && size != 8) return UCS_ERR_INVALID_PARAM;
    *arguments = {uct::AtomicOp::kAdd, static_cast<unsigned>(size), value, 0, reply};
    if (!device_op(opcode, &arguments->op)) return UCS_ERR_INVALID_PARAM;
    if (opcode == UCP_ATOMIC_OP_SWAP || opcode == UCP_ATOMIC_OP_CSWAP) {
        if (reply == nullptr) return UCS_ERR_INVALID_PARAM;
    }
    if (opcode == UCP_ATOMIC_OP_CSWAP) {
        arguments->compare = value;
        return load(reply, size, &arguments->operand);
    }
    return UCS_OK;
}

// A put or get of another datatype than contiguous bytes: a list of pieces, or else refused with
// `status`.
[[gnu::noinline]] ucs_status_ptr_t start_list(Endpoint& endpoint, const void* local, size_t count,
                                              const ucp_request_param_t& param, bool is_put,
                                              ucs_status_t status) try {
    const OpParams params(&param);
    if (params.datatype() != ucp_dt_make_sgl() ||
        !worker_of(endpoint).context().has_feature(UCP_FEATURE_RMA))
        return UCS_STATUS_PTR(status);
    std::vector<ucpx_piece_t> pieces;
    status = pieces_of_list(local, count, param, &pieces);
    OneSided& one_sided = worker_of(endpoint).one_sided();
    CheckedPieces checked;
    if (status == UCS_OK) status = check_pieces(one_sided, pieces, false, &checked);
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    GateLock lock(endpoint.gate());
    return start_batch(one_sided, endpoint, checked, is_put, nullptr, params);
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

bool has_features(Endpoint& endpoint, uint64_t features) {
    return worker_of(endpoint).context().has_feature(features);
}

// --- put and get ---

using bulk::Direction;

// Bytes of host memory, as far as the parameters say, and a program that wants no request.
bool is_plain(const void* buffer, ucp_rkey_h rkey, const ucp_request_param_t& param) {
    constexpr uint32_t kUnusual =
        UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    return (param.op_attr_mask & kUnusual) == 0 && buffer != nullptr && rkey != nullptr;
}

// The path of short puts and gets of memory that is mapped here, of a worker of one thread: what it
// does not look at, start_rma() does.
template <Direction kDirection>
bool is_done_in_place(Endpoint& endpoint, void* buffer, size_t length, uint64_t remote_addr,
                      ucp_rkey_h rkey, const ucp_request_param_t& param) {
    return is_plain(buffer, rkey, param) && !endpoint.gate().has_threads() &&
           worker_of(endpoint).one_sided().is_done_in_place<kDirection>(endpoint, buffer, length,
                                                                        remote_addr, unwrap(rkey));
}

template <Direction kDirection>
[[gnu::noinline]] ucs_status_ptr_t start_rma(ucp_ep_h ep, const void* buffer, size_t count,
                                             uint64_t remote_addr, ucp_rkey_h rkey,
                                             const ucp_request_param_t& param) try {
    Endpoint& endpoint = unwrap(ep);
    const OpParams params(&param);
    size_t length = 0;
    const ucs_status_t status = one_sided_length(params, buffer, count, &length);
    if (status != UCS_OK) {
        return start_list(endpoint, buffer, count, param, kDirection == Direction::kPut, status);
    }
    if (rkey == nullptr || !has_features(endpoint, UCP_FEATURE_RMA))
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    GateLock lock(endpoint.gate());
    return worker_of(endpoint).one_sided().transfer<kDirection>(
        endpoint, const_cast<void*>(buffer), length, remote_addr, unwrap(rkey), params);
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

[[gnu::noinline]] ucs_status_ptr_t put(ucp_ep_h ep, const void* buffer, size_t count,
                                       uint64_t remote_addr, ucp_rkey_h rkey,
                                       const ucp_request_param_t& param) {
    if (is_done_in_place<Direction::kPut>(unwrap(ep), const_cast<void*>(buffer), count, remote_addr,
                                          rkey, param)) {
        return nullptr;
    }
    return start_rma<Direction::kPut>(ep, buffer, count, remote_addr, rkey, param);
}

template <Direction kDirection>
ucs_status_t start_implicit_rma(ucp_ep_h ep, const void* buffer, size_t length,
                                uint64_t remote_addr, ucp_rkey_h rkey) try {
    Endpoint& endpoint = unwrap(ep);
    if (rkey == nullptr || (buffer == nullptr && length > 0) ||
        !has_features(endpoint, UCP_FEATURE_RMA))
        return UCS_ERR_INVALID_PARAM;
    GateLock lock(endpoint.gate());
    return worker_of(endpoint).one_sided().transfer_implicit<kDirection>(
        endpoint, const_cast<void*>(buffer), length, remote_addr, unwrap(rkey));
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

template <Direction kDirection>
ucs_status_t blocking_rma(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr,
                          ucp_rkey_h rkey) {
    GateLock lock(unwrap(ep).gate());
    return wait_for(worker_of(unwrap(ep)), start_rma<kDirection>(ep, buffer, length, remote_addr,
                                                                 rkey, ucp_request_param_t{}));
}

// --- atomics ---

constexpr uint64_t kAtomicFeatures = UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;

ucs_status_ptr_t start_atomic(ucp_ep_h ep, ucp_atomic_op_t opcode, uint64_t value, size_t size,
                              void* reply, uint64_t remote_addr, ucp_rkey_h rkey,
                              const ucp_request_param_t& param) try {
    Endpoint& endpoint = unwrap(ep);
    if (rkey == nullptr || !has_features(endpoint, kAtomicFeatures))
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    AtomicArguments arguments;
    const ucs_status_t status = make_arguments(opcode, value, size, reply, &arguments);
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    GateLock lock(endpoint.gate());
    return worker_of(endpoint).one_sided().atomic(endpoint, arguments, remote_addr, unwrap(rkey),
                                                  OpParams(&param));
} catch (const std::bad_alloc&) {
    return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
}

[[gnu::noinline]] ucs_status_ptr_t start_atomic_of_buffer(ucp_ep_h ep, ucp_atomic_op_t opcode,
                                                          const void* buffer, size_t count,
                                                          uint64_t remote_addr, ucp_rkey_h rkey,
                                                          const ucp_request_param_t& param) {
    const OpParams params(&param);
    size_t size = 0;
    if (!params.has(UCP_OP_ATTR_FIELD_DATATYPE) || count != 1)
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    const ucs_status_t status = one_sided_length(params, buffer, count, &size);
    if (status != UCS_OK || (size != 4 && size != 8)) return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    uint64_t value = 0;
    const ucs_status_t loaded = load(buffer, size, &value);
    if (loaded != UCS_OK) return UCS_STATUS_PTR(loaded);
    return start_atomic(ep, opcode, value, size, params.reply_buffer(), remote_addr, rkey, param);
}

// As for puts and gets: words that are mapped here, of a worker of one thread.
// @param buffer, reply  host memory
template <typename Word>
[[gnu::always_inline]] inline bool is_atomic_done_in_place(Endpoint& endpoint,
                                                           ucp_atomic_op_t opcode,
                                                           const void* buffer, void* reply,
                                                           uint64_t remote_addr, ucp_rkey_h rkey) {
    uct::AtomicOp op;
    if (!device_op(opcode, &op)) return false;
    Word value, operand;
    std::memcpy(&value, buffer, sizeof(value));
    operand = value;
    if (opcode == UCP_ATOMIC_OP_SWAP || opcode == UCP_ATOMIC_OP_CSWAP) {
        if (reply == nullptr) return false;
        if (opcode == UCP_ATOMIC_OP_CSWAP) std::memcpy(&operand, reply, sizeof(operand));
    }
    return worker_of(endpoint).one_sided().is_atomic_done_in_place(
        endpoint, op, operand, value, reply, remote_addr, unwrap(rkey));
}

// @param reply  gets the old value; null if it is not wanted
template <typename Word>
ucs_status_t blocking_atomic(ucp_ep_h ep, ucp_atomic_op_t opcode, Word value, Word* reply,
                             uint64_t remote_addr, ucp_rkey_h rkey) {
    Endpoint& endpoint = unwrap(ep);
    GateLock lock(endpoint.gate());
    return wait_for(worker_of(endpoint), start_atomic(ep, opcode, value, sizeof(Word), reply,
                                                      remote_addr, rkey, ucp_request_param_t{}));
}

template <typename Word>
ucs_status_t compare_and_swap(ucp_ep_h ep, Word compare, Word swap, uint64_t remote_addr,
                              ucp_rkey_h rkey, Word* result) {
    if (result == nullptr) return UCS_ERR_INVALID_PARAM;
    *result = swap;
    return blocking_atomic(ep, UCP_ATOMIC_OP_CSWAP, compare, result, remote_addr, rkey);
}

}  // namespace

extern "C" {

// --- put and get ---

ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void* buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t* param) {
    if (is_plain(buffer, rkey, *param) &&
        in_place::put_short(unwrap(ep), buffer, count, remote_addr, unwrap(rkey))) {
        return nullptr;
    }
    return put(ep, buffer, count, remote_addr, rkey, *param);
}

ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void* buffer, size_t count, uint64_t remote_addr,
                             ucp_rkey_h rkey, const ucp_request_param_t* param) {
    if (is_done_in_place<Direction::kGet>(unwrap(ep), buffer, count, remote_addr, rkey, *param)) {
        return nullptr;
    }
    return start_rma<Direction::kGet>(ep, buffer, count, remote_addr, rkey, *param);
}

ucs_status_t ucp_put_nbi(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr,
                         ucp_rkey_h rkey) {
    return start_implicit_rma<Direction::kPut>(ep, buffer, length, remote_addr, rkey);
}

ucs_status_t ucp_get_nbi(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr,
                         ucp_rkey_h rkey) {
    return start_implicit_rma<Direction::kGet>(ep, buffer, length, remote_addr, rkey);
}

ucs_status_ptr_t ucp_put_nb(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr,
                            ucp_rkey_h rkey, ucp_send_callback_t cb) {
    return start_rma<Direction::kPut>(ep, buffer, length, remote_addr, rkey,
                                      *OldParams().send_callback(cb).get());
}

ucs_status_ptr_t ucp_get_nb(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr,
                            ucp_rkey_h rkey, ucp_send_callback_t cb) {
    return start_rma<Direction::kGet>(ep, buffer, length, remote_addr, rkey,
                                      *OldParams().send_callback(cb).get());
}

ucs_status_t ucp_put(ucp_ep_h ep, const void* buffer, size_t length, uint64_t remote_addr,
                     ucp_rkey_h rkey) {
    return blocking_rma<Direction::kPut>(ep, buffer, length, remote_addr, rkey);
}

ucs_status_t ucp_get(ucp_ep_h ep, void* buffer, size_t length, uint64_t remote_addr,
                     ucp_rkey_h rkey) {
    return blocking_rma<Direction::kGet>(ep, buffer, length, remote_addr, rkey);
}

// --- atomics ---

ucs_status_ptr_t ucp_atomic_op_nbx(ucp_ep_h ep, ucp_atomic_op_t opcode, const void* buffer,
                                   size_t count, uint64_t remote_addr, ucp_rkey_h rkey,
                                   const ucp_request_param_t* param) {
    Endpoint& endpoint = unwrap(ep);
    constexpr uint32_t kUsual = UCP_OP_ATTR_FIELD_DATATYPE;
    const bool is_usual =
        (param->op_attr_mask & (kUsual | UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) == kUsual && count == 1 &&
        buffer != nullptr && rkey != nullptr &&
        (endpoint.gate().bits() & (Gate::kThreads | Gate::kDevices)) == 0;
    void* const reply = OpParams(param).reply_buffer();
    const bool is_done =
        !is_usual ? false
        : param->datatype == ucp_dt_make_contig(sizeof(uint64_t))
            ? is_atomic_done_in_place<uint64_t>(endpoint, opcode, buffer, reply, remote_addr, rkey)
        : param->datatype == ucp_dt_make_contig(sizeof(uint32_t))
            ? is_atomic_done_in_place<uint32_t>(endpoint, opcode, buffer, reply, remote_addr, rkey)
            : false;
    if (is_done) return nullptr;
    return start_atomic_of_buffer(ep, opcode, buffer, count, remote_addr, rkey, *param);
}

ucs_status_t ucp_atomic_post(ucp_ep_h ep, ucp_atomic_post_op_t opcode, uint64_t value,
                             size_t op_size, uint64_t remote_addr, ucp_rkey_h rkey) try {
    static constexpr ucp_atomic_op_t kOps[] = {UCP_ATOMIC_OP_ADD, UCP_ATOMIC_OP_AND,
                                               UCP_ATOMIC_OP_OR, UCP_ATOMIC_OP_XOR};
    Endpoint& endpoint = unwrap(ep);
    if (rkey == nullptr || opcode >= UCP_ATOMIC_POST_OP_LAST ||
        !has_features(endpoint, kAtomicFeatures))
        return UCS_ERR_INVALID_PARAM;
    AtomicArguments arguments;
    const ucs_status_t status = make_arguments(kOps[opcode], value, op_size, nullptr, &arguments);
    if (status != UCS_OK) return status;
    GateLock lock(endpoint.gate());
    const ucs_status_t posted = worker_of(endpoint).one_sided().atomic_implicit(
        endpoint, arguments, remote_addr, unwrap(rkey));
    // UCS_OK also if it is still under way: runtimes take anything else for a failure.
    return posted == UCS_INPROGRESS ? UCS_OK : posted;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_ptr_t ucp_atomic_fetch_nb(ucp_ep_h ep, ucp_atomic_fetch_op_t opcode, uint64_t value,
                                     void* result, size_t op_size, uint64_t remote_addr,
                                     ucp_rkey_h rkey, ucp_send_callback_t cb) {
    static constexpr ucp_atomic_op_t kOps[] = {UCP_ATOMIC_OP_ADD,   UCP_ATOMIC_OP_SWAP,
                                               UCP_ATOMIC_OP_CSWAP, UCP_ATOMIC_OP_AND,
                                               UCP_ATOMIC_OP_OR,    UCP_ATOMIC_OP_XOR};
    if (opcode >= UCP_ATOMIC_FETCH_OP_LAST || result == nullptr)
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    return start_atomic(ep, kOps[opcode], value, op_size, result, remote_addr, rkey,
                        *OldParams().send_callback(cb).get());
}

ucs_status_t ucp_atomic_add32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey) {
    return blocking_atomic<uint32_t>(ep, UCP_ATOMIC_OP_ADD, add, nullptr, remote_addr, rkey);
}

ucs_status_t ucp_atomic_add64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey) {
    return blocking_atomic<uint64_t>(ep, UCP_ATOMIC_OP_ADD, add, nullptr, remote_addr, rkey);
}

ucs_status_t ucp_atomic_fadd32(ucp_ep_h ep, uint32_t add, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint32_t* result) {
    return blocking_atomic(ep, UCP_ATOMIC_OP_ADD, add, result, remote_addr, rkey);
}

ucs_status_t ucp_atomic_fadd64(ucp_ep_h ep, uint64_t add, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint64_t* result) {
    return blocking_atomic(ep, UCP_ATOMIC_OP_ADD, add, result, remote_addr, rkey);
}

ucs_status_t ucp_atomic_swap32(ucp_ep_h ep, uint32_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint32_t* result) {
    return blocking_atomic(ep, UCP_ATOMIC_OP_SWAP, swap, result, remote_addr, rkey);
}

ucs_status_t ucp_atomic_swap64(ucp_ep_h ep, uint64_t swap, uint64_t remote_addr, ucp_rkey_h rkey,
                               uint64_t* result) {
    return blocking_atomic(ep, UCP_ATOMIC_OP_SWAP, swap, result, remote_addr, rkey);
}

ucs_status_t ucp_atomic_cswap32(ucp_ep_h ep, uint32_t compare, uint32_t swap, uint64_t remote_addr,
                                ucp_rkey_h rkey, uint32_t* result) {
    return compare_and_swap(ep, compare, swap, remote_addr, rkey, result);
}

ucs_status_t ucp_atomic_cswap64(ucp_ep_h ep, uint64_t compare, uint64_t swap, uint64_t remote_addr,
                                ucp_rkey_h rkey, uint64_t* result) {
    return compare_and_swap(ep, compare, swap, remote_addr, rkey, result);
}

}  // extern "C"

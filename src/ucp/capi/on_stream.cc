// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "ucp/api/ucpx.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/mem/device_memory.h"
#include "ucp/on_stream/operations.h"
#include "ucp/worker/worker.h"

using namespace ucp;

namespace {

// Carries out parts by the ordinary functions of the interface.
class WorkerParts final : public StreamParts {
  public:
    explicit WorkerParts(Worker& worker) : worker_(worker) {}

    ucs_status_t begin(StreamPart& part) override {
        const ucs_status_t status = part.what.ep == nullptr ? UCS_OK : endpoint_status(part);
        if (status != UCS_OK) {
            drop(part);
            return status;
        }
        switch (part.what.kind) {
            case UCPX_STREAM_PART_SEND:
                return send(part);
            case UCPX_STREAM_PART_RECV:
                return receive(part);
            case UCPX_STREAM_PART_PUT:
                return put(part);
            case UCPX_STREAM_PART_FLUSH:
                return flush(part);
            default:
                part.state = StreamPart::State::kLookedAt;
                return look(part);
        }
    }

    ucs_status_t look(StreamPart& part) override {
        if (part.what.kind == UCPX_STREAM_PART_REQUEST) return look_at_request(part);
        if (part.what.kind == UCPX_STREAM_PART_SIGNAL && has_come(part)) return UCS_OK;
        if (part.what.ep == nullptr) return UCS_INPROGRESS;
        const ucs_status_t status = endpoint_status(part);
        if (status == UCS_OK) return UCS_INPROGRESS;
        if (part.what.kind == UCPX_STREAM_PART_SIGNAL) return status;
        part.error = status;
        part.state = StreamPart::State::kBegun;
        ucp_request_cancel(wrap(&worker_), part.request);
        return UCS_INPROGRESS;
    }

    void cancel(StreamPart& part) override {
        if (part.what.kind == UCPX_STREAM_PART_REQUEST) {
            drop(part);
        } else if (part.what.kind == UCPX_STREAM_PART_RECV && part.request != nullptr) {
            ucp_request_cancel(wrap(&worker_), part.request);
        }
    }

    void drop(StreamPart& part) override {
        if (part.what.kind == UCPX_STREAM_PART_REQUEST && UCS_PTR_IS_PTR(part.what.request))
            ucp_request_free(part.what.request);
    }

  private:
    // Is its endpoint still there, and does it work?
    ucs_status_t endpoint_status(StreamPart& part) const {
        const EndpointTable& endpoints = worker_.endpoints();
        const Endpoint& endpoint = unwrap(part.what.ep);
        if (part.endpoints_freed != endpoints.freed()) {
            if (!endpoints.contains(&endpoint)) return UCS_ERR_CANCELED;
            part.endpoints_freed = endpoints.freed();
        }
        if (endpoint.is_failed()) return endpoint.status();
        return endpoint.is_users() ? UCS_OK : UCS_ERR_CANCELED;
    }

    static void sent(void* request, ucs_status_t status, void* user_data) {
        ucp_request_free(request);
        auto& part = *static_cast<StreamPart*>(user_data);
        part.operation.owner->ended(part, status);
    }
    static void received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* user_data) {
        auto& part = *static_cast<StreamPart*>(user_data);
        if (status == UCS_OK) part.operation.length += info->length;
        ucp_request_free(request);
        part.operation.owner->ended(part, status);
    }

    static ucp_request_param_t params_of(StreamPart& part) {
        ucp_request_param_t params{};
        params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        params.cb.send = sent;
        params.user_data = &part;
        return params;
    }
    // A request of the part's has been begun, or has ended with the call.
    static ucs_status_t follow(StreamPart& part, ucs_status_ptr_t result) {
        if (!UCS_PTR_IS_PTR(result)) return UCS_PTR_RAW_STATUS(result);
        ++part.outstanding;
        part.request = result;
        return UCS_INPROGRESS;
    }

    static ucs_status_t send(StreamPart& part) {
        const ucp_request_param_t params = params_of(part);
        return follow(part, ucp_tag_send_nbx(part.what.ep, part.what.buffer, part.what.length,
                                             part.what.tag, &params));
    }

    static ucs_status_t flush(StreamPart& part) {
        const ucp_request_param_t params = params_of(part);
        return follow(part, ucp_ep_flush_nbx(part.what.ep, &params));
    }

    ucs_status_t receive(StreamPart& part) const {
        ucp_request_param_t params = params_of(part);
        ucp_tag_recv_info_t info{};
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
        params.cb.recv = received;
        params.recv_info.tag_info = &info;
        const ucs_status_t status =
            follow(part, ucp_tag_recv_nbx(wrap(&worker_), part.what.buffer, part.what.length,
                                          part.what.tag, part.what.tag_mask, &params));
        if (status == UCS_OK) part.operation.length += info.length;
        if (status == UCS_INPROGRESS && part.what.ep != nullptr)
            part.state = StreamPart::State::kLookedAt;
        return status;
    }

    ucs_status_t put(StreamPart& part) const {
        const ucp_request_param_t params = params_of(part);
        const ucpx_stream_part_t& what = part.what;
        ucs_status_t status = UCS_OK;
        if (what.length != 0) {
            status = follow(part, ucp_put_nbx(what.ep, what.buffer, what.length, what.remote_addr,
                                              what.rkey, &params));
        }
        if (what.signal == nullptr || UCS_STATUS_IS_ERR(status)) return status;
        // Behind the data, wherever that goes.
        ucp_worker_fence(wrap(&worker_));
        status = signal(part, params);
        if (UCS_STATUS_IS_ERR(status) && part.outstanding != 0) {
            part.error = status;
            return UCS_INPROGRESS;
        }
        return part.outstanding != 0 ? UCS_INPROGRESS : status;
    }

    static ucs_status_t signal(StreamPart& part, ucp_request_param_t params) {
        const ucpx_signal_t& told = part.signal;
        part.value = told.value + step_of(told) * part.operation.runs;
        if (told.op == UCPX_SIGNAL_SET) {
            return follow(part, ucp_put_nbx(part.what.ep, &part.value, sizeof(part.value),
                                            told.remote_addr, told.rkey, &params));
        }
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
        params.datatype = ucp_dt_make_contig(sizeof(part.value));
        return follow(part, ucp_atomic_op_nbx(part.what.ep, UCP_ATOMIC_OP_ADD, &part.value, 1,
                                              told.remote_addr, told.rkey, &params));
    }
    static uint64_t step_of(const ucpx_signal_t& signal) {
        return (signal.field_mask & UCPX_SIGNAL_FIELD_STEP) != 0 ? signal.step : 0;
    }

    static bool has_come(const StreamPart& part) {
        auto& word = *const_cast<uint64_t*>(part.what.word);
        const uint64_t awaited = part.what.value + part.what.step * part.operation.runs;
        const uint64_t now = std::atomic_ref(word).load(std::memory_order_acquire);
        return static_cast<int64_t>(now - awaited) >= 0;
    }

    static ucs_status_t look_at_request(const StreamPart& part) {
        if (!UCS_PTR_IS_PTR(part.what.request)) return UCS_PTR_RAW_STATUS(part.what.request);
        const Request& request = Request::from_handle(part.what.request);
        if (!request.is_finished()) return UCS_INPROGRESS;
        const ucs_status_t status = request.status;
        ucp_request_free(part.what.request);
        return status;
    }

    Worker& worker_;
};

StreamOperations& operations_of(Worker& worker) {
    std::unique_ptr<StreamOperations>& operations = worker.on_stream();
    if (operations == nullptr) {
        operations = std::make_unique<StreamOperations>(worker.gate(), worker.host().work,
                                                        std::make_unique<WorkerParts>(worker));
    }
    return *operations;
}

bool is_valid_signal(const ucpx_signal_t& signal, const Worker& worker) {
    return signal.rkey != nullptr && signal.remote_addr % sizeof(uint64_t) == 0 &&
           signal.op >= UCPX_SIGNAL_SET && signal.op < UCPX_SIGNAL_LAST &&
           (signal.op != UCPX_SIGNAL_ADD ||
            const_cast<Worker&>(worker).context().has_feature(UCP_FEATURE_AMO64));
}

ucs_status_t check_part(const ucpx_stream_part_t& part, Worker& worker) {
    const bool is_of_worker = part.ep == nullptr || &worker_of(unwrap(part.ep)) == &worker;
    if (!is_of_worker) return UCS_ERR_INVALID_PARAM;
    const auto valid = [](bool is_valid) { return is_valid ? UCS_OK : UCS_ERR_INVALID_PARAM; };
    switch (part.kind) {
        case UCPX_STREAM_PART_SEND:
            return valid(part.ep != nullptr && worker.context().has_feature(UCP_FEATURE_TAG));
        case UCPX_STREAM_PART_RECV:
            return valid(worker.context().has_feature(UCP_FEATURE_TAG));
        case UCPX_STREAM_PART_PUT:
            return valid(part.ep != nullptr && part.rkey != nullptr &&
                         worker.context().has_feature(UCP_FEATURE_RMA) &&
                         (part.signal == nullptr || is_valid_signal(*part.signal, worker)));
        case UCPX_STREAM_PART_FLUSH:
            return valid(part.ep != nullptr);
        case UCPX_STREAM_PART_SIGNAL:
            if (part.word == nullptr || reinterpret_cast<uintptr_t>(part.word) % sizeof(uint64_t))
                return UCS_ERR_INVALID_PARAM;
            return device_of(part.word, sizeof(*part.word)) == nullptr ? UCS_OK
                                                                       : UCS_ERR_UNSUPPORTED;
        case UCPX_STREAM_PART_REQUEST:
            return UCS_OK;
        default:
            return UCS_ERR_INVALID_PARAM;
    }
}

ucs_status_t enqueue_parts(Worker& worker, std::span<const ucpx_stream_part_t> parts, void* stream,
                           ucpx_stream_op_h* op) try {
    GateLock lock(worker.gate());
    for (const ucpx_stream_part_t& part : parts) {
        const ucs_status_t status = check_part(part, worker);
        if (status != UCS_OK) return status;
    }
    StreamOperation* operation = nullptr;
    const ucs_status_t status =
        operations_of(worker).enqueue(parts, stream, op != nullptr ? &operation : nullptr);
    if (status == UCS_OK && op != nullptr) *op = wrap(operation);
    return status;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t enqueue_one(Worker& worker, const ucpx_stream_part_t& part, void* stream,
                         ucpx_stream_op_h* op) {
    return enqueue_parts(worker, {&part, 1}, stream, op);
}

ucpx_stream_part_t part_of(ucpx_stream_part_kind_t kind, ucp_ep_h ep) {
    ucpx_stream_part_t part{};
    part.kind = kind;
    part.ep = ep;
    return part;
}

}  // namespace

ucs_status_t ucpx_group_on_stream(ucp_worker_h worker, const ucpx_stream_part_t* parts,
                                  size_t num_parts, size_t entry_size, void* stream,
                                  ucpx_stream_op_h* op) try {
    if (parts == nullptr || num_parts == 0 || entry_size < sizeof(*parts))
        return UCS_ERR_INVALID_PARAM;
    if (entry_size == sizeof(*parts))
        return enqueue_parts(unwrap(worker), {parts, num_parts}, stream, op);
    // Callers compiled with a later header have longer entries.
    std::vector<ucpx_stream_part_t> known(num_parts);
    const auto* entries = reinterpret_cast<const std::byte*>(parts);
    for (size_t i = 0; i < num_parts; ++i)
        std::memcpy(&known[i], entries + i * entry_size, sizeof(known[i]));
    return enqueue_parts(unwrap(worker), known, stream, op);
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t ucpx_send_on_stream(ucp_ep_h ep, const void* buffer, size_t length, ucp_tag_t tag,
                                 void* stream, ucpx_stream_op_h* op) {
    ucpx_stream_part_t part = part_of(UCPX_STREAM_PART_SEND, ep);
    part.buffer = const_cast<void*>(buffer);
    part.length = length;
    part.tag = tag;
    return enqueue_one(worker_of(unwrap(ep)), part, stream, op);
}

ucs_status_t ucpx_recv_on_stream(ucp_worker_h worker, ucp_ep_h ep, void* buffer, size_t length,
                                 ucp_tag_t tag, ucp_tag_t tag_mask, void* stream,
                                 ucpx_stream_op_h* op) {
    ucpx_stream_part_t part = part_of(UCPX_STREAM_PART_RECV, ep);
    part.buffer = buffer;
    part.length = length;
    part.tag = tag;
    part.tag_mask = tag_mask;
    return enqueue_one(unwrap(worker), part, stream, op);
}

ucs_status_t ucpx_put_on_stream(ucp_ep_h ep, const void* buffer, size_t length,
                                uint64_t remote_addr, ucp_rkey_h rkey, const ucpx_signal_t* signal,
                                void* stream, ucpx_stream_op_h* op) {
    ucpx_stream_part_t part = part_of(UCPX_STREAM_PART_PUT, ep);
    part.buffer = const_cast<void*>(buffer);
    part.length = length;
    part.remote_addr = remote_addr;
    part.rkey = rkey;
    part.signal = signal;
    return enqueue_one(worker_of(unwrap(ep)), part, stream, op);
}

ucs_status_t ucpx_flush_on_stream(ucp_ep_h ep, void* stream, ucpx_stream_op_h* op) {
    return enqueue_one(worker_of(unwrap(ep)), part_of(UCPX_STREAM_PART_FLUSH, ep), stream, op);
}

ucs_status_t ucpx_signal_wait_on_stream(ucp_worker_h worker, ucp_ep_h ep, const uint64_t* word,
                                        uint64_t value, uint64_t step, void* stream,
                                        ucpx_stream_op_h* op) {
    ucpx_stream_part_t part = part_of(UCPX_STREAM_PART_SIGNAL, ep);
    part.word = word;
    part.value = value;
    part.step = step;
    return enqueue_one(unwrap(worker), part, stream, op);
}

ucs_status_t ucpx_stream_wait(ucp_worker_h worker, ucs_status_ptr_t request, void* stream,
                              ucpx_stream_op_h* op) {
    if (!UCS_PTR_IS_PTR(request)) {
        if (op != nullptr) *op = nullptr;
        return UCS_PTR_RAW_STATUS(request);
    }
    ucpx_stream_part_t part = part_of(UCPX_STREAM_PART_REQUEST, nullptr);
    part.request = request;
    return enqueue_one(unwrap(worker), part, stream, op);
}

ucs_status_t ucpx_stream_op_query(ucpx_stream_op_h op, ucpx_stream_op_attr_t* attr) {
    const StreamOperation& operation = unwrap(op);
    GateLock lock(operation.owner->gate());
    const auto wants = wanted_of(attr);
    if (wants(UCPX_STREAM_OP_ATTR_FIELD_STATUS)) attr->status = operation.status();
    if (wants(UCPX_STREAM_OP_ATTR_FIELD_RUNS)) {
        attr->runs = operation.runs;
        attr->failures = operation.failures;
    }
    if (wants(UCPX_STREAM_OP_ATTR_FIELD_LENGTH)) attr->length = operation.length;
    if (wants(UCPX_STREAM_OP_ATTR_FIELD_CAPTURED)) attr->captured = operation.is_captured() ? 1 : 0;
    return UCS_OK;
}

void ucpx_stream_op_release(ucpx_stream_op_h op) {
    StreamOperation& operation = unwrap(op);
    GateLock lock(operation.owner->gate());
    operation.owner->release(operation);
}

ucs_status_t ucpx_worker_start_thread(ucp_worker_h worker_h) {
    return locked(worker_h, [&](Worker& worker) {
        if (worker.thread_mode() != UCS_THREAD_MODE_MULTI) return UCS_ERR_UNSUPPORTED;
        std::unique_ptr<ProgressThread>& thread = operations_of(worker).thread();
        if (thread != nullptr) return UCS_OK;
        return ProgressThread::create([worker_h] { return ucp_worker_progress(worker_h); },
                                      &thread);
    });
}

void ucpx_worker_stop_thread(ucp_worker_h worker_h) {
    Worker& worker = unwrap(worker_h);
    std::unique_ptr<ProgressThread> ending;
    GateLock lock(worker.gate());
    if (worker.on_stream() != nullptr) ending = std::move(worker.on_stream()->thread());
    // The thread may wait for the lock: the lock is given up before `ending` joins it.
}

// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "ucp/mem/device_memory.h"
#include "ucp/proto/rma/emulation.h"
#include "ucp/proto/rma/rma.h"
#include "ucs/log/log.h"

namespace ucp {

namespace {

using uct::AtomicOp;

constexpr uint8_t bit(AtomicOp op) {
    return static_cast<uint8_t>(op);
}

uint64_t word_mask(unsigned size) {
    return size == 8 ? ~uint64_t{0} : 0xffffffffu;
}

void finish_atomic(Request& request) {
    AtomicRequest& atomic = request.part<AtomicRequest>();
    if (atomic.device_result != nullptr && request.status == UCS_OK)
        request.status = copy_memory(atomic.device_result, &atomic.result, atomic.arguments.size);
    if (atomic.number) request.endpoint->remote_operation_finished(*atomic.number);
}

bool device_has(const Lane& lane, const AtomicArguments& arguments) {
    const uint8_t ops =
        arguments.size == 4 ? lane.attributes.atomic32_ops : lane.attributes.atomic64_ops;
    return (ops & bit(arguments.op)) != 0;
}

bool can_use_device(const Endpoint& endpoint, const Lane& lane, const AtomicRequest& atomic) {
    const bool uses_device = endpoint.uses_device_atomics();
    const uint32_t wanted = uct::kAtomicCpu | (uses_device ? uint32_t{uct::kAtomicDevice} : 0);
    return (lane.attributes.capabilities & wanted) != 0 &&
           (device_has(lane, atomic.arguments) ||
            (lane.attributes.atomic64_ops & bit(AtomicOp::kCompareSwap)) != 0) &&
           atomic.remote->find_for_atomics(lane.domains) != uct::kInvalidRemoteKey;
}

// Place of the operand in the 8-byte word around it, in bits.
unsigned shift_of(const AtomicRequest& atomic) {
    return static_cast<unsigned>(atomic.address & 7) * 8;
}

uint64_t next_word(const AtomicRequest& atomic, uint64_t word) {
    const AtomicArguments& arguments = atomic.arguments;
    if (arguments.size == 8)
        return apply_atomic(arguments.op, 8, word, arguments.operand, arguments.compare);
    const unsigned shift = shift_of(atomic);
    const uint64_t old = (word >> shift) & word_mask(4);
    const uint64_t next = apply_atomic(arguments.op, 4, old, arguments.operand, arguments.compare);
    return (word & ~(word_mask(4) << shift)) | (next << shift);
}

// Is the operation done with what the last compare-swap found? If not, that is the next guess.
bool is_done(AtomicRequest& atomic) {
    // A word that the operation leaves as it is needs no swap.
    if (atomic.found == atomic.guess || next_word(atomic, atomic.found) == atomic.found) {
        const unsigned shift = atomic.arguments.size == 4 ? shift_of(atomic) : 0;
        set_atomic_result(atomic, atomic.found >> shift);
        return true;
    }
    atomic.guess = atomic.found;
    return false;
}

void step_finished(uct::Completion* self);

// @return UCS_OK: done; UCS_INPROGRESS: step_finished() will be called; UCS_ERR_NO_RESOURCE; an
// error
ucs_status_t swap(Request& request, const Lane& lane) {
    AtomicRequest& atomic = request.part<AtomicRequest>();
    for (;;) {
        AtomicRequest::Step& step = atomic.step;
        step.callback = step_finished;
        step.count = 1;
        step.status = UCS_OK;
        step.request = &request;
        const ucs_status_t status = lane.endpoint.atomic(
            AtomicOp::kCompareSwap, 8, next_word(atomic, atomic.guess), atomic.guess, &atomic.found,
            atomic.address & ~uint64_t{7}, atomic.remote->find(lane.domains), &step);
        if (status != UCS_OK || is_done(atomic)) return status;
    }
}

// The next step of a loop. It does not queue behind what waits on the endpoint, since that may wait
// for a fence that waits for this loop; without room on the lane the worker's progress tries again.
void swap_again(Request& request) {
    Endpoint& endpoint = *request.endpoint;
    ucs_status_t status = endpoint.status();
    if (status == UCS_OK) {
        const Lane lane = endpoint.one_sided_lane();
        if (!can_use_device(*request.endpoint, lane, request.part<AtomicRequest>())) {
            // After a demotion to a lane without atomics. The loop's reference is the posting's
            // now.
            emulate_atomic(request);
            request.flags |= Request::kAwaited;
            endpoint.start(request);
            return;
        }
        status = swap(request, lane);
    }
    if (status == UCS_INPROGRESS) return;
    if (status != UCS_ERR_NO_RESOURCE) return request.complete(status);
    try_in_progress<swap_again>(request);
}

void step_finished(uct::Completion* self) {
    Request& request = *static_cast<AtomicRequest::Step*>(self)->request;
    if (self->status != UCS_OK) return request.complete(self->status);
    if (is_done(request.part<AtomicRequest>())) return request.complete(UCS_OK);
    swap_again(request);
}

ucs_status_t post_swap(Request& request, const Lane& lane) {
    AtomicRequest& atomic = request.part<AtomicRequest>();
    const ucs_status_t status = swap(request, lane);
    if (status != UCS_INPROGRESS) return status;
    ++request.count;  // the loop's, to its end
    // Between two steps the lane knows nothing of the operation.
    atomic.number = request.endpoint->remote_operation_started();
    return UCS_OK;
}

ucs_status_t post_atomic(Request& request, const Lane& lane) {
    AtomicRequest& atomic = request.part<AtomicRequest>();
    if (!can_use_device(*request.endpoint, lane, atomic)) {
        emulate_atomic(request);
        return UCS_ERR_NO_RESOURCE;  // its turn comes again, on the lane of messages
    }
    if (!device_has(lane, atomic.arguments)) return post_swap(request, lane);
    const AtomicArguments& arguments = atomic.arguments;
    const ucs_status_t status = request.call([&](uct::Completion* c) {
        return lane.endpoint.atomic(arguments.op, arguments.size, arguments.operand,
                                    arguments.compare, arguments.result, atomic.address,
                                    atomic.remote->find(lane.domains), c);
    });
    return status == UCS_INPROGRESS ? UCS_OK : status;
}

void begin_atomic(OneSided& owner, Request& request, Endpoint& endpoint,
                  const AtomicArguments& arguments, uint64_t address, const RemoteMemory& remote) {
    AtomicRequest& atomic = request.emplace<AtomicRequest>(&owner, arguments, address, &remote);
    if (device_of(arguments.result, arguments.size) != nullptr) {
        atomic.device_result = arguments.result;
        atomic.arguments.result = &atomic.result;
    }
    request.endpoint = &endpoint;
    request.order = Request::Order::kOneSided;
    request.post = post_atomic;
    request.protocol = "atomic";
    request.length = arguments.size;
    request.cleanup = finish_atomic;
    if (!can_use_device(endpoint, endpoint.one_sided_lane(), atomic)) emulate_atomic(request);
}

// No processor, and no adapter here, does atomics in the memory of a device.
ucs_status_t check_target(const RemoteMemory& remote) {
    if (remote.header().memory_type == UCS_MEMORY_TYPE_HOST) return UCS_OK;
    ucs::log_error("atomic operations on {} memory are not supported",
                   ucs_memory_type_names[remote.header().memory_type]);
    return UCS_ERR_UNSUPPORTED;
}

}  // namespace

uint64_t apply_atomic(AtomicOp op, unsigned size, uint64_t old, uint64_t operand,
                      uint64_t compare) {
    const uint64_t mask = word_mask(size);
    switch (op) {
        case AtomicOp::kAdd:
            return (old + operand) & mask;
        case AtomicOp::kAnd:
            return old & operand & mask;
        case AtomicOp::kOr:
            return (old | operand) & mask;
        case AtomicOp::kXor:
            return (old ^ operand) & mask;
        case AtomicOp::kSwap:
            return operand & mask;
        case AtomicOp::kCompareSwap:
            return (old & mask) == (compare & mask) ? operand & mask : old & mask;
    }
    return old;
}

void set_atomic_result(const AtomicRequest& atomic, uint64_t value) {
    if (atomic.arguments.result != nullptr)
        std::memcpy(atomic.arguments.result, &value, atomic.arguments.size);
}

ucs_status_t check_atomic(const AtomicArguments& arguments, uint64_t address) {
    if (arguments.size != 4 && arguments.size != 8) return UCS_ERR_INVALID_PARAM;
    return address % arguments.size == 0 ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

bool OneSided::is_done_at_once(Endpoint& endpoint, const AtomicArguments& arguments,
                               uint64_t address, const RemoteMemory& remote) {
    const auto& [op, size, operand, compare, result] = arguments;
    if (result != nullptr && endpoint.may_be_on_device(result)) return false;
    if (size == sizeof(uint64_t))
        return is_atomic_done_in_place(endpoint, op, operand, compare, result, address, remote);
    return is_atomic_done_in_place(endpoint, op, static_cast<uint32_t>(operand),
                                   static_cast<uint32_t>(compare), result, address, remote);
}

ucs_status_ptr_t OneSided::atomic(Endpoint& endpoint, const AtomicArguments& arguments,
                                  uint64_t address, const RemoteMemory& remote,
                                  const OpParams& params) {
    ucs_status_t status = check_atomic(arguments, address);
    if (status == UCS_OK) status = check_target(remote);
    if (status == UCS_OK) status = endpoint.status();
    if (status != UCS_OK) return UCS_STATUS_PTR(status);
    if (!params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL) &&
        is_done_at_once(endpoint, arguments, address, remote))
        return nullptr;
    Request* request = requests.begin(params, Request::CallbackKind::kSend);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    begin_atomic(*this, *request, endpoint, arguments, address, remote);
    return submit(endpoint, *request, params);
}

ucs_status_t OneSided::atomic_implicit(Endpoint& endpoint, const AtomicArguments& arguments,
                                       uint64_t address, const RemoteMemory& remote) {
    ucs_status_t status = check_atomic(arguments, address);
    if (status == UCS_OK) status = check_target(remote);
    if (status == UCS_OK) status = endpoint.status();
    if (status != UCS_OK) return status;
    if (is_done_at_once(endpoint, arguments, address, remote)) return UCS_OK;
    Request* request = requests.allocate();
    if (request == nullptr) return UCS_ERR_NO_MEMORY;
    begin_atomic(*this, *request, endpoint, arguments, address, remote);
    endpoint.start(*request);
    return UCS_INPROGRESS;
}

void OneSided::add_handlers(InterfaceSet& interfaces) {
    add_emulation_origin_handlers(*this, interfaces);
    add_emulation_target_handlers(*this, interfaces);
}

}  // namespace ucp

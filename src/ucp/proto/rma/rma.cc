// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rma/rma.h"

#include <algorithm>
#include <cstring>

#include "ucp/dt/buffer.h"
#include "ucp/proto/rma/emulation.h"

namespace ucp {

namespace {

void finish_rma(Request& request) {
    RmaOperation& rma = request.part<RmaOperation>();
    if (rma.memory != nullptr) Memory::destroy(rma.memory);
    if (rma.device_copy != nullptr) {
        const ucs_status_t status = rma.device_copy->finish();
        if (request.status == UCS_OK) request.status = status;
    }
    if (rma.number) request.endpoint->remote_operation_finished(*rma.number);
}

bool lane_lacks(const Lane& lane, uint32_t any_of, const RemoteMemory& remote,
                uct::RemoteKey* key) {
    *key = remote.find(lane.domains);
    return (lane.attributes.capabilities & any_of) == 0 || *key == uct::kInvalidRemoteKey;
}

constexpr uint32_t kAnyPut = uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy;
constexpr uint32_t kAnyGet = uct::kGetBcopy | uct::kGetZcopy;

struct PackPut {
    const std::byte* data;
    size_t length;
};

size_t pack_put(void* destination, void* arg) {
    const PackPut& pack = *static_cast<PackPut*>(arg);
    std::memcpy(destination, pack.data, pack.length);
    return pack.length;
}

void unpack_get(void* arg, const void* data, size_t length) {
    std::memcpy(arg, data, length);
}

/** The shortest way: the data goes with the work request, if it fits and there is room. */
inline bool put_short(Endpoint& endpoint, const void* buffer, size_t length, uint64_t address,
                      const RemoteMemory& remote) {
    const Lane lane = endpoint.one_sided_lane();
    if (length > lane.attributes.put.max_short ||
        (lane.attributes.capabilities & uct::kPutShort) == 0)
        return false;
    const uct::RemoteKey key = remote.find(lane.domains);
    if (key == uct::kInvalidRemoteKey) return false;
    if (lane.endpoint.put_short(buffer, static_cast<uint32_t>(length), address, key) != UCS_OK)
        return false;
    endpoint.note_one_sided(lane);
    return true;
}

[[gnu::noinline]] bool put_watched(Endpoint& endpoint, const void* buffer, size_t length,
                                   uint64_t address, const RemoteMemory& remote) {
    Gate& gate = endpoint.gate();
    if ((gate.bits() & Gate::kDevices) != 0 && !gate.is_host(buffer)) return false;
    if (!put_short(endpoint, buffer, length, address, remote)) return false;
    if ((gate.bits() & Gate::kTracker) != 0) endpoint.touch(length);
    return true;
}

/** Nothing waits before it. */
bool put_at_once(Endpoint& endpoint, const void* buffer, size_t length, uint64_t address,
                 const RemoteMemory& remote) {
    if (!endpoint.one_sided_ready()) return false;
    return (endpoint.gate().bits() & (Gate::kTracker | Gate::kDevices)) == 0
               ? put_short(endpoint, buffer, length, address, remote)
               : put_watched(endpoint, buffer, length, address, remote);
}

}  // namespace

ucs_status_t one_sided_length(const OpParams& params, const void* buffer, size_t count,
                              size_t* length) {
    const ucp_datatype_t type = params.datatype();
    if (datatype_class(type) != DatatypeClass::kContig) return UCS_ERR_INVALID_PARAM;
    if (__builtin_mul_overflow(count, contig_element_size(type), length))
        return UCS_ERR_INVALID_PARAM;
    return buffer != nullptr || *length == 0 ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

/** Does an operation of that length take registered memory on the lane, which has a choice? */
static bool wants_zcopy(Request& request, const Lane& lane, select::Operation operation,
                        size_t length) {
    const bool is_registered = request.part<RmaOperation>().user_memory != nullptr;
    const select::Protocol protocol = request.endpoint->protocols(lane).find(
        operation,
        is_registered ? select::BufferClass::kRegistered : select::BufferClass::kContiguous,
        select::Situation::kAlone, length);
    return protocol == select::Protocol::kZeroCopy || protocol == select::Protocol::kBulk;
}

uct::MemoryHandle* registration(Request& request, const Lane& lane) {
    RmaOperation& rma = request.part<RmaOperation>();
    if (rma.user_memory != nullptr &&
        rma.user_memory->covers(reinterpret_cast<uintptr_t>(rma.buffer), rma.length))
        return rma.user_memory->handle(lane.domains.local);
    if (rma.memory == nullptr && !rma.no_registration) {
        rma.no_registration =
            Memory::create_on_demand(rma.owner->domains, rma.buffer, rma.length,
                                     uct::PeerRights::kNone, &rma.memory) != UCS_OK;
    }
    return rma.memory == nullptr ? nullptr : rma.memory->handle(lane.domains.local);
}

/** Bulk transfers are the engine's; the rest of what was begun otherwise is not. */
static bool start_bulk(Request& request, const Lane& lane, bulk::Direction direction) {
    RmaOperation& rma = request.part<RmaOperation>();
    if (rma.offset != 0 || !rma.owner->bulk.is_bulk(*request.endpoint, rma.length)) return false;
    const uint32_t chains = direction == bulk::Direction::kPut ? uct::kPutChain : uct::kGetChain;
    if ((lane.attributes.capabilities & chains) == 0 || registration(request, lane) == nullptr) {
        return false;
    }
    const Memory* memory = rma.memory != nullptr ? rma.memory : rma.user_memory;
    return rma.owner->bulk.try_start(request, direction,
                                     {rma.buffer, rma.address, rma.length, memory, rma.remote});
}

static ucs_status_t post_put(Request& request, const Lane& lane) {
    RmaOperation& rma = request.part<RmaOperation>();
    uct::RemoteKey key;
    if (lane_lacks(lane, kAnyPut, *rma.remote, &key)) {
        emulate_rma(request, true);
        return UCS_ERR_NO_RESOURCE;  // its turn comes again, on the lane of messages
    }
    ucs_status_t status;
    if (start_bulk(request, lane, bulk::Direction::kPut)) return UCS_OK;
    const uint32_t capabilities = lane.attributes.capabilities;
    const uct::OperationLimits& limits = lane.attributes.put;
    std::byte* data = rma.buffer + rma.offset;
    const uint64_t address = rma.address + rma.offset;
    size_t length = rma.length - rma.offset;
    uct::MemoryHandle* handle = nullptr;
    const bool can_copy = (capabilities & uct::kPutBcopy) != 0;
    if (length <= limits.max_short && (capabilities & uct::kPutShort) != 0) {
        status = lane.endpoint.put_short(data, static_cast<uint32_t>(length), address, key);
    } else if ((capabilities & uct::kPutZcopy) != 0 &&
               (!can_copy || wants_zcopy(request, lane, select::Operation::kPut, length)) &&
               (handle = registration(request, lane)) != nullptr) {
        length = std::min(length, limits.max_zcopy);
        const uct::Iov piece{data, length, handle};
        status = request.call([&](uct::Completion* c) {
            return lane.endpoint.put_zcopy({&piece, 1}, address, key, c);
        });
    } else if (can_copy) {
        length = std::min(length, limits.max_bcopy);
        PackPut pack{data, length};
        const ssize_t sent = lane.endpoint.put_bcopy(pack_put, &pack, address, key);
        status = sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
    } else if ((capabilities & uct::kPutShort) != 0 && limits.max_short > 0) {
        length = std::min(length, limits.max_short);
        status = lane.endpoint.put_short(data, static_cast<uint32_t>(length), address, key);
    } else {
        return UCS_ERR_NO_MEMORY;  // zero copy is all there is, and the device takes no memory
    }
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    rma.offset += length;
    return rma.offset == rma.length ? UCS_OK : UCS_INPROGRESS;
}

static ucs_status_t post_get(Request& request, const Lane& lane) {
    RmaOperation& rma = request.part<RmaOperation>();
    uct::RemoteKey key;
    if (lane_lacks(lane, kAnyGet, *rma.remote, &key)) {
        emulate_rma(request, false);
        return UCS_ERR_NO_RESOURCE;
    }
    ucs_status_t status;
    if (start_bulk(request, lane, bulk::Direction::kGet)) return UCS_OK;
    const uint32_t capabilities = lane.attributes.capabilities;
    const uct::OperationLimits& limits = lane.attributes.get;
    std::byte* data = rma.buffer + rma.offset;
    const uint64_t address = rma.address + rma.offset;
    size_t length = rma.length - rma.offset;
    uct::MemoryHandle* handle = nullptr;
    const bool can_copy = (capabilities & uct::kGetBcopy) != 0;
    if ((capabilities & uct::kGetZcopy) != 0 &&
        (!can_copy || wants_zcopy(request, lane, select::Operation::kGet, length)) &&
        (handle = registration(request, lane)) != nullptr) {
        length = std::min(length, limits.max_zcopy);
        const uct::Iov piece{data, length, handle};
        status = request.call([&](uct::Completion* c) {
            return lane.endpoint.get_zcopy({&piece, 1}, address, key, c);
        });
    } else if (can_copy) {
        length = std::min(length, limits.max_bcopy);
        status = request.call([&](uct::Completion* c) {
            return lane.endpoint.get_bcopy(unpack_get, data, length, address, key, c);
        });
    } else {
        return UCS_ERR_NO_MEMORY;
    }
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    rma.offset += length;
    return rma.offset == rma.length ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_t OneSided::begin(Request& request, Endpoint& endpoint, RmaOperation operation,
                             bool is_put, ucs_memory_type_t declared) {
    const ucs::MemoryPiece whole{operation.buffer, operation.length};
    const ucs_status_t status = open_device_copy({&whole, 1}, declared, &operation.device_copy);
    if (status != UCS_OK) return status;
    operation.owner = this;
    RmaOperation& rma = request.emplace<RmaOperation>(operation);
    request.endpoint = &endpoint;
    request.flags |= Request::kOneSided;
    request.post = is_put ? post_put : post_get;
    request.protocol = is_put ? "put" : "get";
    request.length = rma.length;
    if (rma.device_copy != nullptr)
        request.memory_type = memory_type_of(rma.buffer, rma.length, ucp_dt_make_contig(1));
    request.cleanup = finish_rma;
    uct::RemoteKey key;
    if (rma.device_copy != nullptr ||
        lane_lacks(endpoint.one_sided_lane(), is_put ? kAnyPut : kAnyGet, *rma.remote, &key))
        emulate_rma(request, is_put);
    return UCS_OK;
}

ucs_status_ptr_t OneSided::start(Endpoint& endpoint, RmaOperation operation, const OpParams& params,
                                 bool is_put) {
    if (endpoint.is_failed()) return UCS_STATUS_PTR(endpoint.status());
    operation.user_memory = reinterpret_cast<Memory*>(params.memory());
    Request* request = requests.begin(params, Request::CallbackKind::kSend);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    const ucs_status_t status = begin(*request, endpoint, operation, is_put, params.memory_type());
    if (status != UCS_OK) return requests.give_back(*request, status);
    endpoint.count_send(operation.length);
    return submit(endpoint, *request, params);
}

ucs_status_ptr_t OneSided::submit(Endpoint& endpoint, Request& request, const OpParams& params) {
    if (!is_turn() || params.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)) [[likely]]
        return endpoint.submit(request, params);
    ucp_request_param_t later = params.raw();
    later.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    return endpoint.submit(request, OpParams(&later));
}

ucs_status_t OneSided::start_implicit(Endpoint& endpoint, const RmaOperation& operation,
                                      bool is_put) {
    if (endpoint.is_failed()) return endpoint.status();
    Request* request = requests.allocate();
    if (request == nullptr) return UCS_ERR_NO_MEMORY;
    const ucs_status_t status = begin(*request, endpoint, operation, is_put);
    if (status != UCS_OK) {
        requests.recycle(*request);
        return status;
    }
    endpoint.count_send(operation.length);
    endpoint.start(*request);
    return UCS_INPROGRESS;
}

ucs_status_ptr_t OneSided::put(Endpoint& endpoint, const void* buffer, size_t length,
                               uint64_t address, const RemoteMemory& remote,
                               const OpParams& params) {
    if (!params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMORY_TYPE) &&
        (length == 0 || put_at_once(endpoint, buffer, length, address, remote)))
        return UCS_STATUS_PTR(endpoint.status());
    return start(
        endpoint,
        {this, static_cast<std::byte*>(const_cast<void*>(buffer)), length, address, &remote},
        params, true);
}

ucs_status_ptr_t OneSided::get(Endpoint& endpoint, void* buffer, size_t length, uint64_t address,
                               const RemoteMemory& remote, const OpParams& params) {
    if (length == 0 && !params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL))
        return UCS_STATUS_PTR(endpoint.status());
    return start(endpoint, {this, static_cast<std::byte*>(buffer), length, address, &remote},
                 params, false);
}

ucs_status_t OneSided::put_implicit(Endpoint& endpoint, const void* buffer, size_t length,
                                    uint64_t address, const RemoteMemory& remote) {
    if (length == 0 || put_at_once(endpoint, buffer, length, address, remote))
        return endpoint.status();
    return start_implicit(
        endpoint,
        {this, static_cast<std::byte*>(const_cast<void*>(buffer)), length, address, &remote}, true);
}

ucs_status_t OneSided::get_implicit(Endpoint& endpoint, void* buffer, size_t length,
                                    uint64_t address, const RemoteMemory& remote) {
    if (length == 0) return endpoint.status();
    return start_implicit(endpoint,
                          {this, static_cast<std::byte*>(buffer), length, address, &remote}, false);
}

}  // namespace ucp

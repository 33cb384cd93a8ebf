// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/rma/rma.h"

#include <algorithm>
#include <cstring>

#include "ucp/dt/buffer.h"
#include "ucp/endpoint/flush.h"
#include "ucp/mem/device_memory.h"
#include "ucp/proto/rma/emulation.h"

namespace ucp {

namespace {

void finish_rma(Request& request) {
    RmaOperation& rma = request.part<RmaOperation>();
    if (rma.times != nullptr) rma.times->request_ends();
    if (rma.memory != nullptr) Memory::destroy(rma.memory);
    if (rma.device_copy != nullptr) {
        const ucs_status_t status = rma.device_copy->finish();
        if (request.status == UCS_OK) request.status = status;
    }
    if (rma.number) request.endpoint->remote_operation_finished(*rma.number);
}

bool lane_lacks(const Lane& lane, uint32_t any_of, const RemoteMemory& remote) {
    return (lane.attributes.capabilities & any_of) == 0 ||
           remote.find(lane.domains) == uct::kInvalidRemoteKey;
}

using bulk::Direction;

// A direction in the words of transports and of the table of protocols.
struct DirectionTraits {
    const char* name;
    select::Operation operation;
    uint32_t any, copy, zero_copy;  // bits of uct::Capability
    uct::OperationLimits uct::InterfaceAttributes::*limits;
};

const DirectionTraits& traits_of(Direction direction) {
    static constexpr DirectionTraits kPut{
        "put",          select::Operation::kPut, uct::kPutShort | uct::kPutBcopy | uct::kPutZcopy,
        uct::kPutBcopy, uct::kPutZcopy,          &uct::InterfaceAttributes::put};
    static constexpr DirectionTraits kGet{
        "get",          select::Operation::kGet, uct::kGetBcopy | uct::kGetZcopy,
        uct::kGetBcopy, uct::kGetZcopy,          &uct::InterfaceAttributes::get};
    return direction == Direction::kPut ? kPut : kGet;
}

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

// The shortest way: the data goes with the work request, if it fits and there is room. What fits is
// what the table of protocols has in its first range of puts, which is not looked up here.
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
    if (endpoint.may_be_on_device(buffer)) return false;
    if (!put_short(endpoint, buffer, length, address, remote)) return false;
    endpoint.touch_if_unlocked(length);
    return true;
}

// Nothing waits before it.
bool put_at_once(Endpoint& endpoint, const void* buffer, size_t length, uint64_t address,
                 const RemoteMemory& remote) {
    const bool is_watched = endpoint.is_watched();
    // Memory that has no key for any lane is a device's: start_direct() is tried next.
    if ((is_watched && !remote.has_keys()) || !endpoint.one_sided_ready()) return false;
    return !is_watched ? put_short(endpoint, buffer, length, address, remote)
                       : put_watched(endpoint, buffer, length, address, remote);
}

// The same of a get: this processor copies what is short while the call lasts.
bool get_at_once(Endpoint& endpoint, void* buffer, size_t length, uint64_t address,
                 const RemoteMemory& remote) {
    if (!endpoint.one_sided_ready() || endpoint.may_be_on_device(buffer)) return false;
    const Lane lane = endpoint.one_sided_lane();
    if ((lane.attributes.capabilities & uct::kCopies) == 0 ||
        length > lane.attributes.get.max_bcopy)
        return false;
    const uct::RemoteKey key = remote.find(lane.domains);
    if (key == uct::kInvalidRemoteKey) return false;
    const select::Protocol protocol =
        endpoint.protocols(lane).find(select::Operation::kGet, select::BufferClass::kContiguous,
                                      select::RemoteClass::kHost, length);
    if (protocol != select::Protocol::kCopy ||
        lane.endpoint.get_bcopy(unpack_get, buffer, length, address, key, nullptr) != UCS_OK)
        return false;
    endpoint.touch_if_unlocked(length);
    return true;
}

// Lets what was learned choose the way of a put or get of host memory, if it has the choice.
// @return whether it is the last one of a window that is timed: end_window() is to follow
[[gnu::noinline]] bool choose_route(Endpoint& endpoint, RmaOperation& rma) {
    if (rma.remote->exported() != nullptr) return false;
    const select::Operation operation = traits_of(rma.direction).operation;
    const Lane lane = endpoint.one_sided_lane();
    const LearnedLane* const learned = endpoint.learned(lane, operation);
    if (learned == nullptr || learned->ways_of(select::Load::kAlone, rma.length) == nullptr ||
        endpoint.may_be_on_device(rma.buffer) || rma.remote->mapped(lane.domains) != nullptr ||
        rma.remote->find(lane.domains) == uct::kInvalidRemoteKey)
        return false;
    const auto buffer = rma.user_memory != nullptr ? select::BufferClass::kRegistered
                                                   : select::BufferClass::kContiguous;
    const auto usual = select::one_sided_way(
        endpoint.protocols(lane).find(operation, buffer, select::RemoteClass::kHost, rma.length));
    if (!usual) return false;
    const auto route = learned->times->begin({.costs = *learned->costs,
                                              .ways = learned->ways,
                                              .endpoint = endpoint.serial(),
                                              .flushes = endpoint.flushes(),
                                              .length = rma.length,
                                              .usual = *usual,
                                              .is_put = rma.direction == Direction::kPut});
    rma.route = select::protocol_of(route.way);
    rma.times = learned->times;
    return route.ends_window;
}

// All of a window has begun: a flush behind it tells when it is done.
void end_window(Endpoint& endpoint, select::OneSidedTimes& times) {
    if (endpoint.is_flushed()) return times.end_window(true);
    Request* const flush = make_internal_flush(endpoint, &times, [](Request& request) {
        static_cast<select::OneSidedTimes*>(request.user_data)
            ->end_window(request.status == UCS_OK);
    });
    if (flush == nullptr) return times.end_window(false);
    endpoint.start(*flush);
}

}  // namespace

uct::MemoryHandle* registration(Request& request, const Lane& lane) {
    RmaOperation& rma = request.part<RmaOperation>();
    if (rma.user_memory != nullptr &&
        rma.user_memory->covers(reinterpret_cast<uintptr_t>(rma.buffer), rma.length))
        return rma.user_memory->handle(lane.domains.local);
    if (rma.memory == nullptr && !rma.no_registration) {
        const ucs::MemoryInfo found =
            rma.device_copy != nullptr ? rma.device_copy->memory : ucs::MemoryInfo{};
        rma.no_registration =
            Memory::create_on_demand(rma.owner->domains, rma.buffer, rma.length,
                                     uct::PeerRights::kNone, &rma.memory, found) != UCS_OK;
    }
    return rma.memory == nullptr ? nullptr : rma.memory->handle(lane.domains.local);
}

namespace {

// Can the lane take the operation's buffer? Some reach all memory of this process.
bool has_memory(Request& request, const Lane& lane, uct::MemoryHandle** handle) {
    const DomainSet& domains = request.part<RmaOperation>().owner->domains;
    if (!domains[lane.domains.local].memory->attributes().needs_handle) return true;
    *handle = registration(request, lane);
    return *handle != nullptr;
}

// By which protocol the rest of the operation goes on the lane.
select::Protocol protocol_of(Request& request, const Lane& lane, select::BufferClass buffer,
                             select::RemoteClass remote) {
    const RmaOperation& rma = request.part<RmaOperation>();
    return request.endpoint->protocols(lane).find(traits_of(rma.direction).operation, buffer,
                                                  remote, rma.length - rma.offset);
}

// Hands the operation to the bulk engine, unless a part of it has gone another way.
bool start_bulk(Request& request, const Lane& lane) {
    RmaOperation& rma = request.part<RmaOperation>();
    if (rma.offset != 0 || registration(request, lane) == nullptr) return false;
    const Memory* memory = rma.memory != nullptr ? rma.memory : rma.user_memory;
    return rma.owner->bulk.try_start(request, rma.direction,
                                     {rma.buffer, rma.address, rma.length, memory, rma.remote});
}

ucs_status_t post_zero_copy(Request& request, const Lane& lane, const uct::Iov& piece,
                            uint64_t address, uct::RemoteKey key) {
    const bool is_put = request.part<RmaOperation>().direction == Direction::kPut;
    return request.call([&](uct::Completion* c) {
        return is_put ? lane.endpoint.put_zcopy({&piece, 1}, address, key, c)
                      : lane.endpoint.get_zcopy({&piece, 1}, address, key, c);
    });
}

ucs_status_t post_copy(Request& request, const Lane& lane, std::byte* data, size_t length,
                       uint64_t address, uct::RemoteKey key) {
    if (request.part<RmaOperation>().direction == Direction::kGet) {
        return request.call([&](uct::Completion* c) {
            return lane.endpoint.get_bcopy(unpack_get, data, length, address, key, c);
        });
    }
    PackPut pack{data, length};
    const ssize_t sent = lane.endpoint.put_bcopy(pack_put, &pack, address, key);
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

ucs_status_t post_rma(Request& request, const Lane& lane) {
    using select::Protocol;
    RmaOperation& rma = request.part<RmaOperation>();
    const DirectionTraits& traits = traits_of(rma.direction);
    const uct::RemoteKey key = rma.remote->find(lane.domains);
    const auto buffer = rma.user_memory != nullptr ? select::BufferClass::kRegistered
                                                   : select::BufferClass::kContiguous;
    const Protocol protocol =
        rma.route ? *rma.route : protocol_of(request, lane, buffer, select::RemoteClass::kHost);
    if (key == uct::kInvalidRemoteKey || protocol == Protocol::kByMessages) {
        emulate_rma(request);
        return UCS_ERR_NO_RESOURCE;  // its turn comes again, on the lane of messages
    }
    if (protocol == Protocol::kBulk && start_bulk(request, lane)) return UCS_OK;
    const uint32_t capabilities = lane.attributes.capabilities;
    const uct::OperationLimits& limits = lane.attributes.*traits.limits;
    std::byte* data = rma.buffer + rma.offset;
    const uint64_t address = rma.address + rma.offset;
    size_t length = rma.length - rma.offset;
    const bool can_copy = (capabilities & traits.copy) != 0;
    const bool has_short = rma.direction == Direction::kPut && (capabilities & uct::kPutShort) != 0;
    uct::MemoryHandle* handle = nullptr;
    ucs_status_t status;
    if (protocol == Protocol::kShort && length <= limits.max_short) {
        status = lane.endpoint.put_short(data, static_cast<uint32_t>(length), address, key);
    } else if ((capabilities & traits.zero_copy) != 0 &&
               (!can_copy || protocol == Protocol::kZeroCopy || protocol == Protocol::kBulk) &&
               has_memory(request, lane, &handle)) {
        length = std::min(length, limits.max_zcopy);
        status = post_zero_copy(request, lane, {data, length, handle}, address, key);
    } else if (can_copy) {
        length = std::min(length, limits.max_bcopy);
        status = post_copy(request, lane, data, length, address, key);
    } else if (has_short && limits.max_short > 0) {
        length = std::min(length, limits.max_short);
        status = lane.endpoint.put_short(data, static_cast<uint32_t>(length), address, key);
    } else {
        return UCS_ERR_NO_MEMORY;  // zero copy is all there is, and the device takes no memory
    }
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    rma.offset += length;
    return rma.offset == rma.length ? UCS_OK : UCS_INPROGRESS;
}

select::BufferClass device_class(const Memory* user_memory, const Lane& lane) {
    return user_memory != nullptr && user_memory->registered(lane.domains.local) != nullptr
               ? select::BufferClass::kKnown
               : select::BufferClass::kDevice;
}

// The adapter reads and writes the device's memory. Where it has no registration of it, or after a
// demotion to a lane that reaches none, the peer's processor acts.
ucs_status_t post_by_adapter(Request& request, const Lane& lane) {
    using select::Protocol;
    RmaOperation& rma = request.part<RmaOperation>();
    const DirectionTraits& traits = traits_of(rma.direction);
    const uct::RemoteKey key = rma.remote->find(lane.domains);
    const Protocol protocol =
        protocol_of(request, lane, device_class(rma.user_memory, lane), select::RemoteClass::kHost);
    uct::MemoryHandle* const handle = key == uct::kInvalidRemoteKey ||
                                              protocol == Protocol::kByMessages ||
                                              (lane.attributes.capabilities & traits.zero_copy) == 0
                                          ? nullptr
                                          : registration(request, lane);
    if (handle == nullptr) {
        emulate_rma(request);
        return UCS_ERR_NO_RESOURCE;  // its turn comes again, on the lane of messages
    }
    if (protocol == Protocol::kBulk && start_bulk(request, lane)) return UCS_OK;
    const uct::Iov piece{
        rma.buffer + rma.offset,
        std::min((lane.attributes.*traits.limits).max_zcopy, rma.length - rma.offset), handle};
    const ucs_status_t status = post_zero_copy(request, lane, piece, rma.address + rma.offset, key);
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    rma.offset += piece.length;
    return rma.offset == rma.length ? UCS_OK : UCS_INPROGRESS;
}

// Waits for the device, which still reads and writes both sides.
void abort_copy(Request& request, ucs_status_t status) {
    request.part<RmaOperation>().owner->direct.wait_for(request);
    request.complete(status);
}

const ucs::MemoryExport& use_exported(Endpoint& endpoint, const RemoteMemory& remote) {
    const ucs::MemoryExport& exported = *remote.exported();
    if (remote.use_exported()) DirectPath::tell_in_use(endpoint, exported);
    return exported;
}

// Has a device copy; where the peer's memory is not mapped yet, the target's processor acts
// instead.
ucs_status_t post_direct(Request& request, const Lane&) {
    RmaOperation& rma = request.part<RmaOperation>();
    DirectPath& direct = rma.owner->direct;
    const ucs::MemoryExport& there = use_exported(*request.endpoint, *rma.remote);
    const ucs::DevicePiece piece{&there, rma.address - rma.remote->header().address, rma.buffer,
                                 rma.length};
    if (!direct.copy(request, piece, rma.found(), rma.direction == Direction::kPut)) {
        // Memory that other processes cannot open is copied by its owner's devices, on request.
        const bool is_asked = there.has_handle == 0 && rma.device_copy != nullptr &&
                              rma.remote->is_copied_on_request();
        is_asked ? request_copy(request) : emulate_rma(request);
        return UCS_ERR_NO_RESOURCE;
    }
    rma.offset = rma.length;
    rma.number = request.endpoint->remote_operation_started();
    request.abort = abort_copy;
    request.pool->await_answer(request);
    return UCS_OK;
}

// The key does not cover the whole range: nothing of it is written, by whatever way.
ucs_status_t refuse(Request&, const Lane&) {
    return UCS_ERR_INVALID_ADDR;
}

// One side is memory of a device: the table of protocols says who moves it.
[[gnu::noinline]] void begin_of_device(Request& request) {
    const RmaOperation& rma = request.part<RmaOperation>();
    if (rma.remote->exported() != nullptr && !rma.remote->covers(rma.address, rma.length)) {
        request.post = refuse;
        return;
    }
    const Lane lane = request.endpoint->one_sided_lane();
    const bool is_reached = rma.remote->find(lane.domains) != uct::kInvalidRemoteKey;
    const auto remote = is_reached                          ? select::RemoteClass::kHost
                        : rma.remote->exported() != nullptr ? select::RemoteClass::kDescribed
                        : rma.remote->header().memory_type != UCS_MEMORY_TYPE_HOST
                            ? select::RemoteClass::kDevice
                            : select::RemoteClass::kHost;
    const auto buffer = rma.device_copy != nullptr   ? device_class(rma.user_memory, lane)
                        : rma.user_memory != nullptr ? select::BufferClass::kRegistered
                                                     : select::BufferClass::kContiguous;
    const select::Protocol protocol = protocol_of(request, lane, buffer, remote);
    const bool is_direct = protocol == select::Protocol::kDirect;
    if (is_direct && remote == select::RemoteClass::kDescribed) {
        request.post = post_direct;
    } else if (is_direct && rma.remote->is_copied_on_request()) {
        request_copy(request);
    } else if (is_direct || protocol == select::Protocol::kByMessages || !is_reached) {
        emulate_rma(request);
    } else if (rma.device_copy != nullptr) {
        request.post = post_by_adapter;
    }
}

// The part of an operation that a device does as a whole, between its memory and described memory
// of the peer, and that has begun within the call.
struct DirectOperation {
    ucs::HeldAllocations* held;  // has the buffer's allocation; null: had no place for it
    uint64_t allocation;
    uint32_t number;
};

void finish_direct(Request& request) {
    const DirectOperation& operation = request.part<DirectOperation>();
    if (operation.held != nullptr) operation.held->release(operation.allocation);
    request.endpoint->remote_operation_finished(operation.number);
}

}  // namespace

// What most windows of puts and gets between devices are made of: nothing waits before it, the
// buffer lies in one allocation, and the way to the described memory has been used before.
bool OneSided::begin_direct(Request& request, Endpoint& endpoint, const RmaArguments& rma) {
    const RemoteMemory& remote = rma.remote;
    if (rma.length == 0 || !endpoint.one_sided_ready() || !remote.is_exported_used() ||
        !remote.covers(rma.address, rma.length))
        return false;
    const Lane lane = endpoint.one_sided_lane();
    if (remote.find(lane.domains) != uct::kInvalidRemoteKey ||
        endpoint.protocols(lane).find(
            traits_of(rma.direction).operation, device_class(rma.user_memory, lane),
            select::RemoteClass::kDescribed, rma.length) != select::Protocol::kDirect)
        return false;
    const ucs::MemoryInfo* const memory =
        ucs::MemoryGate::instance().find_counted(rma.buffer, rma.length);
    if (memory == nullptr || memory->allocation == 0 ||
        (rma.declared != UCS_MEMORY_TYPE_UNKNOWN && rma.declared != memory->type))
        return false;
    ucs::HeldAllocations& held = *memory->held;
    const uint64_t allocation = memory->allocation;
    const ucs::DevicePiece piece{remote.exported(), rma.address - remote.header().address,
                                 rma.buffer, rma.length};
    const bool is_held = held.hold(*memory) != nullptr;
    if (!direct.copy(request, piece, memory, rma.direction == Direction::kPut)) {
        if (is_held) held.release(allocation);
        return false;
    }
    request.emplace<DirectOperation>(is_held ? &held : nullptr, allocation,
                                     endpoint.remote_operation_started());
    request.endpoint = &endpoint;
    request.order = Request::Order::kOneSided;
    request.protocol = traits_of(rma.direction).name;
    request.length = rma.length;
    request.memory_type = memory->type;
    request.cleanup = finish_direct;
    endpoint.note_one_sided(lane);
    endpoint.count_send(rma.length);
    return true;
}

ucs_status_ptr_t OneSided::start_direct(Endpoint& endpoint, const RmaArguments& rma,
                                        const OpParams& params) {
    Request* const request = requests.begin(params, Request::CallbackKind::kSend);
    if (request == nullptr) return nullptr;
    if (begin_direct(*request, endpoint, rma)) return requests.end_call(*request, params);
    requests.recycle(*request);
    return nullptr;
}

bool OneSided::start_direct(Endpoint& endpoint, const RmaArguments& rma) {
    Request* const request = requests.allocate();
    if (request == nullptr) return false;
    if (begin_direct(*request, endpoint, rma)) return true;
    requests.recycle(*request);
    return false;
}

const ucs::MemoryExport* reach_directly(Endpoint& endpoint, const RemoteMemory& remote) {
    const ucs::MemoryExport* const exported = remote.exported();
    if (exported == nullptr ||
        endpoint.configuration().use(LaneRole::kRemoteMemory, UCS_MEMORY_TYPE_CUDA).service !=
            Service::kByDevices)
        return nullptr;
    return &use_exported(endpoint, remote);
}

ucs_status_t OneSided::begin(Request& request, Endpoint& endpoint, RmaOperation operation,
                             ucs_memory_type_t declared) {
    const ucs::MemoryPiece whole{operation.buffer, operation.length};
    ucs_memory_type_t type = UCS_MEMORY_TYPE_HOST;
    const ucs_status_t status =
        open_device_copy({&whole, 1}, declared, &operation.device_copy, &type);
    if (status != UCS_OK) return status;
    operation.owner = this;
    RmaOperation& rma = request.emplace<RmaOperation>(operation);
    request.endpoint = &endpoint;
    request.order = Request::Order::kOneSided;
    request.post = post_rma;
    request.protocol = traits_of(rma.direction).name;
    request.length = rma.length;
    if (rma.device_copy != nullptr) request.memory_type = type;
    request.cleanup = finish_rma;
    if (rma.times != nullptr) rma.times->request_begins();
    if (rma.remote->exported() != nullptr || rma.device_copy != nullptr) {
        begin_of_device(request);
    } else if (lane_lacks(endpoint.one_sided_lane(), traits_of(rma.direction).any, *rma.remote)) {
        emulate_rma(request);
    }
    return UCS_OK;
}

ucs_status_ptr_t OneSided::start(Endpoint& endpoint, const RmaOperation& operation,
                                 const OpParams& params) {
    if (endpoint.is_failed()) return UCS_STATUS_PTR(endpoint.status());
    Request* request = requests.begin(params, Request::CallbackKind::kSend);
    if (request == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    const ucs_status_t status = begin(*request, endpoint, operation, params.memory_type());
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

ucs_status_t OneSided::start_implicit(Endpoint& endpoint, const RmaOperation& operation) {
    if (endpoint.is_failed()) return endpoint.status();
    Request* request = requests.allocate();
    if (request == nullptr) return UCS_ERR_NO_MEMORY;
    const ucs_status_t status = begin(*request, endpoint, operation);
    if (status != UCS_OK) {
        requests.recycle(*request);
        return status;
    }
    endpoint.count_send(operation.length);
    endpoint.start(*request);
    return UCS_INPROGRESS;
}

// True if the operation is done: there was nothing to do, or one of the shortest ways has done it.
template <Direction kDirection>
bool OneSided::is_done_at_once(Endpoint& endpoint, void* buffer, size_t length, uint64_t address,
                               const RemoteMemory& remote) {
    if (length == 0 || is_done_in_place<kDirection>(endpoint, buffer, length, address, remote))
        return true;
    if (kDirection == Direction::kPut)
        return put_at_once(endpoint, buffer, length, address, remote);
    if (comes_to_progress() || !get_at_once(endpoint, buffer, length, address, remote))
        return false;
    ++operations_;
    return true;
}

template <Direction kDirection>
ucs_status_ptr_t OneSided::transfer(Endpoint& endpoint, void* buffer, size_t length,
                                    uint64_t address, const RemoteMemory& remote,
                                    const OpParams& params) {
    if (!params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMORY_TYPE) &&
        is_done_at_once<kDirection>(endpoint, buffer, length, address, remote))
        return UCS_STATUS_PTR(endpoint.status());
    auto* const bytes = static_cast<std::byte*>(buffer);
    auto* const user_memory = reinterpret_cast<Memory*>(params.memory());
    if (remote.exported() != nullptr) [[unlikely]] {
        const ucs_status_ptr_t begun = start_direct(
            endpoint,
            {kDirection, bytes, length, address, remote, user_memory, params.memory_type()},
            params);
        if (begun != nullptr) return begun;
    }
    RmaOperation rma{this, kDirection, bytes, length, address, &remote};
    rma.user_memory = user_memory;
    const bool ends_window = length >= select::kLeastOneSided &&
                             !params.has(UCP_OP_ATTR_FIELD_MEMORY_TYPE) &&
                             choose_route(endpoint, rma);
    const ucs_status_ptr_t result = start(endpoint, rma, params);
    if (ends_window) end_window(endpoint, *rma.times);
    return result;
}

template <Direction kDirection>
ucs_status_t OneSided::transfer_implicit(Endpoint& endpoint, void* buffer, size_t length,
                                         uint64_t address, const RemoteMemory& remote) {
    if (is_done_at_once<kDirection>(endpoint, buffer, length, address, remote))
        return endpoint.status();
    auto* const bytes = static_cast<std::byte*>(buffer);
    if (remote.exported() != nullptr &&
        start_direct(endpoint, {kDirection, bytes, length, address, remote, nullptr,
                                UCS_MEMORY_TYPE_UNKNOWN})) [[unlikely]]
        return UCS_INPROGRESS;
    RmaOperation rma{this, kDirection, bytes, length, address, &remote};
    const bool ends_window = length >= select::kLeastOneSided && choose_route(endpoint, rma);
    const ucs_status_t result = start_implicit(endpoint, rma);
    if (ends_window) end_window(endpoint, *rma.times);
    return result;
}

template ucs_status_ptr_t OneSided::transfer<Direction::kPut>(Endpoint&, void*, size_t, uint64_t,
                                                              const RemoteMemory&, const OpParams&);
template ucs_status_ptr_t OneSided::transfer<Direction::kGet>(Endpoint&, void*, size_t, uint64_t,
                                                              const RemoteMemory&, const OpParams&);
template ucs_status_t OneSided::transfer_implicit<Direction::kPut>(Endpoint&, void*, size_t,
                                                                   uint64_t, const RemoteMemory&);
template ucs_status_t OneSided::transfer_implicit<Direction::kGet>(Endpoint&, void*, size_t,
                                                                   uint64_t, const RemoteMemory&);

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "ucp/mem/device_memory.h"
#include "ucp/proto/rma/emulation.h"
#include "ucp/proto/rma/rma.h"
#include "ucs/log/log.h"

namespace ucp {

namespace {

void* find_memory(OneSided& owner, const RemoteAccess& access, uint64_t length, unsigned prot) {
    DomainLock lock(owner.domains);
    return owner.domains.regions().access(access.identity, access.region, access.address, length,
                                          prot);
}

void answer(OneSided& owner, uint64_t to, uint64_t request, ucs_status_t status) {
    answer_operation(owner.endpoints, to, request, status);
}

void refuse(OneSided& owner, uint64_t from, uint64_t request) {
    ucs::log_warn("worker {:016x} asked for memory that it has no right to", from);
    answer(owner, from, request, UCS_ERR_INVALID_ADDR);
}

using Payload = std::span<const std::byte>;

// A handler of requests: `kHandle` gets those that say whom they are from.
template <typename Message, void (*kHandle)(OneSided&, const Message&, Payload)>
ucs_status_t on_request(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    Message message;
    Payload payload;
    if (read_header(data, length, &message, &payload) && message.from != 0) {
        kHandle(*static_cast<OneSided*>(arg), message, payload);
    } else {
        ucs::log_warn("malformed one-sided request of {} bytes dropped", length);
    }
    return UCS_OK;
}

void put_failed(OneSided& owner, const StagedPuts::Name& put, ucs_status_t status) {
    owner.refused = {put.from, put.request};
    ucs::log_warn("a put of worker {:016x} into a device's memory failed: {}", put.from,
                  ucs_status_string(status));
    answer(owner, put.from, put.request, status);
}

ucs_status_t write_to_device(OneSided& owner, ucs::MemoryDetector& device, const EmulatedPut& put,
                             Payload payload) {
    StagedPuts& staged = owner.staged_puts;
    if (staged.lacks_room(put)) {
        const StagedPuts::Put oldest = staged.oldest();
        const bool has_memory =
            find_memory(owner, oldest.to, oldest.length, UCP_MEM_MAP_PROT_REMOTE_WRITE) != nullptr;
        const ucs_status_t status = staged.end(oldest.name, has_memory);
        if (status != UCS_OK) put_failed(owner, oldest.name, status);
    }
    return staged.write(device, put, payload);
}

void serve_put(OneSided& owner, const EmulatedPut& put, Payload payload) {
    // Further pieces of one that was refused need no answer, and no line each.
    if (owner.refused.is(put.from, put.request)) return;
    if (!payload.empty()) {
        void* target = find_memory(owner, put.to, payload.size(), UCP_MEM_MAP_PROT_REMOTE_WRITE);
        if (target == nullptr) {
            (void)owner.staged_puts.end({put.from, put.request}, false);
            owner.refused = {put.from, put.request};
            return refuse(owner, put.from, put.request);
        }
        ucs::MemoryDetector* const device = device_of(target, payload.size());
        if (device == nullptr) [[likely]] {
            std::memcpy(target, payload.data(), payload.size());
        } else if (const ucs_status_t status = write_to_device(owner, *device, put, payload);
                   status != UCS_OK) {
            return put_failed(owner, {put.from, put.request}, status);
        }
    }
    if (put.is_last) answer(owner, put.from, put.request, UCS_OK);
}

// The part of the internal request that sends what a get asked for.
struct GetAnswer {
    OneSided* owner;
    EmulatedGet get;
    uint64_t offset;
    ucs::StagedCopy* copy = nullptr;  // of memory of a device: it reads ahead
};

void finish_answer(Request& request) {
    ucs::StagedCopy* const copy = request.part<GetAnswer>().copy;
    if (copy != nullptr) (void)copy->finish();
}

struct PackAnswer {
    Request& request;
    const std::byte* data;
    size_t length;
    ucs_status_t status = UCS_OK;
};

size_t pack_answer(void* destination, void* arg) {
    auto& [request, data, length, status] = *static_cast<PackAnswer*>(arg);
    const GetAnswer& part = request.part<GetAnswer>();
    const EmulatedGetReply header{request.endpoint->local_uuid(), part.get.request, part.offset};
    std::memcpy(destination, &header, sizeof(header));
    std::byte* const to = static_cast<std::byte*>(destination) + sizeof(header);
    if (part.copy != nullptr) {
        status = part.copy->read(part.offset, to, length);
    } else {
        std::memcpy(to, data, length);
    }
    // What could not be read is not sent.
    return sizeof(header) + (status == UCS_OK ? length : 0);
}

ucs_status_t post_answer(Request& request, const Lane& lane) {
    GetAnswer& part = request.part<GetAnswer>();
    const size_t length =
        std::min<size_t>(lane.attributes.am.longest_bcopy() - sizeof(EmulatedGetReply),
                         part.get.length - part.offset);
    RemoteAccess source = part.get.source;
    source.address += part.offset;
    // Looked up for each piece, and all that is left: the program may unmap the memory in between,
    // and what of a device is read ahead must be there.
    const void* data = find_memory(*part.owner, source, part.get.length - part.offset,
                                   UCP_MEM_MAP_PROT_REMOTE_READ);
    if (data == nullptr) {
        refuse(*part.owner, part.get.from, part.get.request);
        return UCS_OK;
    }
    PackAnswer pack{request, static_cast<const std::byte*>(data), length};
    const ssize_t sent =
        lane.endpoint.am_bcopy(static_cast<uint8_t>(AmId::kGetReply), pack_answer, &pack);
    if (sent < 0) return static_cast<ucs_status_t>(sent);
    if (pack.status != UCS_OK) {
        answer(*part.owner, part.get.from, part.get.request, pack.status);
        return UCS_OK;
    }
    part.offset += length;
    return part.offset == part.get.length ? UCS_OK : UCS_INPROGRESS;
}

void serve_get(OneSided& owner, const EmulatedGet& get, Payload rest) {
    Endpoint* endpoint = owner.endpoints.find(get.from);
    CopyRequest copy;
    if (endpoint != nullptr && read_whole(rest.data(), rest.size(), &copy))
        return owner.serve_copy(get, copy);
    if (!rest.empty() || endpoint == nullptr) {
        ucs::log_warn("get of an unknown worker dropped");
        return;
    }
    void* const source = find_memory(owner, get.source, get.length, UCP_MEM_MAP_PROT_REMOTE_READ);
    if (source == nullptr) {
        refuse(owner, get.from, get.request);
        return;
    }
    Request* request = owner.requests.allocate();
    if (request == nullptr) {
        answer(owner, get.from, get.request, UCS_ERR_NO_MEMORY);
        return;
    }
    GetAnswer& part = request->emplace<GetAnswer>(&owner, get, uint64_t{0});
    if (ucs::MemoryDetector* const device = device_of(source, get.length); device != nullptr) {
        const ucs::MemoryPiece whole{source, get.length};
        const ucs_status_t status = device->open_copy({&whole, 1}, nullptr, &part.copy);
        if (status != UCS_OK) {
            owner.requests.recycle(*request);
            answer(owner, get.from, get.request, status);
            return;
        }
    }
    request->cleanup = finish_answer;
    request->endpoint = endpoint;
    request->post = post_answer;
    request->flags |= Request::kAwaited;
    endpoint->start(*request);
}

// The processor's own atomics; words of other lanes' atomics are not atomic with them.
template <typename Word>
uint64_t execute(Word* word, const EmulatedAtomic& atomic) {
    Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
    const auto op = static_cast<uct::AtomicOp>(atomic.op);
    Word next;
    do {
        next =
            static_cast<Word>(apply_atomic(op, sizeof(Word), old, atomic.operand, atomic.compare));
    } while (
        !__atomic_compare_exchange_n(word, &old, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    return old;
}

bool is_atomic_op(uint8_t op) {
    return op != 0 && (op & (op - 1)) == 0 &&
           op <= static_cast<uint8_t>(uct::AtomicOp::kCompareSwap);
}

void serve_atomic(OneSided& owner, const EmulatedAtomic& atomic, Payload rest) {
    if (!rest.empty() || !is_atomic_op(atomic.op) || (atomic.size != 4 && atomic.size != 8) ||
        atomic.to.address % atomic.size != 0) {
        ucs::log_warn("malformed atomic operation dropped");
        return;
    }
    void* target = find_memory(owner, atomic.to, atomic.size,
                               UCP_MEM_MAP_PROT_REMOTE_READ | UCP_MEM_MAP_PROT_REMOTE_WRITE);
    if (target == nullptr || device_of(target, atomic.size) != nullptr) {
        refuse(owner, atomic.from, atomic.request);
        return;
    }
    const uint64_t old = atomic.size == 4 ? execute(static_cast<uint32_t*>(target), atomic)
                                          : execute(static_cast<uint64_t*>(target), atomic);
    Endpoint* endpoint = owner.endpoints.find(atomic.from);
    if (endpoint == nullptr) return;
    const EmulatedAtomicReply reply{endpoint->local_uuid(), atomic.request, old};
    endpoint->send_control(AmId::kAtomicReply, std::as_bytes(std::span(&reply, 1)));
}

}  // namespace

void answer_operation(EndpointTable& endpoints, uint64_t to, uint64_t request,
                      ucs_status_t status) {
    Endpoint* const endpoint = endpoints.find(to);
    if (endpoint == nullptr) return;
    const EmulatedDone done{endpoint->local_uuid(), request, static_cast<int8_t>(status)};
    endpoint->send_control(AmId::kRmaAck, std::as_bytes(std::span(&done, 1)));
}

void add_emulation_target_handlers(OneSided& owner, InterfaceSet& interfaces) {
    interfaces.set_handler(AmId::kPut, on_request<EmulatedPut, serve_put>, &owner);
    interfaces.set_handler(AmId::kGetRequest, on_request<EmulatedGet, serve_get>, &owner);
    interfaces.set_handler(AmId::kAtomicRequest, on_request<EmulatedAtomic, serve_atomic>, &owner);
}

}  // namespace ucp

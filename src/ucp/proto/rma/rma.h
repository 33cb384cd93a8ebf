// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ucp/base/request.h"
#include "ucp/bulk/engine/engine.h"
#include "ucp/dt/datatype.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/mem/domain_set.h"
#include "ucp/mem/memory.h"
#include "ucp/mem/remote_memory.h"
#include "ucp/proto/rma/in_place.h"
#include "ucp/proto/rma/peer_copies.h"
#include "ucp/proto/rma/staged_puts.h"
#include "ucp/proto/rndv/direct.h"
#include "ucs/memory/detector.h"

// One-sided operations. Short ones on memory that is mapped here are done in place (in_place.h).
// The others go to the endpoint's one-sided lane, piece by piece, each piece by the way that suits
// its length on the lane of that moment: inline, through a bounce buffer, or from registered
// memory. Where a lane cannot do the operation it is emulated (emulation.h).

namespace ucp {

class OneSided;

// Bytes of a contiguous buffer. @return UCS_ERR_INVALID_PARAM for other datatypes
inline ucs_status_t one_sided_length(const OpParams& params, const void* buffer, size_t count,
                                     size_t* length) {
    *length = count;
    if (params.has(UCP_OP_ATTR_FIELD_DATATYPE)) {
        const ucp_datatype_t type = params.datatype();
        if (datatype_class(type) != DatatypeClass::kContig ||
            __builtin_mul_overflow(count, contig_element_size(type), length))
            return UCS_ERR_INVALID_PARAM;
    }
    return buffer != nullptr || *length == 0 ? UCS_OK : UCS_ERR_INVALID_PARAM;
}

// What a put or get is asked for with.
struct RmaArguments {
    bulk::Direction direction;
    std::byte* buffer;
    size_t length;
    uint64_t address;
    const RemoteMemory& remote;
    const Memory* user_memory;
    ucs_memory_type_t declared;
};

// The part of a put or get.
struct RmaOperation {
    OneSided* owner;
    bulk::Direction direction;
    std::byte* buffer;
    size_t length;
    uint64_t address;
    const RemoteMemory* remote;
    Memory* user_memory = nullptr;
    Memory* memory = nullptr;                // registration of our own
    size_t offset = 0;                       // bytes posted
    size_t arrived = 0;                      // emulated get: bytes of the reply
    bool no_registration = false;            // a device refused: copy
    std::optional<uint32_t> number = {};     // a flush waits for the answer, not for the lane
    ucs::StagedCopy* device_copy = nullptr;  // for a device's buffer; the operation is emulated
    uint64_t described = 0;                  // the buffer's allocation, that the target knows of
    std::optional<select::Protocol> route = {};  // what was learned says; nothing: the table does
    select::OneSidedTimes* times = nullptr;      // that hears of the request's end; null: none does

    // What a device's buffer was found to lie in; null: it is host memory.
    const ucs::MemoryInfo* found() const {
        return device_copy == nullptr ? nullptr : &device_copy->memory;
    }
};

// The memory that a key speaks of, if devices of this host may reach it by themselves; its owner is
// told at the first use. Null: they may not.
const ucs::MemoryExport* reach_directly(Endpoint& endpoint, const RemoteMemory& remote);

// The registration of the operation's buffer for the lane, made at need; null if there is none.
uct::MemoryHandle* registration(Request& request, const Lane& lane);

// --- atomics ---

struct AtomicArguments {
    uct::AtomicOp op;
    unsigned size;     // 4 or 8 bytes
    uint64_t operand;  // addend, mask, new value
    uint64_t compare;  // kCompareSwap only
    void* result;      // gets the old value, `size` bytes; null if it is not wanted
};

// @return UCS_ERR_INVALID_PARAM for a size or address that no atomic operation takes
ucs_status_t check_atomic(const AtomicArguments& arguments, uint64_t address);
// What an operation leaves in a word of `size` bytes.
uint64_t apply_atomic(uct::AtomicOp op, unsigned size, uint64_t old, uint64_t operand,
                      uint64_t compare);

// The one-sided operations of a worker, and those that it carries out for its peers.
class OneSided {
  public:
    OneSided(RequestPool& pool, EndpointTable& table, DomainSet& set, bulk::Engine& engine,
             DirectPath& path)
        : requests(pool),
          endpoints(table),
          domains(set),
          bulk(engine),
          direct(path),
          peer_copies_(pool, table, set) {}
    OneSided(const OneSided&) = delete;

    void add_handlers(InterfaceSet& interfaces);

    // A put, which only reads the buffer, or a get.
    template <bulk::Direction kDirection>
    ucs_status_ptr_t transfer(Endpoint& endpoint, void* buffer, size_t length, uint64_t address,
                              const RemoteMemory& remote, const OpParams& params);
    ucs_status_ptr_t atomic(Endpoint& endpoint, const AtomicArguments& arguments, uint64_t address,
                            const RemoteMemory& remote, const OpParams& params);

    // Without a handle: a flush tells the end. @return UCS_OK, UCS_INPROGRESS or an error
    template <bulk::Direction kDirection>
    ucs_status_t transfer_implicit(Endpoint& endpoint, void* buffer, size_t length,
                                   uint64_t address, const RemoteMemory& remote);
    ucs_status_t atomic_implicit(Endpoint& endpoint, const AtomicArguments& arguments,
                                 uint64_t address, const RemoteMemory& remote);

    // Done by this processor, in place (in_place.h)? If not, nothing has happened.
    template <bulk::Direction kDirection>
    [[gnu::always_inline]] bool is_done_in_place(Endpoint& endpoint, void* buffer, size_t length,
                                                 uint64_t address, const RemoteMemory& remote) {
        if constexpr (kDirection == bulk::Direction::kPut)
            return in_place::put(endpoint, buffer, length, address, remote);
        if (comes_to_progress() || !in_place::get(endpoint, buffer, length, address, remote))
            return false;
        ++operations_;
        return true;
    }
    template <typename Word>
    [[gnu::always_inline]] bool is_atomic_done_in_place(Endpoint& endpoint, uct::AtomicOp op,
                                                        Word operand, Word compare, void* result,
                                                        uint64_t address,
                                                        const RemoteMemory& remote) {
        const bool is_counted = result != nullptr;
        if (is_counted && comes_to_progress()) return false;
        if (!in_place::atomic(endpoint, op, operand, compare, result, address, remote))
            return false;
        if (is_counted) ++operations_;
        return true;
    }

    // Make a request a put or get; start it with Endpoint::submit() or start().
    // @return the error of a buffer that cannot be used (open_device_copy())
    ucs_status_t begin(Request& request, Endpoint& endpoint, RmaOperation operation,
                       ucs_memory_type_t declared = UCS_MEMORY_TYPE_UNKNOWN);

    // What it works with.
    RequestPool& requests;
    EndpointTable& endpoints;
    DomainSet& domains;
    ucp::bulk::Engine& bulk;
    DirectPath& direct;

    StagedPuts staged_puts;
    // The emulated put that was refused last.
    struct RefusedPut {
        uint64_t from = 0;  // uuid; 0: none
        uint64_t request = 0;

        bool is(uint64_t worker, uint64_t id) const { return from == worker && request == id; }
    } refused;

    // A peer asks for a copy by devices of this process.
    void serve_copy(const EmulatedGet& access, const CopyRequest& request) {
        peer_copies_.serve(access, request);
    }
    // Of those. @return how many have ended
    unsigned run_deferred() { return peer_copies_.run_deferred(); }

    // Submit an operation. Where operations are done when their call returns, a program that waits
    // for a word to change by nothing else, as locks of OpenSHMEM do, would never come to
    // ucp_worker_progress(), and its peers wait for it. So every kTurn-th of them is done, but says
    // so in the next progress only. Those with which nobody can wait are not counted: short puts,
    // and atomics in place whose result is not wanted.
    ucs_status_ptr_t submit(Endpoint& endpoint, Request& request, const OpParams& params);

  private:
    static constexpr uint32_t kTurn = 64;

    bool is_turn() { return ++operations_ % kTurn == 0; }
    // The next one is that of its turn: it needs a request. One that needs none is counted when it
    // is done.
    bool comes_to_progress() const { return (operations_ + 1) % kTurn == 0; }
    bool is_done_at_once(Endpoint& endpoint, const AtomicArguments& arguments, uint64_t address,
                         const RemoteMemory& remote);
    template <bulk::Direction kDirection>
    bool is_done_at_once(Endpoint& endpoint, void* buffer, size_t length, uint64_t address,
                         const RemoteMemory& remote);
    ucs_status_ptr_t start(Endpoint& endpoint, const RmaOperation& operation,
                           const OpParams& params);
    ucs_status_t start_implicit(Endpoint& endpoint, const RmaOperation& operation);
    // The short way of an operation that a device of this process does, which begins now.
    // @return null or false: not that way, and nothing has happened
    ucs_status_ptr_t start_direct(Endpoint& endpoint, const RmaArguments& rma,
                                  const OpParams& params);
    bool start_direct(Endpoint& endpoint, const RmaArguments& rma);
    bool begin_direct(Request& request, Endpoint& endpoint, const RmaArguments& rma);

    PeerCopies peer_copies_;
    uint32_t operations_ = 0;
};

// The part of an atomic operation.
//
// A lane whose device has the operation does it. Else, if the device can compare and swap 8 bytes,
// a loop of those on the 8-byte word around the operand does it, so that all operations on a word
// go through one device and are atomic among each other. Else it is emulated.
struct AtomicRequest {
    OneSided* owner;
    AtomicArguments arguments;
    uint64_t address;
    const RemoteMemory* remote;
    std::optional<uint32_t> number = {};  // a flush waits for the answer, not for the lane
    uint64_t guess = 0;                   // what the 8-byte word is believed to hold
    uint64_t found = 0;                   // where the device puts the old value
    void* device_result = nullptr;        // where `result` goes in the end
    uint64_t result = 0;                  // of the operation, for a device's memory
    struct Step : uct::Completion {
        Request* request = nullptr;
        uint32_t fence = 0;  // of a flush: that it was begun behind
    } step{};                // one compare-swap, or a flush
};

void set_atomic_result(const AtomicRequest& atomic, uint64_t value);

// A lane had no room for a step of the request: the worker's progress tries it again, past what
// waits on the endpoint. Ends the request if there is no memory for that.
template <void (*kStep)(Request& request)>
void try_in_progress(Request& request) {
    Request* const retry = request.pool->allocate();
    if (retry == nullptr) return request.complete(UCS_ERR_NO_MEMORY);
    retry->callback_kind = Request::CallbackKind::kInternal;
    retry->user_data = &request;
    retry->on_finish.internal = [](Request& self) {
        kStep(*static_cast<Request*>(self.user_data));
    };
    request.pool->finish_later(*retry, UCS_OK);
}

}  // namespace ucp

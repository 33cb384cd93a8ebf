// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "ucp/base/request.h"
#include "ucs/memory/detector.h"

// One-sided operations over lanes that lack them: the target's processor acts for the initiator.
// Requests are messages among the application's, in its order; answers to puts and atomics are
// control messages. Every access names the memory it goes to and is checked against it
// (AccessTable). The initiator's request ends with the answer, and a flush waits for it.
namespace ucp {

class EndpointTable;
class InterfaceSet;
class OneSided;

#pragma pack(push, 1)

// Whose memory, and where in it.
struct RemoteAccess {
    uint64_t identity;  // of the target's AccessTable
    uint64_t region;
    uint64_t address;
};

// kPut: the bytes that follow belong at the address; the last piece is acknowledged.
struct EmulatedPut {
    uint64_t from;     // uuid
    uint64_t request;  // the initiator's
    RemoteAccess to;
    uint8_t is_last;
};

// kGetRequest
struct EmulatedGet {
    uint64_t from;
    uint64_t request;
    RemoteAccess source;
    uint64_t length;
};

// kGetRequest, behind an EmulatedGet: the target's devices copy all of its bytes between the memory
// that it names and described memory of a device of the initiator's. To peers alone whose key says
// that they know it (kCopyKind, mem/packed_key.h). Answered by kRmaAck; UCS_ERR_NO_RESOURCE: there
// is no way to the described memory yet, UCS_ERR_UNSUPPORTED: there is none. Then the initiator
// goes on by the other messages.
struct CopyRequest {
    enum Direction : uint8_t {
        kPut,  // out of the described memory
        kGet,  // into it
    };
    uint8_t direction;
    ucs::MemoryExport there;
};
struct CopyMessage {
    EmulatedGet get;
    CopyRequest copy;
};

// kGetReply: bytes that belong at `offset` follow.
struct EmulatedGetReply {
    uint64_t from;
    uint64_t request;
    uint64_t offset;
};

// kAtomicRequest
struct EmulatedAtomic {
    uint64_t from;
    uint64_t request;
    RemoteAccess to;
    uint8_t op;    // uct::AtomicOp
    uint8_t size;  // 4 or 8
    uint64_t operand;
    uint64_t compare;
};

// kAtomicReply
struct EmulatedAtomicReply {
    uint64_t from;
    uint64_t request;
    uint64_t value;
};

// kRmaAck: a put, or a copy that was asked for, has been done, or an operation was refused.
struct EmulatedDone {
    uint64_t from;
    uint64_t request;
    int8_t status;
};

#pragma pack(pop)

// Ask the target's devices to copy all of a put or get, whose buffer is memory of a device; where
// they cannot, it goes by emulation.
void request_copy(Request& request);
// Go on by emulation: a put at the offset reached, a get from there on.
void emulate_rma(Request& request);
// The same for an atomic operation.
void emulate_atomic(Request& request);

// Tell an operation's initiator its end, if it has an endpoint here. @param to  its uuid
void answer_operation(EndpointTable& endpoints, uint64_t to, uint64_t request, ucs_status_t status);

void add_emulation_origin_handlers(OneSided& owner, InterfaceSet& interfaces);
void add_emulation_target_handlers(OneSided& owner, InterfaceSet& interfaces);

}  // namespace ucp

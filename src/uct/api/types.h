// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ucs/type/status.h"

// What every transport and its users share: attributes, buffers, completions.
namespace uct {

class Endpoint;
class MemoryHandle;

// How a transport connects, which decides its place in a family of lanes.
enum class Reach : uint8_t {
    kInterface,  // scalable: an endpoint needs the remote interface's address and no handshake
    kEndpoint,   // dedicated: both ends create an endpoint and exchange endpoint addresses
};

enum class DeviceType : uint8_t { kSelf, kSharedMemory, kNetwork, kAccelerator };

// Capability flags of an interface, combined in InterfaceAttributes::capabilities.
enum Capability : uint32_t {
    kAmShort = 1u << 0,
    kAmBcopy = 1u << 1,
    kAmZcopy = 1u << 2,
    kPutShort = 1u << 3,
    kPutBcopy = 1u << 4,
    kPutZcopy = 1u << 5,
    kGetBcopy = 1u << 6,
    kGetZcopy = 1u << 7,
    kAtomicDevice = 1u << 8,  // atomic among all adapters' atomics, not with the CPU's
    kAtomicCpu = 1u << 9,     // atomic with the CPU's own atomics as well
    kCheckPeer = 1u << 10,    // Endpoint::check() finds a dead peer
    kEventFd = 1u << 11,      // Interface::event_fd() and arm() work
    kPutChain = 1u << 12,     // bulk transfers: Endpoint::put_chain()
    kGetChain = 1u << 13,
    kOrderedChain = 1u << 14,  // what is posted behind a put_chain() arrives behind its bytes
    kImmediate = 1u << 15,     // Endpoint::put_chain_immediate() and deliver_immediates()
    kPieces = 1u << 16,        // Endpoint::put_pieces() and get_pieces()
    kCopies = 1u << 17,        // this processor moves what is put and got, in calls and in progress
    kJointCopies = 1u << 18,   // the peer's does its part of long copies, in its progress
    kJoinedChain = 1u << 19,   // pieces of a chain that follow each other are one operation
    kConnectable = 1u << 20,   // scalable: Interface::create_endpoint() without an address
};
inline constexpr size_t kLeastJointCopy = 128 * 1024;

// What is true of a transport wherever it runs, known without its driver: what to call it in
// UCX_TLS, how it connects, and what its interfaces can where device and settings permit. A
// constant of the transport, which its component lists.
struct TransportDeclaration {
    std::string_view name;  // "rc_mlx5"
    DeviceType device_type;
    Reach reach;
    uint32_t capabilities;                           // bits of Capability
    std::span<const std::string_view> aliases = {};  // words that mean it besides others: "rc"
    // Words that admit it only to bring up the dedicated transports that they mean.
    std::span<const std::string_view> auxiliary_for = {};
};

// Operations of the atomic calls; values are bits, for masks in InterfaceAttributes.
enum class AtomicOp : uint8_t {
    kAdd = 1u << 0,
    kAnd = 1u << 1,
    kOr = 1u << 2,
    kXor = 1u << 3,
    kSwap = 1u << 4,
    kCompareSwap = 1u << 5,
};

// A cost that grows with the number of endpoints in use: base + per_endpoint * n, in seconds.
struct LinearCost {
    double base = 0;
    double per_endpoint = 0;
    constexpr double at(size_t endpoints) const {
        return base + per_endpoint * static_cast<double>(endpoints);
    }
};

// Limits of one kind of operation, in bytes.
struct OperationLimits {
    size_t max_short = 0;   // payload that travels inside the work request (AM: after 8 of header)
    size_t max_bcopy = 0;   // payload copied through a bounce buffer, headers included
    size_t max_zcopy = 0;   // payload sent from registered memory
    size_t max_iov = 0;     // pieces of one zero-copy operation
    size_t max_header = 0;  // AM zero copy: header bytes besides the payload
    // AM: as max_bcopy, for bytes that can travel in no other way than copied. More than max_bcopy
    // where fewer, longer messages save calls of the system; 0: the same.
    size_t max_long_bcopy = 0;

    size_t longest_bcopy() const { return max_bcopy > max_long_bcopy ? max_bcopy : max_long_bcopy; }
};

struct InterfaceAttributes {
    std::string transport;  // "dc_mlx5", "self", ...
    std::string device;     // "mlx5_0:1", "memory", ...
    DeviceType device_type = DeviceType::kNetwork;
    Reach reach = Reach::kInterface;
    uint32_t capabilities = 0;  // bits of Capability
    uint8_t atomic32_ops = 0;   // bits of AtomicOp on 32-bit operands
    uint8_t atomic64_ops = 0;   // bits of AtomicOp on 64-bit operands
    OperationLimits am, put, get;
    size_t device_address_length = 0;
    size_t interface_address_length = 0;  // 0 for dedicated transports
    size_t endpoint_address_length = 0;   // 0 for scalable transports without kConnectable
    LinearCost latency;                   // one way, seconds
    double bandwidth = 0;                 // bytes per second
    double overhead = 0;                  // CPU seconds per message
    size_t max_endpoints = SIZE_MAX;
};

// Attributes of an interface of that transport, as far as its declaration tells them.
inline InterfaceAttributes attributes_of(const TransportDeclaration& transport) {
    InterfaceAttributes attributes;
    attributes.transport = transport.name;
    attributes.device_type = transport.device_type;
    attributes.reach = transport.reach;
    attributes.capabilities = transport.capabilities;
    return attributes;
}

// One piece of local memory in a zero-copy operation.
struct Iov {
    void* buffer;
    size_t length;
    const MemoryHandle* memory;  // registration that covers the piece; of this interface's domain
};

// A key to remote memory, as unpacked by MemoryDomain::unpack_remote_key().
using RemoteKey = uintptr_t;
inline constexpr RemoteKey kInvalidRemoteKey = ~RemoteKey{0};

// One piece of a bulk transfer: local memory, and where its bytes go to or come from.
struct ChainPiece {
    void* local;
    size_t length;
    const MemoryHandle* memory;  // registration that covers the local bytes
    uint64_t remote;
    RemoteKey key;
};

// Of Endpoint::put_pieces() and get_pieces(), in bytes.
inline constexpr size_t kLongestPiece = 64 * 1024;

// Tells that one or several operations are complete. Owned by the caller, alive until the callback.
//
// The caller sets `count` to the number of operations that it will start with it; each completion
// takes one off, and the callback runs, once, when none is left. `status` keeps the first error.
struct Completion {
    using Callback = void (*)(Completion* self);

    Callback callback = nullptr;
    int count = 0;
    ucs_status_t status = UCS_OK;

    void complete(ucs_status_t result) {
        if (result != UCS_OK && status == UCS_OK) status = result;
        if (--count == 0) callback(this);
    }
};

// Writes a message into a bounce buffer. Returns the bytes written, at most the limit.
using PackCallback = size_t (*)(void* destination, void* arg);

// Takes the data of a get_bcopy() out of a bounce buffer.
using UnpackCallback = void (*)(void* arg, const void* data, size_t length);

// A receive buffer that an active-message handler kept by returning UCS_INPROGRESS.
class ReceiveDescriptor {
  public:
    // Give the buffer back to its interface. Callable once, from the worker's thread.
    virtual void release() = 0;

  protected:
    ~ReceiveDescriptor() = default;
};

// Handles one active message.
//
// @param data        the message, aligned to 8 bytes, valid during the call, or until
// descriptor->release() if kept
// @param descriptor  how to keep the buffer; null if it cannot be kept
// @return UCS_OK when the data is no longer needed; UCS_INPROGRESS when the descriptor was kept
using AmHandler = ucs_status_t (*)(void* arg, void* data, size_t length,
                                   ReceiveDescriptor* descriptor);

inline constexpr unsigned kMaxAmId = 32;

// Takes the messages that arrive on a dedicated endpoint while its gate is closed.
//
// A promoted pair receives on the new lane before the old lane's last message is processed; the
// gate copies such messages out (so that no receive buffer is held) and replays them later. What
// has not reached a closed gate when its endpoint goes is dropped: messages of the old lane that
// belong before it may never come.
class ReceiveGate {
  public:
    virtual void hold(uint8_t id, const void* data, size_t length) = 0;

  protected:
    ~ReceiveGate() = default;
};

// Called when an endpoint can no longer deliver. Its outstanding operations complete on their own.
using ErrorHandler = void (*)(void* arg, Endpoint* endpoint, ucs_status_t status);

}  // namespace uct

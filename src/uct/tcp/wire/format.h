// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "ucs/net/mac.h"

// What travels on a connection, all of it little-endian.
//
// Whoever connects sends a Hello, proves to know the job's key when the Challenge comes, and waits
// for the Welcome, which proves the same of the other end; then both send frames. A frame is a
// FrameHeader, the fixed header of its type, its payload, and zeros up to a multiple of 8: so
// messages lie aligned in a receive buffer. Nothing here is trusted: a frame that breaks a rule
// ends the connection.
namespace uct::tcp::wire {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

inline constexpr uint32_t kMagic = 0x50544c53;  // "SLTP"
// The versions of the protocol that this library speaks.
inline constexpr uint16_t kVersion = 3;
inline constexpr uint16_t kOldestVersion = 3;
inline constexpr size_t kAlignment = 8;

constexpr size_t padding(size_t length) {
    return (kAlignment - length % kAlignment) % kAlignment;
}

using Secret = std::array<uint64_t, 2>;

// Between two interfaces.
inline constexpr unsigned kMaxConnections = 8;

// What Hello and Challenge begin with, in all versions from 3 on.
struct Preamble {
    uint32_t magic;
    uint16_t version;  // the newest that the sender speaks
    uint16_t oldest;   // the oldest
};
static_assert(sizeof(Preamble) == 8);

// The version that both ends speak; 0: none.
constexpr uint16_t common_version(uint16_t newest, uint16_t oldest) {
    const uint16_t version = newest < kVersion ? newest : kVersion;
    return version >= oldest && version >= kOldestVersion ? version : uint16_t{0};
}

// Later versions add nothing to it: what they have to say more follows the Challenge.
struct Hello {
    uint32_t magic;
    uint16_t version;
    uint16_t oldest;
    uint8_t connection;  // which of the connections between the two interfaces
    uint8_t reserved[3];
    uint32_t flags;     // of Flag; those that are not known are passed over
    uint64_t sender;    // id of the interface that connects
    uint64_t receiver;  // id of the interface that listens
    uint32_t max_frame;
    uint32_t association;  // the sender's Association: another one than before has forgotten the
                           //!< old connections
    uint32_t bulk_epoch;   // as in Cut
    // Of a connection that carries on a session (kResumes):
    uint32_t peer_association;  // the receiver's Association
    uint32_t attempt;           // counts up: an earlier one comes too late
    uint32_t reserved_too;
    uint64_t received;  // bytes of the receiver's stream that the sender has
    ucs::net::Nonce nonce;
};
static_assert(sizeof(Hello) == 96);

// In Hello and Welcome: what the sender can, and what it does.
enum Flag : uint8_t {
    kCanResume = 1,       // can carry on a session over another connection
    kManyWays = 2,        // and has more than one interface to do so
    kResumes = 4,         // does so with this connection
    kEncrypts = 8,        // in Hello: what follows the proof is to be encrypted
    kAnswersBursts = 16,  // acknowledges bursts of messages: others may be gathered behind
};

enum class Answer : uint8_t {
    kWelcome = 1,
    kYield = 2,         // both connected at once, and the other connection stays
    kMismatch = 3,      // the peer's messages may be longer than ours
    kCutOff = 4,        // what this association sends must not be written any more: begin anew
    kUnknown = 5,       // there is no such session
    kStale = 6,         // overtaken by what was agreed on meanwhile
    kProve = 7,         // of a Challenge: a proof is to follow
    kOtherVersion = 8,  // of a Challenge: there is no version that both speak
    kNoProof = 9,       // the proof is of another key
    kEncrypted = 10,    // of a Challenge: nobody is heard who does not encrypt
    kInClear = 11,      // of a Challenge: the sender does not encrypt
    kEncrypt = 12,      // the proof is good: TLS begins, and the Welcome comes in it
};

// The listener's answer to a Hello. It proves nothing yet: strangers learn nothing from it.
struct Challenge {
    uint32_t magic;
    uint16_t version;  // of an answer kProve: the one that counts from here on
    uint16_t oldest;
    Answer answer;
    uint8_t reserved[7];
    ucs::net::Nonce nonce;
};
static_assert(sizeof(Challenge) == 48);

// The answer to a Challenge: client_proof().
using Proof = ucs::net::Mac;

// What becomes of the connection.
struct Welcome {
    uint32_t magic;
    uint16_t version;
    uint8_t connection;
    Answer answer;
    uint32_t max_frame;
    uint32_t association;  // as in Hello
    uint64_t received;     // as in Hello
    uint8_t flags;
    uint8_t reserved[3];
    uint32_t attempt;  // the last of the sender's own, which counts no more
    // server_proof() of all before it. None of kNoProof, and where no session gives a key.
    ucs::net::Mac seal;
};
static_assert(sizeof(Welcome) == 64);

enum class FrameType : uint8_t {
    kMessage = 1,  // id: the active-message id; payload
    kPut,          // Put; payload
    kGet,          // Get
    kGetReply,     // Reply; payload of exactly the length that was asked for
    kAtomic,       // Atomic
    kAtomicReply,  // Reply, the old value
    kFlush,        // Reply (names the operation): answer when all before it are done
    kFlushReply,   // Reply
    kRefused,      // Refused: an operation of that endpoint broke the rules of memory access
                   //!< or, of kNobody, found no memory for its answer
    kLeave,        // the sender goes away in good order
    kRoutes,       // a Route for each way to the sender
    kCut,          // Cut: the sender has closed its bulk connections of earlier epochs
    kCutDone,      // Cut: so has the one who answers
    kHere,         // nothing: what was sent on this connection has come to somebody
};
inline constexpr auto kLastFrameType = FrameType::kHere;

inline constexpr uint16_t kMark = 0x6c77;
// Of a message behind which the sender's kernel may keep others until it is acknowledged.
inline constexpr uint16_t kBurstMark = kMark | 0x8000;

struct FrameHeader {
    uint32_t length;  // of fixed header and payload, without the zeros at the end
    FrameType type;
    uint8_t id;
    uint16_t mark;  // so that a reader that lost its place notices

    constexpr bool is_marked() const {
        return mark == kMark || (mark == kBurstMark && type == FrameType::kMessage);
    }
};
static_assert(sizeof(FrameHeader) == 8);

struct Put {
    uint64_t address;
    uint64_t key;
    uint32_t endpoint;  // the sender's, for Refused
    uint32_t reserved;
};

struct Get {
    uint64_t address;
    uint64_t key;
    uint32_t length;
    uint32_t endpoint;
    uint32_t operation;  // for the Reply
    uint32_t reserved;
};

struct Atomic {
    uint64_t address;
    uint64_t key;
    uint64_t operand;
    uint64_t compare;
    uint32_t endpoint;
    uint32_t operation;
    uint8_t code;  // uct::AtomicOp
    uint8_t size;
    uint8_t wants_reply;
    uint8_t reserved[5];
};
static_assert(sizeof(Put) == 24 && sizeof(Get) == 32 && sizeof(Atomic) == 48);

struct Reply {
    uint32_t operation;
    uint32_t reserved;
};

struct AtomicReply {
    Reply reply;
    uint64_t old_value;
};

struct Refused {
    uint32_t endpoint;   // kNobody: no rule was broken, there is no memory for the answer
    uint32_t operation;  // kNoOperation, or one that gets no other answer
};
inline constexpr uint32_t kNoOperation = ~uint32_t{0};
// No endpoint has this name.
inline constexpr uint32_t kNobody = 0;

// One way to connect to the sender: where its worker listens.
struct Route {
    std::array<std::byte, 26> device;  // DeviceAddress
    uint16_t port;
    uint32_t reserved;
};
static_assert(sizeof(Route) == 32);
inline constexpr size_t kMaxRoutes = 15;

// Bulk connections belong to an epoch of their association; one that gives them up begins the
// next.
struct Cut {
    uint32_t epoch;
    uint32_t reserved;
};
static_assert(sizeof(Cut) == 8);
static_assert(sizeof(Reply) == 8 && sizeof(AtomicReply) == 16 && sizeof(Refused) == 8);

// The longest frame header with fixed header: what a reader needs before it knows where payload
// goes.
inline constexpr size_t kMaxFixed = sizeof(FrameHeader) + sizeof(Atomic);

// Bytes of the fixed header of a type, and whether payload may follow.
struct Shape {
    size_t fixed;
    bool payload;
};
// By type, from kMessage on.
inline constexpr Shape kShapes[] = {
    {0, true},                     // kMessage
    {sizeof(Put), true},           // kPut
    {sizeof(Get), false},          // kGet
    {sizeof(Reply), true},         // kGetReply
    {sizeof(Atomic), false},       // kAtomic
    {sizeof(AtomicReply), false},  // kAtomicReply
    {sizeof(Reply), false},        // kFlush
    {sizeof(Reply), false},        // kFlushReply
    {sizeof(Refused), false},      // kRefused
    {0, false},                    // kLeave
    {0, true},                     // kRoutes
    {sizeof(Cut), false},          // kCut
    {sizeof(Cut), false},          // kCutDone
    {0, false},                    // kHere
};
static_assert(std::size(kShapes) == static_cast<size_t>(kLastFrameType));
constexpr Shape shape_of(FrameType type) {
    const size_t index = static_cast<size_t>(type) - 1;
    return index < std::size(kShapes) ? kShapes[index] : Shape{0, false};
}

// The longest payload of a put or a get reply.
inline constexpr uint32_t kMaxPayload = 1u << 30;

// Is this the header of a frame that a peer may send?
constexpr bool is_sound(const FrameHeader& frame, size_t max_message) {
    if (!frame.is_marked() || frame.type < FrameType::kMessage || frame.type > kLastFrameType)
        return false;
    const Shape shape = shape_of(frame.type);
    if (!shape.payload) return frame.length == shape.fixed && frame.id == 0;
    if (frame.type == FrameType::kMessage) return frame.length <= max_message;
    if (frame.type == FrameType::kRoutes) {
        return frame.length <= kMaxRoutes * sizeof(Route) && frame.length % sizeof(Route) == 0 &&
               frame.id == 0;
    }
    return frame.length >= shape.fixed && frame.length - shape.fixed <= kMaxPayload &&
           frame.id == 0;
}

}  // namespace uct::tcp::wire

namespace uct::tcp {

// A frame's header with the fixed header of its type.
template <typename Body>
struct Head {
    wire::FrameHeader frame;
    Body body;
};

// @param payload  bytes that follow
template <typename Body>
Head<Body> head_of(wire::FrameType type, const Body& body, size_t payload) {
    return {{static_cast<uint32_t>(sizeof(Body) + payload), type, 0, wire::kMark}, body};
}

template <typename T>
T read_as(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
}

}  // namespace uct::tcp

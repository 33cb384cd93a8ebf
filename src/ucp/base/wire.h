// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "uct/api/interface.h"

// What travels between workers: the active-message ids of the transports' tables, and the headers
// of the eager messages. Little-endian, packed, on hosts that are little-endian themselves. A
// receiver checks the length of every message against its header before it reads.
namespace ucp {

enum class AmId : uint8_t {
    // eager, tag matching (proto/tag)
    kTagShort = 0,    // header: the tag; the rest is the payload
    kTagFirst = 1,    // TagFirstHeader
    kTagSync = 2,     // TagSyncHeader: single message whose receiver acknowledges
    kTagSyncAck = 3,  // SyncAckHeader
    kFragment = 4,    // FragmentHeader: a later fragment of any message (proto/eager/reassembly)
    // active messages of the user (proto/am)
    kAmShort = 5,   // AmHeader, user payload, no user header
    kAmSingle = 6,  // AmSingleHeader, payload, user header
    kAmFirst = 7,   // AmFirstHeader, payload, user header
    // rendezvous (proto/rndv)
    kRndvRts = 8,
    kRndvAts = 9,
    kRndvRtr = 10,
    kRndvAtp = 11,
    kRndvData = 12,
    kRndvAmRts = 13,
    kMemoryNews = 15,  // MemoryNews: of device memory that was described
    // byte streams (proto/stream)
    kStream = 14,  // StreamHeader, bytes of the stream
    // emulated one-sided operations (proto/rma/emulation)
    kPut = 16,
    kGetRequest = 17,
    kGetReply = 18,
    kAtomicRequest = 19,
    kAtomicReply = 20,
    kRmaAck = 21,
    // batches (bulk/)
    kNotify = 22,  // NotifyMessage
    // between workers
    kReset = 23,   // ResetHeader: the sender's endpoint to this worker has failed
    kHello = 24,   // HelloHeader, the sender's worker address
    kLane = 25,    // LaneHeader, an encoded lanes::Message
    kMarker = 26,  // LaneHeader, an encoded lanes::Message that takes its place among data
    // bulk transfers (bulk/engine/revocation_message.h)
    kBulkRevoke = 27,      // RevokeHeader, addresses
    kBulkRevokeDone = 28,  // RevokeDoneMessage
    kBulkQueuePair = 29,   // QueuePairHeader, QueuePairMessage (bulk/queue_pairs)
    // between workers
    kOrdered = 30,  // OrderedHeader, then the message that it goes before
    kTook = 31,     // TookMessage (proto/match/message_times.h)
};

#pragma pack(push, 1)

// Which message a fragment belongs to: unique among all that a receiver can get.
struct MessageId {
    uint64_t sender;  // uuid of the sending worker
    uint64_t number;  // counts up in that worker; or kStamped, and the stamp
};
// In a message's number, instead of a field of its own: it is timed, as TagFirstHeader says.
inline constexpr uint64_t kStamped = uint64_t{1} << 63;

struct TagFirstHeader {
    uint64_t tag;
    MessageId id;
    uint64_t total;         // bytes of the whole message
    uint64_t sync_request;  // 0, or the sender's request to name in the acknowledgement
    uint64_t stamp;         // 0, or what the receiver's time is to be told with (kTook)
};

struct TagSyncHeader {
    uint64_t tag;
    uint64_t sender;  // uuid, to answer
    uint64_t sync_request;
};

struct SyncAckHeader {
    uint64_t request;
};

struct FragmentHeader {
    MessageId id;
    uint64_t offset;  // of the payload in the message
};

struct AmHeader {
    uint16_t id;
    uint16_t flags;
    uint32_t header_length;  // of the user's header
};

struct AmSingleHeader {
    AmHeader am;
    uint64_t sender;  // uuid if the flags say that a reply is wanted
};

struct AmFirstHeader {
    AmHeader am;
    MessageId id;
    uint64_t total;  // bytes of payload, without the user's header
};

struct StreamHeader {
    uint64_t stream;  // the receiver's name for it, else the uuid of the sending worker
};

struct HelloHeader {
    uint64_t sender;
};

struct LaneHeader {
    uint64_t sender;
};

struct ResetHeader {
    uint64_t sender;
};

// Of a message on the scalable lane whose place is behind DMARK of that round
// (docs/design/lanes.md).
struct OrderedHeader {
    uint64_t sender;  // uuid of the sending worker
    uint32_t epoch;
    uint8_t id;         // AmId of the message
    uint8_t unused[3];  // the message stays aligned to 8 bytes
};

#pragma pack(pop)

// A message of a fixed header and bytes behind it. @return false if it is too short
template <typename Header>
bool read_header(const void* data, size_t length, Header* header,
                 std::span<const std::byte>* rest) {
    if (length < sizeof(Header)) return false;
    std::memcpy(header, data, sizeof(Header));
    *rest = {static_cast<const std::byte*>(data) + sizeof(Header), length - sizeof(Header)};
    return true;
}

// The same of a message that is nothing else. @return false if it is of another length
template <typename Message>
bool read_whole(const void* data, size_t length, Message* message) {
    std::span<const std::byte> rest;
    return read_header(data, length, message, &rest) && rest.empty();
}

// Send bytes as a message that is copied. @return as uct::Endpoint::am_short()
inline ucs_status_t post_bytes(uct::Endpoint& lane, AmId id, std::span<const std::byte> message) {
    const auto pack = [](void* destination, void* arg) {
        const auto bytes = *static_cast<std::span<const std::byte>*>(arg);
        if (!bytes.empty()) std::memcpy(destination, bytes.data(), bytes.size());
        return bytes.size();
    };
    const ssize_t sent = lane.am_bcopy(static_cast<uint8_t>(id), pack, &message);
    return sent < 0 ? static_cast<ucs_status_t>(sent) : UCS_OK;
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ucp/lanes/score.h"
#include "ucs/type/status.h"

namespace ucp::lanes {

inline constexpr std::uint8_t kProtocolVersion = 2;
inline constexpr std::size_t kMaxLaneAddress = 1024;
inline constexpr std::size_t kMaxMessageSize = 64 + kMaxLaneAddress;

enum class MessageType : std::uint8_t {
    kScore = 1,
    kRequest,
    kAccept,
    kDeny,
    kWithdraw,
    kLane,
    kReady,
    kMark,
    kMarkAck,
    kDmark,
    kDmarkAck,
    kFlushed,
    kPing,
    kPong,
    kGone,
};
inline constexpr MessageType kLastMessageType = MessageType::kGone;

enum class DenyReason : std::uint8_t {
    kBusy = 1,   // no slot or victim just now; no threshold
    kOutranked,  // floor says what to beat
    kRefused,    // this end never takes the link as things stand: cap 0, closing, told to stay
                 // scalable
};

enum class WithdrawReason : std::uint8_t { kNoLane = 1, kNoAnswer, kClosing, kPolicy };

// Names a round of a link; see docs/design/lanes.md. 0 is no round.
using Epoch = std::uint32_t;
// Named by a PING that asks for an answer alone: whoever gets it is not in that one.
inline constexpr Epoch kNoRound = 1;

// One control message. Fields that a type does not carry keep their defaults.
struct Message {
    MessageType type = MessageType::kPing;
    Epoch epoch = 0;
    Score local = 0;  // what its sender measures or wants
    Score estimate = 0;
    Rank floor;
    Epoch kept = 0;  // a lane that served that round is kept; 0: none
    DenyReason deny = DenyReason::kBusy;
    WithdrawReason withdraw = WithdrawReason::kNoLane;
    std::uint32_t window = 0;
    std::vector<std::uint8_t> address;

    bool operator==(const Message&) const = default;
};

const char* name(MessageType type);
const char* name(DenyReason reason);
const char* name(WithdrawReason reason);

// Bytes that encode() writes.
std::size_t encoded_size(const Message& message);

// Writes `message` and returns its size, or 0 if `out` is too short or the address too long.
std::size_t encode(const Message& message, std::span<std::uint8_t> out);

// Reads exactly one message that fills `in`. UCS_ERR_INVALID_PARAM, with `message` unspecified, for
// anything that encode() does not write: versions, types, lengths, ranges, trailing bytes. An
// address that there is no memory for is left empty, as one that leads nowhere.
ucs_status_t decode(std::span<const std::uint8_t> in, Message& message);

}  // namespace ucp::lanes

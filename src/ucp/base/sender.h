// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "ucp/base/wire.h"
#include "uct/api/types.h"

// Who a message says that it is from. That is a claim of the sender's, like all that is in it:
// where the transport knows better, InterfaceSet compares the two before any handler sees the
// message.
namespace ucp {

namespace internal {

inline constexpr int8_t kNoSender = -1;

// Where in the messages of each id the uuid of the sending worker stands.
inline constexpr auto kSenderOffsets = [] {
    std::array<int8_t, uct::kMaxAmId> offsets{};
    offsets.fill(kNoSender);
    for (const AmId id :
         {AmId::kFragment, AmId::kPut, AmId::kGetRequest, AmId::kGetReply, AmId::kAtomicRequest,
          AmId::kAtomicReply, AmId::kRmaAck, AmId::kNotify, AmId::kReset, AmId::kHello, AmId::kLane,
          AmId::kMarker, AmId::kBulkRevoke, AmId::kBulkRevokeDone, AmId::kBulkQueuePair,
          AmId::kOrdered, AmId::kTook, AmId::kMemoryNews})
        offsets[static_cast<size_t>(id)] = 0;
    for (const AmId id :
         {AmId::kTagFirst, AmId::kTagSync, AmId::kAmSingle, AmId::kAmFirst, AmId::kRndvRts,
          AmId::kRndvAmRts, AmId::kRndvAts, AmId::kRndvRtr, AmId::kRndvAtp, AmId::kRndvData})
        offsets[static_cast<size_t>(id)] = 8;
    return offsets;
}();

}  // namespace internal

// Bit i: messages of id i name their sender.
constexpr uint32_t ids_with_claims() {
    uint32_t ids = 0;
    for (unsigned id = 0; id < uct::kMaxAmId; ++id) {
        if (internal::kSenderOffsets[id] != internal::kNoSender) ids |= 1u << id;
    }
    return ids;
}

// The uuid of the worker that the message names as its sender; nothing if it names none.
inline std::optional<uint64_t> claimed_sender(AmId id, std::span<const std::byte> message) {
    const int8_t offset = internal::kSenderOffsets[static_cast<size_t>(id) % uct::kMaxAmId];
    uint64_t sender;
    if (offset == internal::kNoSender || message.size() < offset + sizeof(sender)) return {};
    std::memcpy(&sender, message.data() + offset, sizeof(sender));
    return sender;
}

}  // namespace ucp

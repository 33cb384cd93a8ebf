// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "ucs/net/key_pair.h"
#include "uct/api/interface.h"

namespace uct::ib {

// By what the two workers of a pair know each other's messages: a number that each message from
// one to the other begins with, and that only these two know. 56 bits: the id of the message is in
// the highest ones of the same word.
struct DcTokens {
    static constexpr unsigned kBits = 56;
    static constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;

    uint64_t outgoing;  // of messages to the other one
    uint64_t incoming;

    static uint64_t name(uint64_t token) { return peer_name(NameKind::kDc, token << 8); }
};

// A worker's keys. Its interfaces tell the public one in their addresses, and what two workers know
// without a message is a token each way, whichever adapters a message leaves and arrives by.
class DcKeys {
  public:
    // Throws std::bad_alloc: without a key of its own a worker would be a stranger to all.
    DcKeys();

    const ucs::net::PublicKey& public_key() const { return keys_.public_key(); }
    // Of the worker with that key; computed, or known from not long ago. Throws std::bad_alloc.
    DcTokens tokens_of(const ucs::net::PublicKey& theirs);

  private:
    static constexpr size_t kRecent = 64;
    struct Known {
        ucs::net::PublicKey key{};
        DcTokens tokens{};
    };

    const ucs::net::KeyPair keys_;
    std::array<Known, kRecent> known_{};
};

// Whose the messages are that arrive on a target, to which anybody may send.
class DcSenders {
  public:
    // Who sends with that token. The reference lives until the next call.
    PeerIdentity& sender(uint64_t token) {
        const Recent& recent = recent_[token % kRecent];
        return recent.sender != nullptr && recent.token == token ? *recent.sender
                                                                 : sender_slow(token);
    }

  private:
    static constexpr size_t kRecent = 64;
    // A token costs who invents it nothing: more of them than that are not kept.
    static constexpr size_t kMaxSenders = 65536;
    struct Recent {
        uint64_t token = 0;
        PeerIdentity* sender = nullptr;
    };

    PeerIdentity& sender_slow(uint64_t token);

    std::unordered_map<uint64_t, PeerIdentity> senders_;  // by token
    std::array<Recent, kRecent> recent_{};
    PeerIdentity passing_{};  // one that there was no memory to keep
};

}  // namespace uct::ib

// SPDX-License-Identifier: BSD-3-Clause
#include "uct/ib/dc/dc_senders.h"

#include <new>

#include "ucs/net/mac.h"
#include "ucs/runtime/runtime.h"

namespace uct::ib {

namespace {

// Of messages from the owner of one key to that of the other.
uint64_t token(const ucs::net::SharedSecret& secret, const ucs::net::PublicKey& from,
               const ucs::net::PublicKey& to) {
    const auto mac =
        ucs::net::MacWriter(secret).add("swiftlane dc sender").add(from).add(to).end_if_possible();
    if (!mac) throw std::bad_alloc();
    uint64_t bits;
    std::memcpy(&bits, mac->data(), sizeof(bits));
    return bits & DcTokens::kMask;
}

}  // namespace

DcKeys::DcKeys() {
    if (!keys_.has_key() && ucs::net::can_authenticate()) throw std::bad_alloc();
}

DcTokens DcKeys::tokens_of(const ucs::net::PublicKey& theirs) {
    uint64_t place;
    std::memcpy(&place, theirs.data(), sizeof(place));
    Known& known = known_[place % kRecent];
    if (known.key == theirs && known.tokens.outgoing != 0) return known.tokens;
    const auto secret = keys_.share_with(theirs);
    // Whoever has no proper key is a stranger.
    if (!secret) return {ucs::unique_id() & DcTokens::kMask, ucs::unique_id() & DcTokens::kMask};
    known = {theirs, {token(*secret, public_key(), theirs), token(*secret, theirs, public_key())}};
    return known.tokens;
}

PeerIdentity& DcSenders::sender_slow(uint64_t token) {
    if (senders_.size() == kMaxSenders && !senders_.contains(token)) {
        // Names are made of tokens: what is known of a sender that is dropped is found again.
        senders_.clear();
        recent_ = {};
    }
    PeerIdentity named{.name = DcTokens::name(token)};
    try {
        PeerIdentity& sender = senders_.try_emplace(token, named).first->second;
        recent_[token % kRecent] = {token, &sender};
        return sender;
    } catch (const std::bad_alloc&) {
        passing_ = named;
        return passing_;
    }
}

}  // namespace uct::ib

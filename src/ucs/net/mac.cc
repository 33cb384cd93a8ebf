// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/net/mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>

#include "ucs/runtime/runtime.h"

namespace ucs::net {

namespace {

const uint8_t* message_octets(std::span<const std::byte> bytes) {
    return reinterpret_cast<const uint8_t*>(bytes.data());
}

}  // namespace

Nonce new_nonce() {
    std::array<uint64_t, sizeof(Nonce) / sizeof(uint64_t)> words;
    for (uint64_t& word : words) word = ucs::unique_id();
    Nonce nonce;
    std::memcpy(nonce.data(), words.data(), sizeof(nonce));
    return nonce;
}

MacWriter& MacWriter::add(std::span<const std::byte> bytes) {
    message_.insert(message_.end(), bytes.begin(), bytes.end());
    return *this;
}

std::optional<Mac> MacWriter::end_if_possible() {
    Mac mac;
    unsigned length = 0;
    const unsigned char* const done =
        HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), message_octets(message_),
             message_.size(), reinterpret_cast<unsigned char*>(mac.data()), &length);
    return done != nullptr && length == mac.size() ? std::optional(mac) : std::nullopt;
}

bool are_equal(const Mac& left, const Mac& right) {
    return CRYPTO_memcmp(left.data(), right.data(), left.size()) == 0;
}

}  // namespace ucs::net

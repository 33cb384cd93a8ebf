// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/net/mac.h"

#include <nettle/memops.h>

#include <cstring>

#include "ucs/runtime/runtime.h"

namespace ucs::net {

namespace {

const uint8_t* octets(std::span<const std::byte> bytes) {
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

MacWriter::MacWriter(std::span<const std::byte> key) {
    hmac_sha256_set_key(&context_, key.size(), octets(key));
}

MacWriter& MacWriter::add(std::span<const std::byte> bytes) {
    hmac_sha256_update(&context_, bytes.size(), octets(bytes));
    return *this;
}

Mac MacWriter::end() {
    Mac mac;
    hmac_sha256_digest(&context_, mac.size(), reinterpret_cast<uint8_t*>(mac.data()));
    return mac;
}

bool are_equal(const Mac& left, const Mac& right) {
    return memeql_sec(left.data(), right.data(), left.size()) != 0;
}

}  // namespace ucs::net

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

struct evp_pkey_st;

namespace ucs::net {

// What others may know of a KeyPair.
using PublicKey = std::array<std::byte, 32>;
// What two know, each by its own key pair and the other's public key, and nobody else.
using SharedSecret = std::array<std::byte, 32>;

// Keys of X25519 (RFC 7748), made at random, that live as long as the object. One thread.
class KeyPair {
  public:
    KeyPair();
    ~KeyPair();
    KeyPair(KeyPair&&) = delete;

    const PublicKey& public_key() const { return public_key_; }
    // Whether there is one: not without memory, or if the cryptographic library refuses.
    bool has_key() const { return key_ != nullptr; }
    // Takes some 50 us. Throws std::bad_alloc.
    // @return nothing: there is no key, or `theirs` is none
    std::optional<SharedSecret> share_with(const PublicKey& theirs) const;

  private:
    struct Free {
        void operator()(evp_pkey_st* key) const;
    };
    std::unique_ptr<evp_pkey_st, Free> key_;  // null: the cryptographic library refused
    PublicKey public_key_{};
};

// Whether keys and Macs can be made. OpenSSL starts at its first use, and where that finds no
// memory it does not start again: so this comes first. Any thread; tries it all once, in about a
// millisecond.
bool can_authenticate();

}  // namespace ucs::net

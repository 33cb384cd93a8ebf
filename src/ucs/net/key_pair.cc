// SPDX-License-Identifier: BSD-3-Clause
#include "ucs/net/key_pair.h"

#include <openssl/evp.h>

#include <atomic>
#include <new>

#include "ucs/net/mac.h"

namespace ucs::net {

namespace {

const unsigned char* octets(const std::byte* bytes) {
    return reinterpret_cast<const unsigned char*>(bytes);
}

unsigned char* octets(std::byte* bytes) {
    return reinterpret_cast<unsigned char*>(bytes);
}

struct FreeContext {
    void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};

}  // namespace

void KeyPair::Free::operator()(evp_pkey_st* key) const {
    EVP_PKEY_free(key);
}

KeyPair::KeyPair() {
    const Nonce secret = new_nonce();
    key_.reset(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, octets(secret.data()),
                                            secret.size()));
    size_t length = public_key_.size();
    if (key_ != nullptr &&
        EVP_PKEY_get_raw_public_key(key_.get(), octets(public_key_.data()), &length) != 1) {
        key_.reset();
    }
}

KeyPair::~KeyPair() = default;

std::optional<SharedSecret> KeyPair::share_with(const PublicKey& theirs) const {
    if (!has_key()) return std::nullopt;
    const std::unique_ptr<EVP_PKEY, Free> peer(EVP_PKEY_new_raw_public_key(
        EVP_PKEY_X25519, nullptr, octets(theirs.data()), theirs.size()));
    const std::unique_ptr<EVP_PKEY_CTX, FreeContext> context(EVP_PKEY_CTX_new(key_.get(), nullptr));
    // The library that has made the one key makes the other, of any bytes.
    const bool is_ready = peer != nullptr && context != nullptr &&
                          EVP_PKEY_derive_init(context.get()) == 1 &&
                          EVP_PKEY_derive_set_peer(context.get(), peer.get()) == 1;
    if (!is_ready) throw std::bad_alloc();
    SharedSecret secret;
    size_t length = secret.size();
    // Points of small order, with which the secret would be known to all, are refused.
    const bool is_done = EVP_PKEY_derive(context.get(), octets(secret.data()), &length) == 1 &&
                         length == secret.size();
    return is_done ? std::optional(secret) : std::nullopt;
}

bool can_authenticate() try {
    static std::atomic<bool> has_worked = false;
    if (has_worked) return true;
    const KeyPair one, other;
    const auto here = one.share_with(other.public_key()),
               there = other.share_with(one.public_key());
    if (!here || here != there) return false;
    // A Mac that could not be made is never the same twice.
    const auto mac = [&] { return MacWriter(*here).add("a text").end(); };
    has_worked = are_equal(mac(), mac());
    return has_worked;
} catch (const std::bad_alloc&) {
    return false;
}

}  // namespace ucs::net

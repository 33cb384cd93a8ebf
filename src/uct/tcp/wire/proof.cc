// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/wire/proof.h"

#include <cstddef>

namespace uct::tcp::wire {

namespace {

// Tell the directions apart: no proof can be sent back to who made it.
constexpr std::string_view kClient = "swiftlane tcp client", kServer = "swiftlane tcp server";
constexpr std::string_view kKey = "swiftlane tcp key", kSession = "swiftlane tcp session",
                           kEncryption = "swiftlane tcp tls";

}  // namespace

Key key_of(const Secret& listener, std::string_view job_key) {
    return ucs::net::MacWriter(job_key).add(kKey).add_object(listener).end();
}

Key session_key(const Key& key, const Hello& hello, const Challenge& challenge) {
    return ucs::net::MacWriter(key).add(kSession).add_object(hello).add_object(challenge).end();
}

Key encryption_key(const Key& key, const Hello& hello, const Challenge& challenge) {
    return ucs::net::MacWriter(key).add(kEncryption).add_object(hello).add_object(challenge).end();
}

Proof client_proof(const Key& key, const Hello& hello, const Challenge& challenge) {
    return ucs::net::MacWriter(key).add(kClient).add_object(hello).add_object(challenge).end();
}

ucs::net::Mac server_proof(const Key& key, const Hello& hello, const Challenge& challenge,
                           const Welcome& welcome) {
    const auto content = std::as_bytes(std::span(&welcome, 1)).first(offsetof(Welcome, seal));
    return ucs::net::MacWriter(key)
        .add(kServer)
        .add_object(hello)
        .add_object(challenge)
        .add(content)
        .end();
}

}  // namespace uct::tcp::wire

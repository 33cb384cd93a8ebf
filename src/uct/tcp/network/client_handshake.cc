// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/client_handshake.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace uct::tcp {

namespace {

constexpr const char* kNotEncrypted =
    "this worker encrypts and it does not: UCX_TCP_ENCRYPT must be the same everywhere";

}  // namespace

bool ClientHandshake::begin(SocketStream& stream, const wire::Hello& hello, const wire::Key& key,
                            std::shared_ptr<TlsContext> encryption) {
    key_ = key;
    hello_ = hello;
    hello_.nonce = ucs::net::new_nonce();
    encryption_ = std::move(encryption);
    if (encryption_ != nullptr) hello_.flags |= wire::kEncrypts;
    due_ = Due::kChallenge;
    received_ = 0;
    return stream.say(hello_);
}

// @return false unless the message is all here; then what is to be said of it
bool ClientHandshake::receive(SocketStream& stream, void* message, size_t length, State* state) {
    const ssize_t got =
        stream.receive(static_cast<std::byte*>(message) + received_, length - received_);
    if (got == 0) errno = 0;
    *state = State::kUnderWay;
    if (got <= 0) {
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) *state = State::kBroken;
        return false;
    }
    received_ += static_cast<size_t>(got);
    if (received_ < length) return false;
    received_ = 0;
    return true;
}

ClientHandshake::State ClientHandshake::refused(std::string reason) {
    reason_ = std::move(reason);
    return State::kRefused;
}

ClientHandshake::State ClientHandshake::challenged(SocketStream& stream) {
    if (challenge_.magic != wire::kMagic) return refused("it speaks another protocol");
    if (challenge_.answer == wire::Answer::kEncrypted) {
        return refused(
            "it encrypts and this worker does not: UCX_TCP_ENCRYPT must be the same "
            "everywhere");
    }
    if (challenge_.answer == wire::Answer::kInClear) return refused(kNotEncrypted);
    if (challenge_.answer != wire::Answer::kProve ||
        wire::common_version(challenge_.version, challenge_.oldest) != challenge_.version) {
        return refused(fmt::format(
            "it speaks versions {} to {} of the protocol and this library {} to {}: "
            "use one version of the library everywhere",
            challenge_.oldest, challenge_.version, wire::kOldestVersion, wire::kVersion));
    }
    const wire::Proof proof = wire::client_proof(key_, hello_, challenge_);
    due_ = Due::kWelcome;
    return stream.say(proof) ? State::kUnderWay : State::kBroken;
}

ClientHandshake::State ClientHandshake::encrypt(SocketStream& stream) {
    due_ = Due::kTls;
    const wire::Key key = wire::encryption_key(key_, hello_, challenge_);
    if (!stream.encrypt(encryption_, Tls::Side::kConnects, key)) {
        errno = ENOMEM;
        return State::kBroken;
    }
    return negotiate(stream);
}

ClientHandshake::State ClientHandshake::negotiate(SocketStream& stream) {
    switch (stream.tls()->negotiate()) {
        case Tls::State::kUnderWay:
            return State::kUnderWay;
        case Tls::State::kStands:
            due_ = Due::kWelcome;
            return read(stream);  // it may have come together with the end of the handshake
        case Tls::State::kRefused:
            return refused(fmt::format("no encryption is agreed on ({})", stream.tls()->reason()));
        case Tls::State::kBroken:
            break;
    }
    return State::kBroken;
}

ClientHandshake::State ClientHandshake::welcomed(SocketStream& stream) {
    if (welcome_.magic != wire::kMagic || welcome_.version != challenge_.version) {
        return refused("it breaks the protocol");
    }
    if (welcome_.answer == wire::Answer::kNoProof) {
        return refused(
            "it does not accept this worker: UCX_TCP_JOB_KEY must be the same in all "
            "processes of a job");
    }
    // Who does not know the session cannot prove anything of it.
    const bool is_resumed = (hello_.flags & wire::kResumes) != 0;
    if (is_resumed && welcome_.answer == wire::Answer::kUnknown) return State::kOver;
    if (!ucs::net::are_equal(welcome_.seal,
                             wire::server_proof(key_, hello_, challenge_, welcome_))) {
        return refused("it cannot prove to be of this job");
    }
    const bool is_encrypted = stream.tls() != nullptr;
    if (encryption_ != nullptr && !is_encrypted) {
        return welcome_.answer == wire::Answer::kEncrypt ? encrypt(stream) : refused(kNotEncrypted);
    }
    return State::kOver;
}

ClientHandshake::State ClientHandshake::read(SocketStream& stream) {
    State state;
    switch (due_) {
        case Due::kChallenge:
            return receive(stream, &challenge_, sizeof(challenge_), &state) ? challenged(stream)
                                                                            : state;
        case Due::kTls:
            return negotiate(stream);
        case Due::kWelcome:
            break;
    }
    return receive(stream, &welcome_, sizeof(welcome_), &state) ? welcomed(stream) : state;
}

}  // namespace uct::tcp

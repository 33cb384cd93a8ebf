// SPDX-License-Identifier: BSD-3-Clause
#include "uct/tcp/network/greeting.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace uct::tcp {

bool Greeting::begin(ucs::net::Socket& socket, const wire::Hello& hello, const wire::Key& key) {
    key_ = key;
    hello_ = hello;
    hello_.nonce = ucs::net::new_nonce();
    has_proved_ = false;
    received_ = 0;
    return socket.send(&hello_, sizeof(hello_)) == sizeof(hello_);
}

/** @return false unless the message is all here; then what is to be said of it */
bool Greeting::receive(ucs::net::Socket& socket, void* message, size_t length, State* state) {
    const ssize_t got =
        socket.receive(static_cast<std::byte*>(message) + received_, length - received_);
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

Greeting::State Greeting::refused(std::string reason) {
    reason_ = std::move(reason);
    return State::kRefused;
}

Greeting::State Greeting::challenged(ucs::net::Socket& socket) {
    if (challenge_.magic != wire::kMagic) return refused("it speaks another protocol");
    if (challenge_.answer != wire::Answer::kProve ||
        wire::common_version(challenge_.version, challenge_.oldest) != challenge_.version) {
        return refused(fmt::format(
            "it speaks versions {} to {} of the protocol and this library {} to {}: "
            "use one version of the library everywhere",
            challenge_.oldest, challenge_.version, wire::kOldestVersion, wire::kVersion));
    }
    const wire::Proof proof = wire::client_proof(key_, hello_, challenge_);
    has_proved_ = true;
    return socket.send(&proof, sizeof(proof)) == sizeof(proof) ? State::kUnderWay : State::kBroken;
}

Greeting::State Greeting::welcomed() {
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
    return State::kOver;
}

Greeting::State Greeting::read(ucs::net::Socket& socket) {
    State state;
    if (!has_proved_) {
        if (!receive(socket, &challenge_, sizeof(challenge_), &state)) return state;
        return challenged(socket);
    }
    if (!receive(socket, &welcome_, sizeof(welcome_), &state)) return state;
    return welcomed();
}

}  // namespace uct::tcp

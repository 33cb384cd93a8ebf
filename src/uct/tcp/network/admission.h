// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "ucs/net/socket.h"
#include "uct/tcp/wire/proof.h"

namespace uct::tcp {

/** Somebody who connected and has proved to be of the job: what it said, and how it is answered. */
class Admission {
  public:
    Admission(const wire::Key& key, const wire::Hello& said, const wire::Challenge& challenge)
        : hello(said), key_(key), challenge_(challenge) {}

    const wire::Hello hello;

    /** A Welcome with nothing but the answer. */
    static wire::Welcome answer(wire::Answer answer) {
        wire::Welcome welcome{};
        welcome.magic = wire::kMagic;
        welcome.version = wire::kVersion;
        welcome.answer = answer;
        return welcome;
    }
    /** @return false if the connection is gone */
    bool send(ucs::net::Socket& socket, wire::Welcome welcome) const {
        welcome.version = challenge_.version;
        welcome.seal = wire::server_proof(key_, hello, challenge_, welcome);
        return socket.send(&welcome, sizeof(welcome)) == sizeof(welcome);
    }

    wire::Key session_key() const { return wire::session_key(key_, hello, challenge_); }

  private:
    const wire::Key key_;
    const wire::Challenge challenge_;
};

}  // namespace uct::tcp

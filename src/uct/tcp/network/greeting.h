// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

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

/**
 * The handshake of who connects: Hello, and a proof when the Challenge has come; then a Welcome
 * that proves to be the listener's.
 */
class Greeting {
  public:
    /** Begin. @return false if the connection is gone */
    bool begin(ucs::net::Socket& socket, const wire::Hello& hello, const wire::Key& key);

    enum class State : uint8_t {
        kUnderWay,
        kOver,     //!< welcome() says what has become of it
        kBroken,   //!< the connection ended; errno says why, 0: it was closed
        kRefused,  //!< the ends do not belong together: reason() says why
    };
    /** Something can be read. */
    State read(ucs::net::Socket& socket);

    const wire::Welcome& welcome() const { return welcome_; }
    wire::Key session_key() const { return wire::session_key(key_, hello_, challenge_); }
    const std::string& reason() const { return reason_; }

  private:
    bool receive(ucs::net::Socket& socket, void* message, size_t length, State* state);
    State refused(std::string reason);
    State challenged(ucs::net::Socket& socket);
    State welcomed();

    wire::Key key_{};
    wire::Hello hello_{};
    wire::Challenge challenge_{};
    wire::Welcome welcome_{};
    bool has_proved_ = false;
    size_t received_ = 0;  //!< of the message that is due
    std::string reason_;
};

}  // namespace uct::tcp

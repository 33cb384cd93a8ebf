// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include "uct/tcp/network/socket_stream.h"
#include "uct/tcp/wire/proof.h"

namespace uct::tcp {

// Somebody who connected and has proved to be of the job: what it said, and how it is answered.
class AuthenticatedPeer {
  public:
    AuthenticatedPeer(const wire::Key& key, const wire::Hello& said,
                      const wire::Challenge& challenge)
        : hello(said), key_(key), challenge_(challenge) {}

    const wire::Hello hello;

    // A Welcome with nothing but the answer.
    static wire::Welcome answer(wire::Answer answer) {
        wire::Welcome welcome{};
        welcome.magic = wire::kMagic;
        welcome.version = wire::kVersion;
        welcome.answer = answer;
        welcome.flags = wire::kAnswersBursts;
        return welcome;
    }
    // @return false if the connection is gone
    bool send(SocketStream& stream, wire::Welcome welcome) const {
        welcome.version = challenge_.version;
        welcome.seal = wire::server_proof(key_, hello, challenge_, welcome);
        return stream.say(welcome);
    }

    wire::Key session_key() const { return wire::session_key(key_, hello, challenge_); }
    wire::Key encryption_key() const { return wire::encryption_key(key_, hello, challenge_); }

  private:
    const wire::Key key_;
    const wire::Challenge challenge_;
};

// The handshake of who connects: Hello, and a proof when the Challenge has come; then, if it is to
// be encrypted, that of TLS; then a Welcome that proves to be the listener's.
class ClientHandshake {
  public:
    // Begin. @param encryption  null: in clear. @return false if the connection is gone
    bool begin(SocketStream& stream, const wire::Hello& hello, const wire::Key& key,
               std::shared_ptr<TlsContext> encryption);

    enum class State : uint8_t {
        kUnderWay,
        kOver,     // welcome() says what has become of it
        kBroken,   // the connection ended; errno says why, 0: it was closed
        kRefused,  // the ends do not belong together: reason() says why
    };
    // Something can be read.
    State read(SocketStream& stream);

    const wire::Welcome& welcome() const { return welcome_; }
    wire::Key session_key() const { return wire::session_key(key_, hello_, challenge_); }
    const std::string& reason() const { return reason_; }

  private:
    enum class Due : uint8_t { kChallenge, kWelcome, kTls };

    bool receive(SocketStream& stream, void* message, size_t length, State* state);
    State refused(std::string reason);
    State challenged(SocketStream& stream);
    State encrypt(SocketStream& stream);
    State negotiate(SocketStream& stream);
    State welcomed(SocketStream& stream);

    wire::Key key_{};
    wire::Hello hello_{};
    wire::Challenge challenge_{};
    wire::Welcome welcome_{};
    std::shared_ptr<TlsContext> encryption_;
    Due due_ = Due::kChallenge;
    size_t received_ = 0;  // of the message that is due
    std::string reason_;
};

}  // namespace uct::tcp

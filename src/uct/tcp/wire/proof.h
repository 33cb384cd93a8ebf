// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "uct/tcp/wire/format.h"

// How the two ends of a connection prove to each other that they are of one job
// (docs/design/tcp.md, "Handshake"). Neither the key nor anything that it could be found from
// travels.
namespace uct::tcp::wire {

using Key = ucs::net::Mac;

// What peers of a listener share. @param job_key  UCX_TCP_JOB_KEY; may be empty
Key key_of(const Secret& listener, std::string_view job_key);

// What the two ends of this connection share, and nobody else: it goes on with their session over
// another connection.
Key session_key(const Key& key, const Hello& hello, const Challenge& challenge);

// The same for the encryption of this connection alone.
Key encryption_key(const Key& key, const Hello& hello, const Challenge& challenge);

// Of who connects.
Proof client_proof(const Key& key, const Hello& hello, const Challenge& challenge);
// Of who listens. @param welcome  without its seal
ucs::net::Mac server_proof(const Key& key, const Hello& hello, const Challenge& challenge,
                           const Welcome& welcome);

}  // namespace uct::tcp::wire

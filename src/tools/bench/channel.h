// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "tools/report/json.h"
#include "ucs/net/socket.h"

namespace tools {

// A stream socket between two processes of a benchmark, for what they must know before they can use
// the library (options, addresses, keys), and for results. Each message is its length (4 bytes,
// big-endian) and JSON. All of these throw std::system_error, or std::runtime_error for malformed
// input.
class Channel {
  public:
    // One that the other process was started with; it may block.
    explicit Channel(int descriptor) : socket_(descriptor) {}

    // Tries for a few seconds: the server may be about to start.
    static Channel connect(const std::string& host, uint16_t port,
                           const std::function<void()>& on_refused);
    // Waits for one caller. `on_listening` is told the port, which is another one for port 0.
    template <typename OnListening>
    static Channel accept(const std::string& host, uint16_t port, OnListening on_listening) {
        const Channel listener = listen(host, port);
        on_listening(listener.port());
        return listener.accept_one();
    }

    // @return false if the other end is gone
    bool send(const Json& message);
    // Waits. @return nothing if the other end is gone
    std::optional<Json> receive();
    // The same, where the other end must be there.
    Json expect();
    int descriptor() const { return socket_.descriptor(); }
    // Both ends' receive() return, and find it gone. Any thread.
    void shut_down() { socket_.shut_down(); }
    // Whether the other end has gone; there must be no message under way.
    bool is_gone() const;

  private:
    explicit Channel(ucs::net::Socket socket) : socket_(std::move(socket)) {}
    static Channel listen(const std::string& host, uint16_t port);
    uint16_t port() const { return socket_.local().port(); }
    Channel accept_one() const;
    bool read(void* data, size_t length);

    ucs::net::Socket socket_;
};

// Bytes in a message.
std::string to_hex(const std::string& bytes);
std::string from_hex(const std::string& text);

}  // namespace tools

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ucs/sys/time.h"
#include "uct/tcp/events/event_loop.h"
#include "uct/tcp/network/rail.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

class TcpListener;

// Somebody who connected and has yet to prove that it belongs to the job.
class ServerHandshake final : public EventTarget,
                              public boost::intrusive::list_base_hook<
                                  boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
  public:
    ServerHandshake(TcpListener& listener, Socket socket, ucs::Time deadline)
        : listener_(listener), stream_(std::move(socket)), deadline_(deadline) {}

    unsigned on_event(uint32_t events) override;
    ucs::Time deadline() const { return deadline_; }
    int descriptor() const { return stream_.descriptor(); }
    bool is_over() const { return !stream_; }
    // Over, whatever became of it; closes the socket if it is still here.
    void refuse(std::string_view why);

  private:
    void hear();
    void on_hello();
    bool send_challenge(uint16_t version, wire::Answer answer);
    void reply(wire::Answer answer);
    void on_proof();
    void encrypt(std::shared_ptr<TlsContext> encryption);
    void negotiate();
    void admit();

    TcpListener& listener_;
    SocketStream stream_;
    ucs::Time deadline_;
    size_t received_ = 0;  // of the message that is due
    wire::Hello hello_{};
    std::optional<wire::Challenge> challenge_;  // once it was sent
    wire::Proof proof_{};
    std::optional<AuthenticatedPeer> authenticated_;  // once it has proved to be of the job
};

// The listening socket of an interface, and those who knock.
//
// Strangers cost little: a bounded number of them is heard at a time, each for a bounded time, and
// only as many accepted at once as progress has time for. When descriptors run out, it pauses.
class TcpListener final : public EventTarget {
  public:
    TcpListener(Rail& rail, EventLoop& events) : rail_(rail), events_(events) {}
    ~TcpListener();

    ucs_status_t open();
    uint16_t port() const { return port_; }
    void close();

    unsigned on_event(uint32_t events) override;
    bool has_timers() const { return !handshakes_.empty() || resume_at_ != ucs::kNever; }
    ucs::Time next_deadline() const;
    void on_deadline(ucs::Time now);
    // Free those that are over; between batches of events.
    void reap();
    void note_over();
    // A peer is refused, as it is set up otherwise. @param what  in one line
    void note_mismatch(const SocketAddress& peer, const std::string& what);
    Rail& rail() const { return rail_; }
    EventLoop& events() const { return events_; }
    // Those who have yet to prove themselves.
    size_t handshakes() const { return count_; }

  private:
    void accept_one(Socket socket);
    void pause(int cause);

    Rail& rail_;
    EventLoop& events_;
    Socket socket_;
    uint16_t port_ = 0;
    bool has_over_ = false;
    bool has_told_mismatch_ = false;
    ucs::Time resume_at_ = ucs::kNever;
    ucs::Time next_complaint_{};
    // Oldest first, so earliest deadline first.
    boost::intrusive::list<ServerHandshake, boost::intrusive::constant_time_size<false>>
        handshakes_;
    size_t count_ = 0;
};

}  // namespace uct::tcp

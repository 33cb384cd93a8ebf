// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ucs/runtime/runtime.h"
#include "ucs/sys/time.h"
#include "uct/tcp/events/event_loop.h"
#include "uct/tcp/network/client_handshake.h"
#include "uct/tcp/network/options.h"
#include "uct/tcp/network/rail.h"
#include "uct/tcp/queues/history.h"
#include "uct/tcp/wire/address.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

class TcpConnection;
class Association;

// The addresses of both ends of a connection.
struct AddressPair {
    IpAddress local, remote;
    friend bool operator==(const AddressPair&, const AddressPair&) = default;
};

// The stream of messages of an association as it outlives its connections (docs/design/tcp.md,
// "Failover").
//
// What was sent is kept until the peer's kernel has acknowledged it: a receiver reads its
// connection to the end before it goes on with the next, so what its kernel has taken it gets.
class Session final : public EventTarget, public Timer, public Watched {
  public:
    // @param connection  the association's first, which carries the messages
    Session(Association& association, TcpConnection& connection);
    ~Session() { stop(); }
    Session(const Session&) = delete;

    History& history() { return history_; }
    const History& history() const { return history_; }
    // The kernel has taken so much of the connection's stream.
    void sent(std::span<const iovec> pieces, size_t length) {
        history_.record(pieces, length);
        if (history_.size() >= next_trim_) [[unlikely]]
            trim();
    }
    // Look after this association.
    void watch();
    bool is_watched() const { return WatchHook::is_linked(); }

    // The first connection stands. @param accepted  it was the peer who made it
    void begin(bool accepted);
    // The peer makes the first connection once more: is it one who has never got the welcome?
    // Reads the connection that stands to its end to find out.
    bool may_begin_again();
    // It is, and has been welcomed on this connection.
    void begin_again(SocketStream stream, bool is_new);
    // Over, whatever becomes of the association.
    void stop();
    bool is_over() const { return is_over_; }
    // Between two connections.
    bool is_moving() const;
    // Has the peer all that was sent?
    bool has_all_arrived();

    // The peer has said how it can be reached.
    void on_routes(std::span<const std::byte> payload);
    // The connection's connection has ended without a farewell.
    // @param silence  so long the peer's kernel had answered nothing, if that is why
    void broken(int error, ucs::Duration silence = {});
    // No answer comes on the present way.
    void suspect(const char* why);
    // A device of this worker has lost its link, or has it back.
    void on_carrier(const NetworkDevice& device, bool is_up);
    // Time has passed.
    void check(ucs::Time now) override;

    wire::Answer judge(const wire::Hello& hello) const;
    // The peer goes on over this connection.
    void accept(const AuthenticatedPeer& peer, SocketStream stream, bool is_new);

    // How the association's other connections are to be made: null for the usual way.
    struct Course {
        Rail* from;
        DeviceAddress to;
        uint16_t port;

        // Begin to connect. @param cause as of start_connect()
        Socket start(const Config& config, int* cause) const;
    };
    const Course* course() const {
        return is_home_ || course_.from == nullptr ? nullptr : &course_;
    }

    unsigned on_event(uint32_t events) override;
    void on_deadline() override;

  private:
    enum class Phase : uint8_t {
        kSteady,      // nothing is tried
        kConnecting,  // the connection may still be open
        kHandshake,   // Hello sent: from here on the connection is not
        kYielded,     // the peer's own connection is to come
        kPausing,     // another attempt follows
    };
    struct Peer {
        DeviceAddress device;
        uint16_t port;
    };

    // Bytes kept between two questions to the kernel what it has got rid of.
    static constexpr size_t kTrimStep = 256 * 1024;
    // And while its peer is heard, for other questions need not be asked then.
    static constexpr size_t kKeptUnasked = 32 * 1024;
    // Between two attempts, at first.
    static constexpr ucs::Duration kRetry = std::chrono::milliseconds(50);

    ucs::Time now() const;
    void trim();
    void forget_all_but(uint64_t waiting);
    void note_heard(ucs::Time now);
    bool ask_kernel(ucs::Time now);
    void set_phase(Phase phase, ucs::Duration span);
    bool is_near(const Course& course) const;
    std::vector<Course> courses(bool with_present) const;
    AddressPair addresses() const;
    void connect(const Course& course);
    // @return false if there is none
    bool try_next(bool with_present);
    void try_home(ucs::Time now);
    void attempt_failed(int error);
    void connected();
    void continue_handshake();
    void welcomed(const wire::Welcome& welcome);
    void go_on(SocketStream stream, bool is_new);
    void drop_attempt();

    Association& association_;
    TcpConnection& connection_;
    Rail& rail_;
    const ucs::Duration patience_;  // user_timeout()
    History history_;
    Phase phase_ = Phase::kSteady;
    bool is_over_ = false;
    bool was_accepted_ = false;
    bool is_home_ = true;
    bool was_refused_ = false;
    unsigned tries_ = 0;                      // since all was well
    unsigned turn_ = 0;                       // of the courses
    unsigned home_tries_ = 0;                 // since the last move
    uint32_t attempt_ = ucs::first_number();  // the last Hello's
    uint32_t peer_attempt_ = ucs::first_number();
    uint64_t trusted_at_ = 0;  // the peer reads this connection if it has sent beyond
    bool is_going_home_ = false;
    ucs::Time next_try_{}, next_home_{};
    ucs::Time silent_since_ = ucs::kNever;
    ObservedTime trouble_;
    ucs::Duration silence_patience_{};  // with a silence that has begun
    ucs::Time next_question_{};         // to the kernel, what it has got rid of
    ucs::Time next_drop_{};             // of connections whose peer's host is gone
    size_t next_trim_ = kTrimStep;
    AddressPair present_, home_;
    Course course_{};
    Course trying_{};
    SocketStream candidate_;
    ClientHandshake handshake_;
    std::vector<Peer> peers_;  // the peer interface's own first
};

}  // namespace uct::tcp

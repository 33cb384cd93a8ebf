// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "uct/tcp/association/burst.h"
#include "uct/tcp/events/event_loop.h"
#include "uct/tcp/network/client_handshake.h"
#include "uct/tcp/network/options.h"
#include "uct/tcp/network/socket_stream.h"
#include "uct/tcp/queues/output_queue.h"
#include "uct/tcp/queues/receive_pool.h"
#include "uct/tcp/wire/format.h"

namespace uct::tcp {

class Association;
class AssociationUser;

// One connection between two interfaces: it is made when first something is sent, by whichever end
// is first. What is sent before it stands waits in the queue.
//
// If both ends connect at once, the connection of the interface with the lower id stays: the lower
// answers kYield to the other's Hello, the higher drops its own attempt when the other's comes.
// Nothing but a Hello travels before the Welcome, so nothing is lost or overtaken.
class TcpConnection final : public EventTarget, public Timer {
  public:
    enum class State : uint8_t {
        kIdle,
        kConnecting,  // the kernel makes the connection
        kHandshake,   // Hello sent, no Welcome yet
        kYielded,     // the peer's own connection is to come
        kBackOff,     // another attempt follows
        kFailing,     // cannot be made: reported by the next progress
        kOpen,
        kMoving,  // between two connections of a session
    };

    TcpConnection(Association& association, unsigned index);
    ~TcpConnection();
    TcpConnection(const TcpConnection&) = delete;

    State state() const { return state_; }
    bool is_open() const { return state_ == State::kOpen; }
    unsigned index() const { return index_; }
    const Socket& socket() const { return stream_.socket(); }
    OutputQueue& queue() { return queue_; }
    bool has_room() const { return room() > 0; }
    // Has the kernel all that it was ever to have?
    bool is_settled() const { return !wants_output() && state_ != State::kMoving; }
    // How many operations may still wait here.
    size_t room() const;

    // --- sending: frames of whole multiples of 8 bytes; never fails towards the caller ---

    // To be called before each message. @return the mark of its frame
    uint16_t mark_for(size_t length) { return outgoing_.next(length); }
    // @param owner  whose operation it is: what the peer must not get when it goes (OutputItem)
    void send(std::span<const iovec> pieces, size_t length, const AssociationUser* owner = nullptr);
    // Takes the operation. @return UCS_OK if the kernel has it all, or UCS_INPROGRESS
    ucs_status_t send(ReferringOutput* operation);
    // Something was added to the queue: send what the kernel takes.
    void send_queued(bool was_empty);

    // One-sided operations are counted: only the peer knows of their end. A flush that the peer
    // answers notes how many there were.
    uint64_t one_sided = 0;
    uint64_t acknowledged = 0;
    uint64_t last_plain = 0;                   // up to here some are of no chain
    uint32_t last_chain = wire::kNoOperation;  // whose answer tells that a chain has ended
    bool has_one_sided() const { return one_sided != acknowledged; }
    bool has_plain() const { return last_plain > acknowledged; }

    // --- called by interface and association ---

    unsigned on_event(uint32_t events) override;
    // Read what is there and handle it.
    // @param turn  so many bytes at most, and less by those that were read; what is left the kernel
    //              tells of again
    // @return frames and pieces handled
    unsigned receive(size_t& turn);
    void on_deadline() override;

    // The peer's connection takes this connection: answers it, and may send at once.
    // @param is_new   this interface does not watch the socket yet
    // @param resumes  a session begins
    void adopt(SocketStream stream, bool is_new, bool resumes);
    bool must_yield_to(uint64_t sender) const;
    // Everything that the peer still sent before it closed.
    void drain();

    // A session changes its connection.

    // Bytes of the peer's stream so far.
    uint64_t received() const { return received_; }
    // Read to the end what the connection has brought; nothing comes from it any more.
    void hand_over();
    // The session goes on here.
    void resume(SocketStream stream, bool is_new) {
        take(std::move(stream), is_new, Beginning::kNothing);
    }
    // What waits is of no use any more.
    void take_output(OutputList& taken) { queue_.take_all(taken); }

    // Send what waits, and then that this end goes in good order. lingers() carries on with it.
    void leave() {
        if (is_open()) lingers();
    }
    // After leave(): is there something that the peer has not got? Carries on with sending it.
    bool lingers();
    // The peer is to see the end behind all that the kernel has.
    void end_output() {
        if (is_open()) stream_.finish();
    }
    // The queue got something from elsewhere.
    void want_output();
    // Forget connection and input; the queue stays.
    void close();
    // The same, and what the kernel has still to send is not sent.
    void abort();
    // What is known of the answers to what was sent. The kernel is asked only of what may have no
    // answer: not while all is known to have arrived, not within kSilence of the last bytes that
    // came, and once for a time.
    Answers look(ucs::Time now);
    // To be called often: bytes that came count as heard then.
    void note_heard(ucs::Time now) {
        if (received_ == heard_) return;
        heard_ = received_;
        heard_at_ = now;
    }
    // Give the connection up if the other end's kernel has not answered for too long.
    void drop_if_silent(ucs::Time now, ucs::Duration patience);
    // Has the other end's kernel not got all that this one's was given?
    bool has_bytes_under_way() const { return is_open() && in_doubt() > 0; }
    // So many of the last bytes that were sent may not be with the other end's kernel.
    uint64_t in_doubt() const { return in_doubt(under_way(stream_.socket())); }

  private:
    // Payload of a put or a get reply on its way to its place.
    struct Payload {
        bool active = false;
        uint64_t left = 0;
        uint64_t offset = 0;
        size_t padding = 0;  // zeros that follow
        bool is_put = false;
        bool dropped = false;
        wire::Put put{};
        uint32_t operation = 0;
    };

    void start();
    void fail_later(ucs_status_t status);
    void wait_until(State state, ucs::Duration span);
    void on_connected();
    void on_handshake();
    void on_welcome(const wire::Welcome& welcome);
    void refused(const std::string& reason);
    bool waits_for_way(ucs_status_t status);
    void retry();
    void report_failure(ucs_status_t status);
    // What begins with a connection that stands.
    enum class Beginning : uint8_t { kNothing, kOwnSession, kPeersSession };
    void opened(Beginning beginning);
    void take(SocketStream stream, bool is_new, Beginning beginning);
    void suspend();
    bool is_replaying() const;
    bool replay();
    void watch(uint32_t events);
    void watch_as_needed();
    bool has_all_arrived() const;
    // The same as in_doubt(), of so many bytes that the other end's kernel has not acknowledged.
    uint64_t in_doubt(uint64_t unanswered) const;
    bool wants_output() const { return !queue_.empty() || stream_.backlog() > 0 || is_replaying(); }
    size_t transmit(std::span<const iovec> pieces);
    ssize_t encrypt(std::span<const iovec> pieces);
    // @param turn  as of receive()
    void transmit_queue(size_t& turn);
    // There was no memory for something that the peer is to get: the association ends soon.
    void output_lost();
    void drop_unreadable();
    void drop_payload();

    bool must_read_on();
    void read_later();
    ssize_t read_some(size_t most, bool* full);
    ssize_t read_in_place(size_t most, bool* full);
    bool prepare_buffer(uint64_t ahead, size_t* limit);
    void drop_buffer();
    unsigned parse();
    bool take_payload();
    bool take_frame(const wire::FrameHeader& frame);
    void begin_payload(const wire::FrameHeader& frame, const std::byte* fixed);
    void finish_payload();
    void deliver(const wire::FrameHeader& frame);
    void handle(const wire::FrameHeader& frame, const std::byte* fixed);
    void violation(const char* what);
    void ended(int error);
    size_t buffered() const { return input_end_ - input_begin_; }

    Association& association_;
    const uint8_t index_;
    State state_ = State::kIdle;
    bool bulk_expected_ = false;  // read headers alone: the payload goes to its place
    size_t segment_ = 0;          // bytes that come in one packet, at most
    bool peer_left_ = false;
    bool was_open_ = false;         // since it was last begun
    bool has_lost_output_ = false;  // for lack of memory: no other connection can make up for it
    bool is_draining_ = false;
    bool has_early_input_ = false;  // read with the welcome, or when there was no memory to decrypt
    bool has_faulted_ = false;      // the kernel could not read what was to be sent
    bool is_interrupted_ = false;   // a handler has thrown: more may have come with its message
    uint8_t leave_sent_ = 0;        // bytes of the farewell
    uint16_t attempts_ = 0;
    uint32_t events_ = 0;
    ucs_status_t failure_ = UCS_OK;
    ObservedTime no_way_;  // no way led to the peer for so long
    uint64_t received_ = 0;
    uint64_t heard_ = 0;    // of received_, when it was looked at last
    ucs::Time heard_at_{};  // when that had grown
    uint64_t given_ = 1;    // bytes to the kernel, and what it may have had before
    uint64_t arrived_ = 0;  // so many of them are known to be with the other end's
    ucs::Time looked_at_{};
    Answers answers_;  // at that time
    Silence silence_;
    SocketStream stream_;
    OutputQueue queue_;
    OutgoingBurst outgoing_;
    IncomingBurst incoming_;

    StreamBuffer* input_ = nullptr;
    size_t input_begin_ = 0;
    size_t input_end_ = 0;
    Payload payload_;
    std::unique_ptr<ClientHandshake> handshake_;  // while it is made
};

}  // namespace uct::tcp

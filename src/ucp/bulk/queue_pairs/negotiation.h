// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

// The negotiation of an endpoint's queue pairs (docs/design/bulk.md), at one of its ends: a pure
// state machine, events in, actions out, no I/O and no clock.

namespace ucp::bulk {

// The addresses of queue pairs as OPEN and GRANT carry them.

// One end's queue pairs on one rail. The peer's answer has its own in the same place.
struct RailAddresses {
    uint32_t kind = 0;           // hash of the transport's name
    uint8_t domain = 0;          // of the sender
    uint8_t partner_domain = 0;  // of the receiver, as the sender knows it
    std::vector<std::byte> device;
    std::vector<std::vector<std::byte>> addresses;  // all of one length
};

std::vector<std::byte> encode(std::span<const RailAddresses> rails);
// Bytes from outside: nothing unless they are exactly what encode() makes.
std::optional<std::vector<RailAddresses>> decode_rail_addresses(std::span<const std::byte> bytes);

struct QueuePairMessage {
    enum class Type : uint8_t { kOpen = 1, kGrant, kUp, kDown, kAsk, kStill };

    Type type = Type::kOpen;
    uint32_t epoch = 0;
    // Never answered. kDown: sent because the peer's message was of no round known here. kStill:
    // the round is known here as well.
    bool is_answer = false;
    // kOpen, kGrant: of the sender's queue pairs, as QueuePairActions wants them; none: a refusal.
    std::vector<std::byte> addresses;

    bool is_refusal() const { return type == Type::kGrant && addresses.empty(); }

    static constexpr size_t kHeader = 6;
    static constexpr size_t kMaxAddresses = 4096;
};

std::vector<std::byte> encode(const QueuePairMessage& message);
// Bytes from outside: nothing unless they are exactly what encode() makes.
std::optional<QueuePairMessage> decode_queue_pair_message(std::span<const std::byte> bytes);

// What a link wants done. Calls do not come back into the link, but for send(), which may be
// delivered at any later time.
class QueuePairActions {
  public:
    virtual void send(const QueuePairMessage& message) = 0;
    // Not 0, and not that of an earlier round of the two workers, of a former endpoint either.
    virtual uint32_t new_epoch() = 0;
    // Make queue pairs to offer. @return their addresses; none: there is no room
    virtual std::vector<std::byte> make_queue_pairs() = 0;
    // Make and connect some for those offered. @return none: a refusal, nothing is left
    virtual std::vector<std::byte> answer_offer(std::span<const std::byte> offered) = 0;
    // Connect those made to those granted, destroy the others. @return whether any is left
    virtual bool connect_queue_pairs(std::span<const std::byte> granted) = 0;
    // The peer's can receive: transfers may use them.
    virtual void start_posting() = 0;
    // Transfers leave them; QueuePairNegotiation::on_idle() when all of this end is complete.
    virtual void stop_posting() = 0;
    virtual void destroy_queue_pairs() = 0;

  protected:
    ~QueuePairActions() = default;
};

// One end of the queue pairs of an endpoint.
class QueuePairNegotiation {
  public:
    enum class State : uint8_t { kClosed, kOpening, kGranted, kOpen, kDraining };

    // @param opens  this end has the lower worker id
    QueuePairNegotiation(QueuePairActions& sink, bool opens) : sink_(sink), opens_(opens) {}

    State state() const { return state_; }
    uint32_t epoch() const { return epoch_; }

    void on_lane_up();
    void on_lane_down();
    // There are bulk transfers: queue pairs are made as soon as the lane is up, from now on.
    void on_wanted();
    void on_message(const QueuePairMessage& message);
    // After stop_posting(): nothing of this end is under way.
    void on_idle();
    // No queue pair is left: they failed one by one.
    void on_all_failed() { drain(); }
    // They are to serve others: none until on_room(), or the lane's next promotion.
    void give_up() { drain(); }
    // There may be some again: no effect unless is_lacking().
    void on_room() {
        if (is_lacking()) open_if_due();
    }
    // There are none, though the lane is up and there are bulk transfers.
    bool is_lacking() const { return state_ == State::kClosed && is_lane_up_ && is_wanted_; }
    // The endpoint has failed or is freed: nothing is agreed any more.
    void on_gone();

    // The next step is the peer's, who may have lost the round without a word: its endpoint has
    // failed, or was closed. Then on_silence() is called from time to time.
    bool awaits_peer() const {
        return state_ == State::kOpening || state_ == State::kGranted ||
               (state_ == State::kDraining && own_down_);
    }
    // Ask the peer whether it is still in this round.
    void on_silence();
    // It has not said so for too long: this end's are destroyed, what the peer posts fails.
    void on_no_answer() {
        if (awaits_peer()) close();
    }

  private:
    void open_if_due();
    void begin(uint32_t epoch, State state);
    void opened(const QueuePairMessage& message);
    void granted(const QueuePairMessage& message);
    void drain();
    void close();
    void close_if_both_down() {
        if (state_ == State::kDraining && own_down_ && peer_down_) close();
    }

    QueuePairActions& sink_;
    const bool opens_;
    State state_ = State::kClosed;
    bool is_lane_up_ = false;
    bool is_wanted_ = false;
    bool reopens_ = false;  // the lane came up again before the last round was over
    bool own_down_ = false;
    bool peer_down_ = false;
    uint32_t epoch_ = 0;  // of the last round
};

const char* name(QueuePairNegotiation::State state);

}  // namespace ucp::bulk

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

// The negotiation of an endpoint's strands (docs/bulk.md), at one of its ends: a pure state
// machine, events in, actions out, no I/O and no clock.
namespace ucp::bulk {

struct StrandMessage {
    enum class Type : uint8_t { kOpen = 1, kGrant, kUp, kDown, kAsk, kStill };

    Type type = Type::kOpen;
    uint32_t epoch = 0;
    /**
     * Never answered. kDown: sent because the peer's message was of no round known here. kStill:
     * the round is known here as well.
     */
    bool is_answer = false;
    /** kOpen, kGrant: the sender's ends, as StrandSink understands them; none: a refusal. */
    std::vector<std::byte> ends;

    static constexpr size_t kHeader = 6;
    static constexpr size_t kMaxEnds = 4096;
};

std::vector<std::byte> encode(const StrandMessage& message);
/** Bytes from outside: nothing unless they are exactly what encode() makes. */
std::optional<StrandMessage> decode_strand_message(std::span<const std::byte> bytes);

/**
 * What a link wants done. Calls do not come back into the link, but for send(), which may be
 * delivered at any later time.
 */
class StrandSink {
  public:
    virtual void send(const StrandMessage& message) = 0;
    /** Not 0, and not that of an earlier round of the two workers, of a former endpoint either. */
    virtual uint32_t new_epoch() = 0;
    /** Make ends to offer, as many as there is room for. @return none: there is none */
    virtual std::vector<std::byte> make_ends() = 0;
    /** Make ends for those offered and connect them. @return none: a refusal, nothing is left */
    virtual std::vector<std::byte> answer_ends(std::span<const std::byte> offered) = 0;
    /** Connect the made ends to those granted, destroy the others. @return whether any is left */
    virtual bool connect_ends(std::span<const std::byte> granted) = 0;
    /** The peer's ends can receive: transfers may use them. */
    virtual void start_posting() = 0;
    /** Transfers leave them; StrandLink::on_idle() when all of this end is complete. */
    virtual void stop_posting() = 0;
    virtual void destroy_ends() = 0;

  protected:
    ~StrandSink() = default;
};

/** One end of the strands of an endpoint. */
class StrandLink {
  public:
    enum class State : uint8_t { kClosed, kOpening, kGranted, kOpen, kDraining };

    /** @param opens  this end has the lower worker id */
    StrandLink(StrandSink& sink, bool opens) : sink_(sink), opens_(opens) {}

    State state() const { return state_; }
    uint32_t epoch() const { return epoch_; }

    void on_lane_up();
    void on_lane_down();
    /** There are bulk transfers: strands are made as soon as the lane is up, from now on. */
    void on_wanted();
    void on_message(const StrandMessage& message);
    /** After stop_posting(): nothing of this end is under way. */
    void on_idle();
    /** No strand is left: they failed one by one. */
    void on_all_failed() { drain(); }
    /** The endpoint has failed or is freed: nothing is agreed any more. */
    void on_gone();

    /**
     * The next step is the peer's, who may have lost the round without a word: its endpoint has
     * failed, or was closed. Then on_silence() is called from time to time.
     */
    bool awaits_peer() const {
        return state_ == State::kOpening || state_ == State::kGranted ||
               (state_ == State::kDraining && own_down_);
    }
    /** Ask the peer whether it is still in this round. */
    void on_silence();
    /** It has not said so for too long: this end's are destroyed, what the peer posts fails. */
    void on_no_answer();

  private:
    void open_if_due();
    void begin(uint32_t epoch, State state);
    void opened(const StrandMessage& message);
    void granted(const StrandMessage& message);
    void drain();
    void close();
    void close_if_both_down();

    StrandSink& sink_;
    const bool opens_;
    State state_ = State::kClosed;
    bool is_lane_up_ = false;
    bool is_wanted_ = false;
    bool reopens_ = false;  //!< the lane came up again before the last round was over
    bool own_down_ = false;
    bool peer_down_ = false;
    uint32_t epoch_ = 0;  //!< of the last round
};

const char* name(StrandLink::State state);

}  // namespace ucp::bulk

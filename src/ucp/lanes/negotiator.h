// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ucp/lanes/link.h"
#include "ucp/lanes/messages.h"
#include "ucp/lanes/score.h"
#include "ucs/type/status.h"

namespace ucp::lanes {

inline constexpr Time kMillisecond = 1'000'000;

// Times are nanoseconds; docs/lanes.md explains each knob. Values out of range are clamped.
struct Config {
    std::uint32_t cap = 20;
    std::uint32_t margin_permille = 200;
    std::uint32_t tolerance_permille = 50;
    Score min_score = 1;
    std::uint32_t trickle_ratio = 100;
    Time min_residence = 200 * kMillisecond;
    Time busy_retry = 1 * kMillisecond;
    Time retry_after = 500 * kMillisecond;
    Time retry_max = 8000 * kMillisecond;
    Time refresh = 1000 * kMillisecond;
    Time stale_after = 4000 * kMillisecond;
    Time wait_timeout = 1000 * kMillisecond;
    std::uint32_t request_pings = 3;
    std::uint32_t window = 16;
    std::uint32_t max_links = 256;
};

struct Counters {
    std::uint64_t requests = 0;
    std::uint64_t promotions = 0;  // links that became Established
    std::uint64_t demotions = 0;   // links that left Established or Switching, death apart
    std::uint64_t denials_sent = 0;
    std::uint64_t denials_received = 0;
    std::uint64_t deferrals = 0;
    std::uint64_t withdrawals = 0;
    std::uint64_t pings = 0;
    std::uint64_t failures = 0;
    std::uint64_t violations = 0;  // messages that no correct peer sends
};

struct Change {
    LinkState from;
    LinkState to;
    Reason reason;
    Score score;  // agreed, when it happened
};

struct PeerId {
    std::uint64_t worker = 0;
    std::uint32_t connection = 0;  // the same at both ends
};

// What the negotiator wants done. Calls come in the order in which they must take effect, after the
// event that caused them has been digested: an implementation may call the negotiator back from
// inside, with any event.
class Sink {
  public:
    virtual ~Sink() = default;

    // Who is at the other end; asked once for each record.
    virtual PeerId identify(Peer peer) = 0;

    // A control message on the scalable lane, in order with all others and with start_tx_switch.
    virtual void send(Peer peer, const Message& message) = 0;

    // Make a dedicated lane, then on_lane_created().
    virtual void create_lane(Peer peer) = 0;
    // Connect it to `address`, make it able to receive, then on_lane_ready().
    virtual void connect_lane(Peer peer, std::span<const std::uint8_t> address) = 0;
    // Destroy it, then on_lane_destroyed(). Nothing of a live peer is outstanding on it.
    virtual void destroy_lane(Peer peer) = 0;

    // Post `mark` on the scalable lane as the last message of this direction there, then
    // on_marker_posted(). Messages go where the link's TxDirection says; pending ones are replayed.
    virtual void start_tx_switch(Peer peer, const Message& mark) = 0;
    // The peer acknowledged MARK: the window is gone, waiting messages may be posted.
    virtual void open_tx_window(Peer peer) = 0;
    // The peer's MARK was processed: deliver what was held of the dedicated lane, in order.
    virtual void open_rx_gate(Peer peer) = 0;

    // Post `dmark` on the dedicated lane as the last message of this direction there, then
    // on_marker_posted(). Messages wait; one-sided operations go to the scalable lane.
    virtual void stop_tx_and_mark(Peer peer, const Message& dmark) = 0;
    // When all that was posted on the dedicated lane, the marker included, is done remotely:
    // on_flushed().
    virtual void flush_lane(Peer peer) = 0;
    // The direction is back on the scalable lane: waiting messages may be posted there.
    virtual void resume_tx(Peer peer) = 0;

    // The dedicated lane failed under messages: the endpoint's requests end with `status`.
    virtual void fail_endpoint(Peer peer, ucs_status_t status) = 0;
    // After on_close() or withdraw_all(): the link holds nothing more; forget() may follow.
    virtual void closed(Peer peer) = 0;

    // For explain, counters and callbacks of the interface.
    virtual void notify(Peer peer, const Change& change) = 0;
};

// Agrees with peers which links hold a dedicated lane, and moves them up and down. One for a
// worker; not thread-safe. No I/O, no clock: time is what advance() last said. Memory is bounded by
// Config::max_links records, whatever the number of endpoints; events of known links allocate
// nothing but a lane's address.
class Negotiator {
  public:
    Negotiator(const Config& config, std::uint64_t worker, Sink& sink);
    Negotiator(const Negotiator&) = delete;
    Negotiator& operator=(const Negotiator&) = delete;

    // --- time. Call before the events of a moment, and at next_deadline().
    void advance(Time now);
    Time next_deadline() const;

    // --- the usage tracker. Once a sampling interval for each link that it holds, with 0 for one
    // that left it; then advance(), which acts on the whole picture.
    void on_score(Peer peer, Score half);

    // --- the wire. UCS_ERR_INVALID_PARAM: no correct peer sends this here; nothing changed.
    ucs_status_t on_message(Peer peer, const Message& message);

    // --- answers to the sink's calls.
    void on_lane_created(Peer peer, ucs_status_t status, std::span<const std::uint8_t> address);
    void on_lane_ready(Peer peer, ucs_status_t status);
    void on_lane_destroyed(Peer peer);
    void on_marker_posted(Peer peer);
    void on_flushed(Peer peer);

    // --- failures.
    void on_lane_failed(Peer peer, ucs_status_t status);
    void on_peer_died(Peer peer);

    // --- the interface.
    // kDedicated: ask as the hottest of all, whatever was measured. kScalable: give back, take
    // none.
    void set_policy(Peer peer, Policy policy);

    // --- the end. on_close() leads to Sink::closed(); forget() ends a closed or failed endpoint.
    void on_close(Peer peer);
    void withdraw_all();
    void forget(Peer peer) { on_peer_died(peer); }

    // --- reading. Pointers hold until the next event.
    const Link* find(Peer peer) const;
    // The switch of a link that holds a dedicated lane, else null. Holds from create_lane() to
    // destroy_lane().
    Switch* switch_of(Peer peer);
    const std::map<Peer, Link>& links() const { return links_; }
    const Counters& counters() const { return counters_; }
    const Config& config() const { return config_; }
    std::uint32_t held() const { return held_; }
    // What a link must reach to be admitted to a free slot.
    Score admission() const;
    // True while all that must hold, holds; for tests.
    bool consistent() const;

  private:
    enum class ActionKind : std::uint8_t {
        kSend,
        kCreate,
        kConnect,
        kDestroy,
        kStartSwitch,
        kOpenWindow,
        kOpenGate,
        kStopAndMark,
        kFlush,
        kResume,
        kFail,
        kClosed,
        kNotify,
    };
    struct Action {
        ActionKind kind;
        Peer peer;
        Message message{};
        Change change{};
        ucs_status_t status = UCS_OK;
    };

    // Brackets every event: what it makes possible is done, then the actions are carried out. An
    // event from inside an action only appends: the loop that runs that action goes on with them.
    class Event {
      public:
        explicit Event(Negotiator& negotiator) : negotiator_(negotiator) {}
        Event(const Event&) = delete;
        Event& operator=(const Event&) = delete;
        ~Event() {
            negotiator_.settle();
            negotiator_.deadline_known_ = false;
            if (!negotiator_.draining_) negotiator_.drain();
        }

      private:
        Negotiator& negotiator_;
    };

    // negotiator.cc: records, time, actions.
    Link* lookup(Peer peer);
    Link* track(Peer peer, Score score, bool always);
    bool make_room(Score score);
    static bool is_empty(const Link& link);
    void erase(Link& link);
    void set_state(Link& link, LinkState state, Reason reason);
    void act(ActionKind kind, Peer peer) { actions_.push_back({kind, peer}); }
    void send(Peer peer, Message message);
    void send_round(const Link& link, MessageType type);
    void drain();
    void settle();
    Time deadline_of(const Link& link, Score threshold) const;
    void restart_timer(Link& link);
    void expire(Link& link);
    ucs_status_t violation();

    // scoreboard.cc: halves and thresholds.
    Score half_of(const Link& link) const;
    void tell(Link& link, bool always);
    void hear(Link& link, Score half);
    void reconsider(Link& link);
    void age(Link& link);

    // agreement.cc: requests and answers.
    std::uint32_t free_slots() const;
    Link* worst_booked(bool may_go);
    Rank floor_of(const Link* victim) const;
    Rank potential(const Link& link) const { return {half_of(link) + link.heard, link.id}; }
    void consider();
    bool may_ask(const Link& link) const;
    void request(Link& link, const Rank& floor);
    void on_request(Link& link, const Message& message);
    void on_accept(Link& link);
    void on_deny(Link& link, DenyReason why, const Rank& floor);
    ucs_status_t on_withdraw(Link& link, const Message& message);
    void decide(Link& link, Epoch epoch, const Rank& asker_floor);
    void deny(Link& link, Epoch epoch, DenyReason reason, const Rank& floor);
    Link* best_deferred();
    void answer_deferred();
    void back_off(Link& link, Time base, Time most);
    void abandon(Link& link, WithdrawReason reason);
    void retreat(Link& link);

    // rounds.cc: from Committed up to Established, and down again.
    void start_round(Link& link, Epoch epoch);
    void create(Link& link);
    void connect(Link& link);
    void try_switch(Link& link);
    void try_established(Link& link);
    void demote(Link& link, Reason reason);
    void finish_demotion(Link& link);
    void release(Link& link, Reason reason);
    void released(Link& link, Reason reason);
    void leave(Link& link, Reason reason);
    void fail(Link& link, ucs_status_t status);
    void on_gone(Link& link);
    void close(Link& link);
    ucs_status_t on_round_message(Link& link, const Message& message);

    Config config_;
    const std::uint64_t worker_;
    Sink& sink_;
    std::map<Peer, Link> links_;
    Time now_ = 0;
    Link* outstanding_ = nullptr;  // the one Requested link
    std::uint32_t held_ = 0;       // links that hold a slot
    std::uint32_t booked_ = 0;     // links that book a slot
    std::uint32_t rounds_ = 0;
    bool settle_due_ = false;
    bool closing_ = false;
    bool draining_ = false;
    std::vector<Action> actions_;
    mutable bool deadline_known_ = false;
    mutable Time deadline_ = kNever;
    Counters counters_;
};

}  // namespace ucp::lanes

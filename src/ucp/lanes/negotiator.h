// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <boost/intrusive/set.hpp>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ucp/lanes/kept_lanes.h"
#include "ucp/lanes/negotiator_state.h"
#include "ucp/lanes/rounds.h"
#include "ucp/lanes/scoreboard.h"

namespace ucp::lanes {

// What the usage tracker found on a link; see Negotiator::on_score().
struct Measured {
    Peer peer;
    Score score = 0;
    Score doubt = 0;
};

// Agrees with peers which links hold a dedicated lane, and moves them up and down. One for a
// worker; not thread-safe. No I/O, no clock: time is what advance() last said. Memory is bounded by
// Config::max_links records, whatever the number of endpoints; events of known links allocate
// nothing but a lane's address and the record of a kept lane.
//
// The parts: Scoreboard ranks the links, and calls back which to ask for and which to give up;
// Rounds takes each through its states; here are the records, the requests and answers, and time.
class Negotiator final : private Ranking::Callbacks {
  public:
    Negotiator(const Config& config, std::uint64_t worker, Sink& sink);
    Negotiator(Negotiator&&) = delete;
    ~Negotiator() { by_deadline_.clear(); }

    // --- time. set_time() before the events of a moment; advance() at next_deadline().
    void set_time(Time now) { state_.now = std::max(state_.now, now); }
    void advance(Time now);
    Time next_deadline() const;

    // What is heard decides nothing by itself: of messages that came together one may take back
    // what another asked for. After the last of them, decides; so does advance(), and until then
    // next_deadline() is now.
    void settle();

    // --- the usage tracker. Once a sampling interval for each link that it holds, with 0 for one
    // that left it; then advance(), which acts on the whole picture. `doubt`: so far may the score
    // be off; it counts against a link that has no slot, else the luckiest of many equals would
    // replace the holder again and again.
    void on_score(Peer peer, Score measured, Score doubt = 0);
    // Several of an interval. With the last of them (`are_all`) they are acted upon.
    void on_scores(std::span<const Measured> some, bool are_all = true);

    // --- the wire. UCS_ERR_INVALID_PARAM: no correct peer sends this here; nothing changed.
    // `may_promote`: false where the peer can never have a dedicated lane: there is no record of
    // it.
    ucs_status_t on_message(Peer peer, const Message& message, bool may_promote = true);

    // --- answers to the sink's calls.
    void on_lane_created(Peer peer, ucs_status_t status, std::span<const std::uint8_t> address);
    void on_lane_ready(Peer peer, ucs_status_t status);
    void on_lane_destroyed(Peer peer);
    void on_marker_posted(Peer peer);
    void on_flushed(Peer peer);
    // Messages have waited for room on the dedicated lane for Config::patience, and none came.
    void on_lane_full(Peer peer);

    // --- failures.
    void on_lane_failed(Peer peer, ucs_status_t status);
    void on_peer_died(Peer peer);
    // The lane kept for that link failed, and the sink has destroyed it.
    void on_kept_lane_lost(const PeerId& peer);
    // What the lane kept for the peer takes is wanted elsewhere: it is dropped, unless it is
    // pinned.
    void on_kept_lane_wanted(const PeerId& peer);

    // --- the interface.
    // kDedicated: ask as the hottest of all, whatever was measured. kScalable: give back, take
    // none.
    void set_policy(Peer peer, Policy policy);

    // --- the end. on_close() leads to Sink::closed(); forget() ends a closed or failed endpoint.
    void on_close(Peer peer);
    void withdraw_all();
    // A lane that is kept for the peer outlives it.
    void forget(Peer peer);

    // --- reading. Pointers hold until the next event.
    const Link* find(Peer peer) const;
    // What becomes of a message of the scalable lane that comes after DMARK of that round.
    enum class Order : std::uint8_t {
        kDeliver,
        kHold,  // until Sink::open_early()
        kDrop,  // the round was lost here, and what comes before the message with it
    };
    Order order_of(Peer peer, Epoch epoch) const;
    // The switch of a link that holds a dedicated lane, else null. Holds from create_lane() to
    // destroy_lane().
    Switch* switch_of(Peer peer);
    const std::map<Peer, Link>& links() const { return links_; }
    // Calls function(const Link&) for links that the `count` best are among: few beside those.
    template <typename Function>
    void for_best(std::size_t count, Function&& function) const {
        for (const Pool pool : kPools) {
            scoreboard_.ranking(pool).for_best(count, [&](const Ranking::Member& member) {
                function(static_cast<const Link&>(member));
            });
        }
    }
    // There was no memory for something that is wanted of the sink: the next event tries again.
    bool waits_for_memory() const { return state_.actions.are_waiting(); }
    const Counters& counters() const { return state_.counters; }
    const Config& config() const { return state_.config; }
    // Of all pools.
    std::uint32_t held() const { return rounds_.held(Pool::kDevice) + rounds_.held(Pool::kHost); }
    std::uint32_t parked() const { return rounds_.parked(); }
    std::size_t kept() const { return kept_.size(); }
    // What a link must reach to be admitted to a free slot.
    Score admission(Pool pool) const { return scoreboard_.ranking(pool).admission(); }
    // Something that is due waits for the next advance(), since one call does only so much.
    bool is_behind() const { return is_behind_; }
    // True while all that must hold, holds; for tests.
    bool consistent() const;

  private:
    // Brackets every event: what it makes possible is done, then the actions are carried out.
    class Event {
      public:
        explicit Event(Negotiator& negotiator) : negotiator_(negotiator) {
            // What the sink does while it is asked is a part of the event that asked.
            if (!negotiator.state_.actions.are_running()) negotiator.moves_left_ = kMostMoves;
        }
        Event(Event&&) = delete;
        ~Event() {
            negotiator_.make_progress();
            negotiator_.state_.actions.carry_out();
        }

      private:
        Negotiator& negotiator_;
    };

    struct DeadlineOf {
        using type = Time;
        Time operator()(const Link& link) const { return link.deadline; }
    };
    using ByDeadline = boost::intrusive::multiset<
        Link, boost::intrusive::key_of_value<DeadlineOf>,
        boost::intrusive::member_hook<Link, boost::intrusive::set_member_hook<>,
                                      &Link::by_deadline>>;

    // What one event does at most for the links that something is due for, in moves of some 5,000
    // instructions: to answer or demote one is a move, to make its lane is two, since much may
    // follow at once. advance() goes on with the rest.
    static constexpr unsigned kMostMoves = 3, kMovesOfALane = 2;
    bool may_move(unsigned moves = 1);

    // negotiator.cc: records, time, events.
    Link* lookup(Peer peer);
    LinkId id_of(const PeerId& peer) const;
    void take_score(const Measured& measured);
    Link* track(Peer peer, Score score, bool always);
    // Nor is it made if there is no memory: a peer without a record is one that there is no room
    // for.
    Link* try_track(Peer peer, Score score);
    Link* lowest_idle(Pool pool);
    bool make_room(Score score);
    static bool is_empty(const Link& link);
    void erase(Link& link);
    void make_progress();
    void step_down_touched();
    void make_lanes(Pool pool);
    bool takes_part(Pool pool) const { return state_.config.cap_of(pool) != 0 && !closing_; }
    void keep_deadlines();
    bool find_slot(const Link& next);
    Time deadline_of(const Link& link) const;
    void expire(Link& link);
    ucs_status_t on_answer(Link& link, const Message& message);
    ucs_status_t violation();
    void close(Link& link);
    void remove(Peer peer);
    void step_down(Link& link, Reason reason);

    // agreement.cc: requests and answers.
    bool may_promote(const Ranking::Member& candidate) override;
    void promote(Ranking::Member& candidate, const Rank& floor) override;
    void demote(Ranking::Member& incumbent) override;
    Link* outstanding(Pool pool);
    bool can_answer(Pool pool);
    bool is_asleep(const Link& link) const;
    Ranking::Member* victim_for(Pool pool, const Rank& challenger);
    bool yields_request(Pool pool);
    void on_request(Link& link, const Message& message);
    void on_accept(Link& link, Epoch kept);
    void on_deny(Link& link, DenyReason why, const Rank& floor);
    ucs_status_t on_withdraw(Link& link, const Message& message);
    void decide(Link& link, const Link::Deferred& asked);
    void deny(Link& link, Epoch epoch, DenyReason reason, const Rank& floor);
    void answer_deferred(Pool pool);
    Link* best_deferred(Pool pool);
    void defer(Link& link, const Message& request);
    void drop_deferred(Link& link);
    void free_booked_slots(Pool pool);

    Sink& sink_;
    NegotiatorState state_;
    std::map<Peer, Link> links_;
    Scoreboard scoreboard_;
    KeptLanes kept_;
    Rounds rounds_;
    std::uint32_t requests_made_ = 0;
    bool scores_are_partial_ = false;  // some of this interval's are still to come
    bool closing_ = false;
    bool is_unsettled_ = false;
    unsigned moves_left_ = kMostMoves;  // of the event under way
    bool is_behind_ = false;            // more are due
    std::vector<Link*> deferred_;       // those with a request of the peer that is to be answered
    ByDeadline by_deadline_;            // those that time does something to
};

}  // namespace ucp::lanes

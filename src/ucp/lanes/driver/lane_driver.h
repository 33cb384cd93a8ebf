// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ucp/api/ucpx.h"
#include "ucp/base/wire.h"
#include "ucp/context/config.h"
#include "ucp/context/queue_pair_budget.h"
#include "ucp/endpoint/endpoint_host.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/endpoint/lane_state.h"
#include "ucp/lanes/driver/inbox.h"
#include "ucp/lanes/negotiator.h"
#include "ucp/runtime/gate.h"
#include "ucp/runtime/interface_set.h"
#include "ucs/datastruct/usage_tracker.h"
#include "ucs/sys/time.h"
#include "uct/api/interface.h"

namespace ucp {

// Carries out what the negotiator decides, with the transports and endpoints of a worker, and feeds
// it with what happens: scores of the tracker, messages of peers, lanes made, flushed, failed.
//
// A lane is never destroyed from within a call of its transport: destroy_lane() puts it aside, and
// progress() destroys it. Peers are named by Endpoint::serial().
class LaneDriver final : public lanes::Sink, public LaneEvents {
  public:
    // Is told when an endpoint's dedicated lane is established, or is about to go.
    using OnLaneChange = std::function<void(Endpoint& endpoint, bool is_established)>;

    struct Options {
        uint64_t uuid;          // of the worker
        uint64_t seed;          // for the samples of the tracker
        bool has_virtual_time;  // the clock moves between calls of progress only
        uint32_t room;          // for dedicated queue pairs: more lanes there are never
    };

    LaneDriver(InterfaceSet& interfaces, EndpointTable& endpoints, Gate& gate, const Config& config,
               const ucs::Clock& clock, const Options& options);
    ~LaneDriver() override;

    void on_lane_change(OnLaneChange callback) { on_lane_change_ = std::move(callback); }

    // Timer work: tracker windows, rates, timers of the negotiation.
    void advance(ucs::Time now);
    // Work put aside by calls that could not do it where they were.
    // @return messages of peers that were looked at
    unsigned run_deferred();
    ucs::Time next_deadline() const;
    bool has_deferred() const { return has_deferred_; }

    // A flush had nothing to wait for. A program may put and flush for long and make no progress:
    // the window that is open ends then as well, or each put would be counted until the next
    // progress, more than a window's length has.
    void nothing_to_flush() {
        if ((gate_.bits() & Gate::kAnyTracker) != 0) [[unlikely]]
            look_at_window();
    }

    ucs::UsageTracker* tracker() { return tracker_ ? &*tracker_ : nullptr; }

    // --- events of the worker and its endpoints ---
    void endpoint_created(Endpoint& endpoint) override;
    void endpoint_renamed(Endpoint& endpoint) override;
    bool has_link(const Endpoint& endpoint) const override;
    void endpoint_closing(Endpoint& endpoint);
    void endpoint_failed(Endpoint& endpoint);
    // @return true if nothing here knows the endpoint any more, so that it may be freed
    bool release_endpoint(Endpoint& endpoint);
    void lane_failed(Endpoint& endpoint, ucs_status_t status);
    // The transport endpoint need not be that of a kept lane.
    void kept_lane_failed(const uct::Endpoint* lane);
    void marker_posted(Endpoint& endpoint);
    void lane_full(Endpoint& endpoint);
    // Start to give back all lanes.
    void withdraw();
    bool holds_lanes() const {
        return negotiator_.held() + negotiator_.parked() != 0 || !graveyard_.empty();
    }

    // --- ucpx ---
    bool is_adaptive(const Endpoint& endpoint) const;
    ucs_status_t set_policy(Endpoint& endpoint, lanes::Policy policy);
    // What the endpoint's local score is multiplied by; not negative.
    ucs_status_t set_weight(Endpoint& endpoint, double weight);
    const lanes::Negotiator& negotiator() const { return negotiator_; }
    const lanes::Link* link_of(const Endpoint& endpoint) const;
    Endpoint* endpoint_of(lanes::Peer peer) const;
    // A lane to that worker is kept.
    bool keeps_lane_to(uint64_t uuid) const { return kept_.contains(uuid); }
    void set_callback(ucpx_lane_callback_t callback, void* argument) {
        callback_ = callback;
        callback_argument_ = argument;
    }
    uint64_t replays() const { return replays_; }
    uint64_t held_messages() const { return held_messages_; }
    unsigned peak_held() const { return peak_held_; }
    uint64_t windows() const { return windows_; }

    // --- lanes::Sink ---
    lanes::PeerId identify(lanes::Peer peer) override;
    lanes::Pool pool_of(lanes::Peer peer) override { return pool_of(endpoint(peer)); }
    void send(lanes::Peer peer, const lanes::Message& message) override;
    void create_lane(lanes::Peer peer) override;
    void connect_lane(lanes::Peer peer, std::span<const uint8_t> address) override;
    void destroy_lane(lanes::Peer peer) override;
    void keep_lane(lanes::Peer peer) override;
    void take_lane(lanes::Peer peer) override;
    void drop_kept_lane(const lanes::PeerId& peer) override;
    bool makes_room(const lanes::PeerId& kept, lanes::Peer peer) override;
    void start_tx_switch(lanes::Peer peer, const lanes::Message& mark) override;
    void open_tx_window(lanes::Peer peer) override;
    void open_rx_gate(lanes::Peer peer) override;
    void stop_tx_and_mark(lanes::Peer peer, const lanes::Message& dmark) override;
    void flush_lane(lanes::Peer peer) override;
    void open_early(lanes::Peer peer) override;
    void resume_tx(lanes::Peer peer) override;
    void fail_endpoint(lanes::Peer peer, ucs_status_t status) override;
    void closed(lanes::Peer peer) override;
    void notify(lanes::Peer peer, const lanes::Change& change) override;

  private:
    struct Buried {
        lanes::Peer peer;
        std::unique_ptr<LaneState> state;
    };
    // Of no endpoint: the next one to the same worker may take it.
    struct KeptLane {
        QueuePairBudget::Share share;
        std::unique_ptr<uct::Endpoint> dedicated;
        unsigned interface_index = 0;
    };

    // So many flushes look at the clock once while a window is open.
    static constexpr unsigned kFlushesToLook = 16;

    // Until what found no memory is tried again.
    static constexpr ucs::Duration kPause = std::chrono::milliseconds(10);

    static ucs_status_t on_control(void* self, void* data, size_t length,
                                   uct::ReceiveDescriptor* descriptor);
    static ucs_status_t on_ordered(void* self, void* data, size_t length,
                                   uct::ReceiveDescriptor* descriptor);
    void deliver(Endpoint& owner, std::vector<LaneState::Held>& messages);
    static void fence_flushed(uct::Completion* self);
    static void lane_flushed(uct::Completion* self);

    // The rates of an interval on their way from the tracker to the negotiator: some in each
    // progress, so that no call of it takes long.
    struct RateCollection {
        enum class Step : uint8_t { kNone, kCollect, kHandOver };
        struct Found {
            lanes::Peer peer;
            double rate = 0, variance = 0;
            // The lowest comes first out of a heap.
            bool operator<(const Found& other) const { return peer > other.peer; }
        };
        Step step = Step::kNone;
        ucs::Time begun{};
        size_t place = 0;          // in the tracker's table
        std::vector<Found> found;  // a heap
        size_t before = 0;         // in scored_before_
    };

    // A lane that messages wait for.
    struct FullLane {
        lanes::Peer peer;
        ucs::Time end;  // of the patience with it
        bool is_last;   // the peer was given a little more, as this end may have slept itself
    };

    void put_in(uint64_t sender, lanes::Message&& message);
    void hear(const LaneInbox::Entry& heard);
    unsigned hear_some();
    void decide();
    lanes::Peer enter(Endpoint& endpoint);
    // Nothing: there is no memory for one that is new.
    std::optional<lanes::Peer> try_enter(Endpoint& endpoint);
    ucs_status_t prepare(LaneState& state, std::vector<uint8_t>* address);
    void bring_in(lanes::Peer peer, std::unique_ptr<LaneState> state, ucs_status_t status);
    void tick();
    void look_at_window();
    ucs::UsageTracker::Value value_of(uint64_t uuid) const;
    lanes::Pool pool_of(const Endpoint& endpoint) const;
    void begin_collection(ucs::Time now);
    void go_on_collecting();
    void collect_scores();
    void hand_over_scores();
    void begin_marker(LaneState& state);
    ucs_status_t post_end_marker(LaneState& state);
    bool may_retry_marker(LaneState& state);
    static ucs_status_t serve_marker(uct::Pending* self);
    void drop_wanted_lanes();
    void look_at_full_lanes(ucs::Time now);
    void make_graves();
    void make_room_for_retries();
    void retry_at(LaneState& state, ucs::Time when);
    void retry(LaneState& state);
    void try_flush(LaneState& state);
    void lane_drained(LaneState& state);
    Endpoint& endpoint(lanes::Peer peer) const { return *peers_.at(peer); }

    InterfaceSet& interfaces_;
    EndpointTable& endpoints_;
    Gate& gate_;
    const Config& config_;
    const ucs::Clock& clock_;
    const Options options_;
    OnLaneChange on_lane_change_;
    lanes::Negotiator negotiator_;
    std::optional<ucs::UsageTracker> tracker_;
    uint64_t seen_rounds_ = 0;
    unsigned flushes_ = 0;  // that had nothing to wait for while a window was open
    uint64_t looks_ = 0;    // at rates of endpoints that learn
    RateCollection collection_;
    std::vector<lanes::Peer> scored_, scored_before_;  // in order
    std::unordered_map<uint64_t, double> weights_;     // by the peer's worker id; others have 1
    std::map<lanes::Peer, Endpoint*> peers_;           // grows without a step that takes long
    std::vector<Buried> graveyard_;
    std::unordered_map<uint64_t, KeptLane> kept_;        // by the peer's worker id
    std::vector<std::unique_ptr<LaneState>> abandoned_;  // lanes gone, a completion still out
    std::vector<lanes::Peer> to_forget_;
    // Whose lane's marker or flush is to be tried again; room for all lanes in both.
    std::vector<Endpoint*> to_retry_, retrying_;
    std::vector<FullLane> full_lanes_;
    ucs::Time next_full_look_ = ucs::kNever;
    ucs::Time next_retry_ = ucs::kNever;  // of what found no memory
    bool has_deferred_ = false;
    LaneInbox inbox_;
    ucs::Time heard_since_{};   // the oldest in the inbox came, or one before it
    bool has_heard_ = false;    // messages of peers since the last decisions
    bool has_decided_ = false;  // this call of progress has done enough

    ucpx_lane_callback_t callback_ = nullptr;
    void* callback_argument_ = nullptr;
    uint64_t replays_ = 0;
    uint64_t held_messages_ = 0;  // that receive gates held back so far
    uint64_t windows_ = 0;
    unsigned peak_held_ = 0;
};

}  // namespace ucp

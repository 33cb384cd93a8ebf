// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <type_traits>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/unordered_set.hpp>

#include "ucp/api/ucp.h"
#include "ucp/base/request.h"
#include "ucp/base/wire.h"
#include "ucp/endpoint/configuration.h"
#include "ucp/endpoint/control_queue.h"
#include "ucp/endpoint/endpoint_host.h"
#include "ucp/endpoint/extras.h"
#include "ucp/endpoint/one_sided_fence.h"
#include "ucp/lanes/switch.h"
#include "ucs/datastruct/usage_tracker.h"
#include "uct/api/interface.h"

namespace ucp {

class Backlog;
struct LaneState;

// The way from a worker to a remote worker.
//
// Small: what only few endpoints need at a time lies in records of their own, the Backlog (messages
// that wait for room) and the LaneState (a dedicated lane on its way up, in use, or on its way
// down). Owned by its worker's EndpointTable; freed only from the worker's progress or when the
// worker goes, so that callbacks may close endpoints.
//
// Order: requests are posted in the order of submit(); control messages have a queue of their own,
// always use the scalable lane and never wait behind requests. Which lane a request takes is
// decided anew for each piece of it (docs/design/lanes.md).
class Endpoint : public boost::intrusive::list_base_hook<>,
                 public boost::intrusive::unordered_set_base_hook<> {
  public:
    Endpoint(EndpointHost& host, uint64_t remote_uuid, ConfigurationRef configuration,
             std::unique_ptr<uct::Endpoint> scalable);
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;

    EndpointHost& host() const { return *host_; }
    Gate& gate() const { return host_->gate; }
    RequestPool& requests() const { return host_->requests; }
    uint64_t local_uuid() const { return host_->uuid; }
    // The number of a message that goes in fragments.
    uint64_t next_message() const { return host_->next_message(); }
    // Atomics of adapters that are not atomic with the CPU's may be used: all use them.
    bool uses_device_atomics() const { return host_->interfaces.uses_device_atomics(); }
    // Whether the message that is being handled is from this peer, as far as the transport knows.
    // If not the message is refused.
    bool admits(AmId id) const;
    uint64_t remote_uuid() const { return remote_uuid_; }
    // Names the endpoint within its worker; never used twice.
    uint64_t serial() const { return serial_; }

    // --- fast path ---

    // True if a message of `length` bytes may go by am_short on tx_lane() right now.
    bool fits_short(size_t length) const { return static_cast<ptrdiff_t>(length) <= short_limit_; }
    // The same under the lock, which several threads take first: for them fits_short() is false.
    bool fits_short_locked(size_t length) const {
        return static_cast<ptrdiff_t>(length) <= locked_short_limit_;
    }
    uct::Endpoint& tx_lane() const { return *tx_lane_; }
    const uct::InterfaceAttributes& tx_attributes() const {
        return is_scalable(tx_lane_) ? configuration_->scalable() : dedicated_lane().attributes;
    }
    // Post a short message on tx_lane(). @return as uct::Endpoint::am_short()
    ucs_status_t post_short(AmId id, uint64_t header, const void* payload, size_t length) {
        return with_memory([&] {
            return tx_lane_->am_short(static_cast<uint8_t>(id), header, payload,
                                      static_cast<uint32_t>(length));
        });
    }
    // True if a message that is posted on tx_lane() right now keeps its place among the others.
    bool message_ready() const;
    ucs::UsageTracker::Hook& tracker_hook() { return tracker_hook_; }
    // Count a send. Only while the usage tracker is armed.
    void touch(size_t bytes) { gate().touch(tracker_hook_, remote_uuid_, bytes); }
    // Count a send if the usage tracker is armed and the worker is of one thread.
    void touch_if_unlocked(size_t bytes) {
        if ((gate().bits() & Gate::kTracker) != 0) touch(bytes);
    }
    // True if sends are counted (worker of one thread), or buffers may lie in memory of devices.
    bool is_watched() const { return (gate().bits() & (Gate::kTracker | Gate::kDevices)) != 0; }
    // The buffer may lie in the memory of a device; the long way finds out.
    bool may_be_on_device(const void* buffer) const {
        return (gate().bits() & Gate::kDevices) != 0 && !gate().is_host(buffer);
    }
    // What a short send does first: it is counted if the tracker is armed.
    // @param tracker  the bits that say so
    // @return false: the buffer may lie in the memory of a device; the long way finds out
    [[gnu::always_inline]] bool pass_gate(const void* buffer, size_t bytes, uint32_t tracker) {
        const uint32_t raised = gate().bits() & (tracker | Gate::kDevices);
        if (raised == 0) [[likely]]
            return true;
        if (raised < Gate::kDevices) {  // the bits of the tracker are lower
            touch(bytes);
            return true;
        }
        if (raised == Gate::kDevices && Gate::is_known_host(buffer)) [[likely]]
            return true;
        return pass_devices(buffer, bytes, tracker);
    }
    // Count a send that did not pass the gate, of any size. Under the lock.
    void count_send(size_t bytes);

    // True if a one-sided operation may go to one_sided_lane() right now: nothing waits before it
    // and no fence is due.
    bool one_sided_ready() const {
        return !has_backlog_ && status_ == UCS_OK && fence_.has_seen(host_->fence_sequence) &&
               (fence_.before() == 0 || fence_.before() == one_sided_bit());
    }
    // True if this processor may do a one-sided operation by itself, in memory of the peer that is
    // mapped here (uct::MappedRegion), without a lane and within the call.
    [[gnu::always_inline]] bool may_act_in_place() {
        return is_unfenced() || (acts_in_place_ && pass_fence());
    }
    // True as well, but only if no fence has to be passed first.
    [[gnu::always_inline]] bool is_unfenced() const {
        return acts_in_place_ && fence_.is_passed(host_->fence_sequence);
    }
    // The lane of one-sided operations: dedicated as soon as it is up and until it is stopped.
    Lane one_sided_lane();
    // A one-sided operation was posted past the queue: fences have to know.
    void note_one_sided(const Lane& lane) { fence_.use(lane_bit(lane)); }

    // --- requests ---

    // Start a request that a user's call made, and give the call's result: an immediate status, or
    // the handle. Honours UCP_OP_ATTR_FLAG_NO_IMM_CMPL.
    ucs_status_ptr_t submit(Request& request, const OpParams& params);
    // Start a request of the library's own, or one that was submitted before.
    void start(Request& request);
    // A request that another one, `whole`, is made of: it takes the place before `whole` in the
    // queue, or, if that does not wait there, is started.
    void start_within(Request& part, Request& whole);
    // Take a request out of the send queue; its posting reference is the caller's then.
    // @return false if it is not there (any more)
    bool withdraw(Request& request);
    bool has_backlog() const { return has_backlog_; }
    // Post the control messages that wait. @return whether none is left
    bool post_waiting_controls();

    // Send a message on the scalable lane, before all waiting requests. The bytes are copied.
    // Never fails towards the caller: on a failed endpoint the message is dropped.
    void send_control(AmId id, std::span<const std::byte> message);
    // The same; the peer is greeted first, so that it can answer.
    void send_control_greeted(AmId id, std::span<const std::byte> message);

    // Let the peer know this worker's address before a message that names this worker.
    // @return UCS_OK: it knows, or will before the message; UCS_ERR_NO_RESOURCE: not yet. Requests
    //         with kNeedsGreeting are held back by themselves.
    ucs_status_t greet();
    // HELLO was posted.
    bool has_greeted() const { return greeting_ == Greeting::kPosted; }
    // The peer does not answer, and may have no endpoint to this worker any more: it makes one.
    void greet_again();

    // --- the negotiation of lanes: throw std::bad_alloc, and have not queued the message then. The
    //     endpoint does not fail, since these are tried again.

    // A message of the negotiation. @param greets_anew  the peer is greeted again first, which may
    // have been done though this throws: to the peer greetings are alike
    void negotiate(std::span<const std::byte> message, bool greets_anew);
    // The last message of its direction on the scalable lane.
    void send_marker(std::span<const std::byte> message);

    // --- operations that end at the peer, not at the lane (rendezvous, emulated RMA, sync) ---

    // An operation started whose remote end is known by an answer: flush waits for the answer.
    // @return its number, which tells when it has finished: they may end in any order
    uint32_t remote_operation_started() {
        host_->is_settled = false;
        return remote_started_++;
    }
    void remote_operation_finished(uint32_t number);
    bool has_remote_operations() const { return remote_started_ != remote_finished_; }
    uint32_t remote_started() const { return remote_started_; }
    // It works, and all that was started is done: there is nothing for a flush to wait for.
    // Whatever ends that, but on a lane, clears EndpointHost::is_settled.
    bool is_flushed() const;
    // Flushes that the program has begun, of all endpoints of the worker.
    uint32_t flushes() const { return host_->flushes; }
    // Remote operations with lower numbers have finished.
    uint32_t remote_finished() const { return remote_finished_; }

    // --- failure ---

    bool is_failed() const { return status_ != UCS_OK; }
    ucs_status_t status() const { return status_; }
    // Later operations return `status`; all that the endpoint holds fails, and the user is told, in
    // the next progress of the worker.
    void fail(ucs_status_t status);
    // The same where the peer lives and its messages get here, and would wait for answers: it is
    // told, so that its endpoint fails with UCS_ERR_CONNECTION_RESET.
    void reset(ucs_status_t status);
    // No memory for what must not be left out: reset().
    void out_of_memory();
    // reset() has found no room, or no memory, to tell the peer so far.
    bool is_untold() const {
        return failure_ == Failure::kToPurgeAndTell || failure_ == Failure::kToTell;
    }
    // After end_waiting(), if it is untold: now, or as soon as the lane has room.
    void tell_peer();
    // Tell the peer now.
    // @return UCS_OK: it is told; UCS_ERR_NO_RESOURCE; UCS_ERR_NO_MEMORY
    ucs_status_t post_reset();
    // The scalable lane has failed: a peer that is untold learns by that.
    void end_telling();
    void log_failure() const;
    // It has failed: what waits in it ends with its status.
    void end_waiting();
    // It has failed, and nothing is left in it: tell the user, if he wants to know.
    void tell_failure();
    // It has failed, and what it holds is still to be ended.
    bool is_to_be_purged() const {
        return failure_ == Failure::kToPurge || failure_ == Failure::kToPurgeAndTell;
    }
    // The purge was tried.
    // @param has_failed  not all of it could be done: it is to be tried again
    void note_purge(bool has_failed) { failure_ = failure_of(has_failed, is_untold()); }

    // --- its life ---

    bool is_closing() const { return life_ != Life::kOpen; }
    // What the user has started is not all done yet.
    bool is_being_closed() const { return life_ == Life::kClosing; }
    bool is_doomed() const { return life_ == Life::kDoomed; }
    // The user closes it, or another takes its place.
    void begin_closing() {
        if (life_ == Life::kOpen) life_ = Life::kClosing;
    }
    // The user has closed it, and it stays as the library's own.
    void end_closing() { life_ = Life::kOpen; }
    // It is to be freed.
    void set_doomed() { life_ = Life::kDoomed; }

    // --- roles ---

    // The endpoint of its uuid that takes part in lane selection.
    bool is_primary() const { return is_primary_; }
    void set_primary(bool is_primary) { is_primary_ = is_primary; }
    bool is_users() const { return owner_ != Owner::kLibrary; }
    // The user wants to hear that the peer failed: UCP_ERR_HANDLING_MODE_PEER.
    bool reports_peer_errors() const { return owner_ == Owner::kUserWithPeerErrors; }
    // The peer's HELLO came: it may name us at any time.
    bool peer_has_greeted() const { return peer_has_greeted_; }
    void set_peer_has_greeted() { peer_has_greeted_ = true; }
    // The program has got it as reply endpoint of a message: operations on it are the program's,
    // too.
    bool is_lent() const { return is_lent_; }
    void set_lent() { is_lent_ = true; }
    // Both sides have a dedicated transport beside the scalable one.
    bool is_promotable() const { return standing_ == Standing::kPromotable; }
    // There is no key: this worker's address is not for the peer, and lanes are not agreed on.
    bool is_stranger() const { return standing_ == Standing::kStranger; }
    void set_stranger() { standing_ = Standing::kStranger; }
    // Given to the user by ucp_ep_create; may be closed again.
    void give_to_user(const ucp_ep_params_t& params);
    void take_from_user();
    // ucp_ep_modify_nb(): @return UCS_ERR_INVALID_PARAM for what cannot be changed
    ucs_status_t modify(const ucp_ep_params_t& params);

    // Its lanes by role and memory type, shared with all endpoints alike.
    const EndpointConfiguration& configuration() const { return *configuration_.get(); }
    // By which protocols operations go that are posted on that lane.
    const select::ProtocolTable& protocols(const Lane& lane) const {
        return configuration_->protocols(&lane.endpoint != scalable_.get());
    }
    // The same for the lane of messages at the moment.
    const select::ProtocolTable& protocols() const {
        return configuration_->protocols(tx_lane_ != scalable_.get());
    }
    // What is learned over the lane of messages at the moment; null: nothing is.
    const LearnedLane* learned(select::Operation operation = select::Operation::kTag) const {
        return configuration_->learned(tx_lane_ != scalable_.get(), operation);
    }
    // The same over that lane.
    const LearnedLane* learned(const Lane& lane, select::Operation operation) const {
        return configuration_->learned(&lane.endpoint != scalable_.get(), operation);
    }
    unsigned scalable_index() const { return configuration_->lanes().scalable; }
    // Transport of the dedicated lane that hot endpoints get; if it is_promotable().
    unsigned dedicated_index() const { return configuration_->lanes().dedicated; }
    DomainPair domains() const { return configuration_->lanes().domains; }
    uct::Endpoint* scalable() const { return scalable_.get(); }
    Lane scalable_lane() const { return {*scalable_, configuration_->scalable(), domains()}; }
    LaneState* lane_state() const { return lane_state_; }
    Lane dedicated_lane() const;
    // Whether messages on that lane go over the scalable one: it is that, or the ordered lane on
    // top of it.
    bool is_scalable(const uct::Endpoint* lane) const;
    // Gives it a dedicated lane, which its direction does not use yet.
    void attach_lane(std::unique_ptr<LaneState> state);
    // Takes its dedicated lane; null if there was none. lanes_changed() is to follow.
    std::unique_ptr<LaneState> detach_lane();
    // All one-sided operations on the dedicated lane are done.
    void dedicated_drained() { fence_.forget(kDedicatedBit); }
    // The first of what waits does so for room on the dedicated lane.
    bool waits_for_dedicated() const;
    // The flush that a fence waited for is done on that lane (LaneState::Fence).
    void fence_flushed(uint8_t lane_bit) {
        fence_.forget(lane_bit);
        pump();
    }
    // Requests in the send queue; they are counted up to `most`.
    size_t waiting_requests(size_t most = SIZE_MAX) const;
    // What few endpoints have; null: nothing of it.
    EndpointExtras* extras() const { return extras_.get(); }
    EndpointExtras& make_extras();
    // A peer that is connected by a socket learns that this endpoint is no more.
    void hang_up();
    // The peer is known now, and `made`, which was made for it, gives this endpoint its lanes. What
    // waits for them is to be pumped. `made` is to be destroyed.
    void take_lanes(Endpoint& made);
    // The argument of the error callback, and what stream polls report.
    void* user_argument() const { return extras_ == nullptr ? nullptr : extras_->user_argument; }
    bool owns(const uct::Endpoint* lane) const;
    // The domains of its lanes and of its rails, as many as `pairs` takes: what the keys of a bulk
    // transfer are opened for.
    std::span<const DomainPair> domain_pairs(std::span<DomainPair> pairs) const;
    // Number of a lane's transport in the InterfaceSet.
    unsigned interface_of(const Lane& lane) const;
    // The peer is not known yet.
    bool is_waiting() const { return remote_uuid_ == 0; }
    OneSidedFence& fence() { return fence_; }
    // Flush the lanes that carried one-sided operations before the last fence.
    // @return UCS_OK; UCS_INPROGRESS; UCS_ERR_NO_RESOURCE: some may be under way, call again
    ucs_status_t flush_fenced(uct::Completion& completion);
    // Whether all that was posted on one of the lanes is complete since it is gone or about to.
    bool is_drained(const uct::Endpoint* lane) const;
    // The longest short message that the current lane takes, in bytes; -1 if none may go that way.
    ptrdiff_t short_limit() const { return locked_short_limit_; }

    // Lanes or directions changed: choose again where to wait, and post what may be posted.
    void lanes_changed();
    void pump();
    // pump() in the next progress of the worker.
    void pump_later();
    // What pump_later() put off.
    void pump_now();
    bool is_to_be_pumped() const { return is_to_be_pumped_; }
    void pump_controls();
    // Control messages that found no memory, and what waits behind them, may be tried again.
    void retry_controls();
    // A control message was posted.
    void control_posted(ControlMessage::Then then);

  private:
    class MakingWay;

    // HELLO, which tells the peer this worker's address.
    enum class Greeting : uint8_t { kNone, kQueued, kPosted };
    enum class Life : uint8_t {
        kOpen,
        kClosing,  // the user has closed it, or another has taken its place
        kDoomed,   // freed by the next progress
    };

    // What is still to be done about its failure.
    enum class Failure : uint8_t {
        kNone,            // it has not failed
        kToPurgeAndTell,  // what it holds is to be ended, and its peer to be told
        kToPurge,
        kToTell,
        kDealtWith,
    };
    static Failure failure_of(bool to_purge, bool to_tell) {
        if (to_purge) return to_tell ? Failure::kToPurgeAndTell : Failure::kToPurge;
        return to_tell ? Failure::kToTell : Failure::kDealtWith;
    }

    // Who has its handle, and hears of its end.
    enum class Owner : uint8_t { kLibrary, kUser, kUserWithPeerErrors };

    enum class Standing : uint8_t {
        kStranger,    // the peer is nobody that lanes are agreed on with
        kPeer,        // of the job, without a dedicated transport that both have
        kPromotable,  // with one
    };

    // What may be done next, and on which lane.
    struct Step {
        enum class Kind : uint8_t { kRequest, kFenceFlush };
        Kind kind;
        Lane lane;
        Request* request;
    };

    // Is all done that was begun before the last fence? If so, what comes now need not look again.
    bool pass_fence();
    // Lanes that have nothing under way have none of one-sided operations.
    void forget_flushed();
    // The rest of pass_gate() where devices are in use.
    bool pass_devices(const void* buffer, size_t bytes, uint32_t tracker);
    // The next step of what waits; nothing if nothing waits or a direction is stopped.
    std::optional<Step> next_step();
    std::optional<Step> step_of(Request& request);
    // @return UCS_OK: done, look for the next; UCS_ERR_NO_RESOURCE: wait on its lane
    ucs_status_t take(const Step& step);
    ucs_status_t take_request(Request& request, const Lane& lane);
    // Post a piece of the request. Where memory runs out half-way nobody knows what is posted: the
    // endpoint fails as well, since nothing may be missing among its messages.
    ucs_status_t try_post(Request& request, const Lane& lane);
    ucs_status_t post(Request& request, const Lane& lane);
    ucs_status_t flush_for_fence(const Lane& lane);
    // These throw std::bad_alloc; nothing is queued then.
    ucs_status_t begin_greeting();
    void queue_hello();
    void queue_control(AmId id, std::span<const std::byte> message, ControlMessage::Then then);
    // @return false: there is no memory to wait in
    bool enqueue(Request& request);
    // @return false: it is not in the queue (any more)
    bool dequeue(Request& request);
    void fail(ucs_status_t status, bool to_tell);
    // The peer is told that it has failed, or learns it otherwise.
    void told();
    // Do what may need memory. @return what it returns, else UCS_OK; UCS_ERR_NO_MEMORY
    template <typename Work>
    ucs_status_t with_memory(Work work) {
        try {
            if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
                work();
                return UCS_OK;
            } else {
                return work();
            }
        } catch (const std::bad_alloc&) {
            out_of_memory();
            return UCS_ERR_NO_MEMORY;
        }
    }
    void end_posting(Request& request, ucs_status_t status);
    Backlog& backlog();
    // Tells the trace that the first request waits, or that none does any more.
    void trace_stall(bool begins) const;
    uint8_t lane_bit(const Lane& lane) const {
        return &lane.endpoint == scalable_.get() ? kScalableBit : kDedicatedBit;
    }
    uint8_t one_sided_bit() const;
    void set_handlers(const ucp_ep_params_t& params);
    bool has_error_callback() const {
        return extras_ != nullptr && extras_->error_callback != nullptr;
    }
    void update_fast_path();
    static ucs_status_t serve_requests(uct::Pending* pending);

    static constexpr uint8_t kScalableBit = 1;
    static constexpr uint8_t kDedicatedBit = 2;

    // First cache line: all that a short send reads.
    uct::Endpoint* tx_lane_;
    ptrdiff_t short_limit_ = -1;  // -1 whenever anything is unusual, and for several threads
    EndpointHost* host_;
    uint64_t remote_uuid_;
    ucs::UsageTracker::Hook tracker_hook_;
    Owner owner_ = Owner::kLibrary;
    Standing standing_ = Standing::kPeer;
    bool is_primary_ : 1 = false;
    bool peer_has_greeted_ : 1 = false;
    bool is_lent_ : 1 = false;
    bool is_to_be_pumped_ : 1 = false;  // by the next progress
    bool makes_way_ : 1 = false;        // control messages go before a request that is being posted
    bool has_backlog_ : 1 = false;      // a request waits
    bool acts_in_place_ : 1 = false;    // nothing waits, and it works
    ucs_status_t status_ = UCS_OK;
    OneSidedFence fence_;
    ConfigurationRef configuration_;

    std::unique_ptr<uct::Endpoint> scalable_;
    LaneState* lane_state_ = nullptr;
    std::unique_ptr<Backlog> backlog_;
    std::unique_ptr<EndpointExtras> extras_;
    uint64_t serial_;
    uint32_t remote_started_ = ucs::first_number();
    uint32_t remote_finished_ = remote_started_;
    Greeting greeting_ = Greeting::kNone;
    Life life_ = Life::kOpen;
    Failure failure_ = Failure::kNone;
    int32_t locked_short_limit_ = -1;  // -1 whenever anything is unusual
};

}  // namespace ucp

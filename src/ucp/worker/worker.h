// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <boost/intrusive/list.hpp>
#include <boost/intrusive/unordered_set.hpp>

#include "ucp/api/ucp.h"
#include "ucp/select/worker_address.h"
#include "ucp/context/context.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/base/request.h"
#include "ucp/worker/wakeup.h"
#include "ucp/base/wire.h"
#include "ucp/proto/select/dialogue.h"
#include "ucp/select/selection.h"
#include "ucs/datastruct/memory_pool.h"
#include "ucs/datastruct/slot_table.h"
#include "ucs/random.h"
#include "ucs/time.h"
#include "ucs/usage_tracker.h"
#include "uct/api/interface.h"

namespace ucp {

namespace wireup {
class ConnectionManager;
}
class Keepalive;
namespace bulk {
class Engine;
class QueuePairDriver;
}  // namespace bulk

class AmHandlers;
class LaneDriver;
class Reassembly;
class Streams;
class TagEngine;

/** A transport as a worker uses it. */
struct WorkerInterface {
    std::unique_ptr<uct::Interface> transport;
    unsigned resource;            //!< Context::resources()
    unsigned domain;              //!< Context::domains()
    uint32_t kind;                //!< hash of the transport's name
    unsigned endpoints_made = 0;  //!< on it so far, closed ones included
    bool may_rest = false;        //!< polled seldom while nothing comes
    uint32_t quiet = 0;           //!< polls without an event, if it may rest
};

/** The user's function for notifications (bulk/notification.h). */
struct NotifyHandler {
    void (*callback)(void* arg, uint64_t sender_uid, uint64_t notification) = nullptr;
    void* argument = nullptr;
};

/** A further way to a peer, beside the scalable lane and of its kind, for bulk. */
struct Rail {
    unsigned interface;  //!< Worker::interface()
    int dedicated;       //!< the dedicated interface that both ends have on these devices, or -1
    DomainPair domains;  //!< for registrations and remote keys
    std::vector<std::byte> remote_device;
    std::vector<std::byte> remote_interface;

    /** For Interface::create_endpoint(). */
    uct::RemoteAddress address() const { return {remote_device, remote_interface, {}}; }
};

/**
 * A progress engine with its own transports, endpoints, requests and matching.
 *
 * One thread at a time: the C functions take lock() if the worker was made for several threads.
 * Callbacks of the user run inside progress(), under the lock, which is recursive.
 */
class Worker {
  public:
    static ucs_status_t create(Context& context, const ucp_worker_params_t& params,
                               std::unique_ptr<Worker>* worker);
    ~Worker();
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    // --- what every call looks at once ---

    enum Gate : uint32_t {
        kGateThreads = 1u << 0,        //!< several threads: take the lock
        kGateTracker = 1u << 1,        //!< the usage tracker is armed: report sends
        kGateTrackerLocked = 1u << 2,  //!< the same for several threads: under the lock
    };
    uint32_t gate() const { return gate_.load(std::memory_order_relaxed); }
    std::recursive_mutex& mutex() { return mutex_; }
    ucs_thread_mode_t thread_mode() const { return thread_mode_; }
    void set_gate(Gate bit, bool on) {
        gate_.store(on ? gate() | bit : gate() & ~uint32_t{bit}, std::memory_order_relaxed);
    }
    /** The tracker was armed or disarmed. */
    void set_tracker_gate(bool armed) {
        set_gate((gate() & kGateThreads) != 0 ? kGateTrackerLocked : kGateTracker, armed);
    }
    /** The tracker is armed: count a send. */
    void touch(Endpoint& endpoint, size_t bytes) {
        tracker_->touch(endpoint.tracker_hook(), endpoint.remote_uuid_, bytes);
    }
    void touch_if_armed(Endpoint& endpoint, size_t bytes) {
        if ((gate() & (kGateTracker | kGateTrackerLocked)) != 0) touch(endpoint, bytes);
    }
    /** Atomics of adapters that are not atomic with the CPU's may be used: all use them. */
    bool uses_device_atomics() const { return uses_device_atomics_; }
    bool has_threads() const { return (gate() & kGateThreads) != 0; }
    /** Largest message that may go by am_short, from UCX_BCOPY_THRESH. */
    size_t short_limit() const { return short_limit_; }

    // --- progress and time ---

    unsigned progress();
    /** Work put aside for the next progress(), whatever the transports have. */
    bool has_work() const;
    /** The next progress() runs what is put aside. */
    void work_later() { has_work_.store(true, std::memory_order_relaxed); }
    /** Made at first use, which for a context with UCP_FEATURE_WAKEUP is the worker's creation. */
    ucs_status_t wakeup(Wakeup** wakeup);
    /** The next progress() looks at what it looks at only now and then. */
    void look_soon() { progress_countdown_ = 0; }
    /** That, and at every interface: if it finds nothing, nothing had come. */
    void look_everywhere();
    /** When progress() has work that only time brings; kNever if none. */
    ucs::Time next_deadline() const;
    ucs::Time now() const { return context_.clock().now(); }

    // --- parts ---

    Context& context() { return context_; }
    const Config& config() const { return context_.config(); }
    uint64_t uuid() const { return uuid_; }
    const std::string& name() const { return name_; }
    ucs::Random& random() { return random_; }
    TagEngine& tags() { return *tags_; }
    AmHandlers& am_handlers() { return *am_handlers_; }
    Reassembly& reassembly() { return *reassembly_; }
    Streams& streams() { return *streams_; }
    NotifyHandler& notify_handler() { return notify_handler_; }
    LaneDriver& lanes() { return *lanes_; }
    bulk::Engine& bulk() { return *bulk_; }
    bulk::QueuePairDriver& bulk_queue_pairs() { return *queue_pairs_; }
    std::span<WorkerInterface> interfaces() { return interfaces_; }
    WorkerInterface& interface(unsigned index) { return interfaces_[index]; }
    /** For protocols, before any message can arrive. The argument is the worker unless given. */
    void set_handler(AmId id, uct::AmHandler handler) { set_handler(id, handler, this); }
    void set_handler(AmId id, uct::AmHandler handler, void* argument) {
        am_table_.entries[static_cast<size_t>(id)] = {handler, argument};
    }

    /** The worker's address, packed. */
    const std::vector<std::byte>& address() const { return address_; }
    /** The same with the transports that `flags` (ucp_worker_address_flags_t) leaves. */
    std::vector<std::byte> address(uint32_t flags) const { return pack_own(flags, nullptr); }
    /**
     * The rails to a peer beside the scalable lane of its endpoints, best first; empty if it is the
     * only one or UCX_MAX_RNDV_RAILS allows no more. Valid until the next progress().
     */
    std::span<const Rail> rails(uint64_t uuid) const;
    /**
     * The domains of an endpoint's lanes and of its rails, as many as `pairs` takes: what the keys
     * of a bulk transfer are opened for.
     */
    std::span<const DomainPair> domain_pairs(const Endpoint& endpoint,
                                             std::span<DomainPair> pairs) const;
    /** ucpx_worker_explain(): all candidates for lanes to a peer, and why each is what it is. */
    void explain(const WorkerAddress& peer, FILE* stream);

    // --- endpoints ---

    /** ucp_ep_create(): a new endpoint, or the internal one of that peer, given to the user. */
    ucs_status_t create_endpoint(const ucp_ep_params_t& params, Endpoint** endpoint);
    /** An endpoint to a worker that its address is known of: a new one, or the internal one. */
    ucs_status_t create_to(const WorkerAddress& remote, Endpoint** endpoint);
    /** An endpoint whose peer is not known yet; what it is to send waits for connect_waiting(). */
    Endpoint& create_waiting();
    ucs_status_t connect_waiting(Endpoint& endpoint, const WorkerAddress& remote);
    /** What connects endpoints by socket address; made at first use. */
    ucs_status_t connections(wireup::ConnectionManager** manager);
    /** It has something to do. Asks the system: not for every progress. */
    bool has_callers() const;
    /** From ucp_worker_params_t. */
    uint64_t client_id() const { return client_id_; }
    /** The primary endpoint of a peer; null if there is none. Failed ones are not found. */
    Endpoint* find_endpoint(uint64_t uuid);
    /** The endpoint that owns a transport endpoint; slow, for errors. */
    Endpoint* find_owner(const uct::Endpoint* lane);
    template <typename Visitor>
    void for_each_endpoint(Visitor visit) {
        for (Endpoint& endpoint : endpoints_) visit(endpoint);
    }
    /** ucp_ep_close_nbx(). */
    ucs_status_ptr_t close_endpoint(Endpoint& endpoint, unsigned flags, const OpParams& params);
    /** Free the endpoint in the next progress(). */
    void doom(Endpoint& endpoint);
    void pump_later(Endpoint& endpoint);
    void purge_later(Endpoint& endpoint);
    /** End the named requests of a failed endpoint. */
    void abort_named(Endpoint& endpoint, ucs_status_t status);
    /** The answer that the request waits for will not come. */
    void abort(Request& request, ucs_status_t status);
    uint32_t next_serial() { return ++serials_; }
    /** A dedicated lane came or went. */
    void count_dedicated(int change);
    /** A message that a receive gate held back. */
    void deliver_held(uint8_t id, void* data, size_t length);
    /** A flush whose lanes are flushed waits for answers of the peer, if any are due. */
    void wait_for_answers(Request& request);

    // --- requests ---

    /** A request of the library's own; null if there is no memory. */
    Request* allocate_request(uint32_t flags = Request::kInternal);
    /**
     * A request for a user's call: in the user's memory if the parameters say so, with the
     * callback that they hold. kInCall is set: end_call() or Endpoint::submit() ends the call, or
     * recycle() if it was in vain.
     */
    Request* begin_request(const OpParams& params, Request::CallbackKind kind);
    /**
     * A posted receive has got all it waited for: what complete() does for a request with one
     * reference, outside of calls, with no name and nothing to clean up.
     */
    void end_receive(Request& request) {
        const bool is_given_up = (request.flags & Request::kFreed) != 0;
        const ucp_tag_recv_nbx_callback_t callback = request.on_finish.tag_receive;
        request.count = 0;
        request.cleanup = nullptr;
        request.set_finished();
        // As in deliver(): the request may be gone from here on.
        if (callback != nullptr)
            callback(request.handle(), UCS_OK, &request.tag_info, request.user_data);
        if (is_given_up) [[unlikely]]
            recycle(request);
    }
    /** The light request of a receive that is posted in this call. Null if there is no memory. */
    Request* begin_posted(const OpParams& params) {
        uint32_t flags = Request::kLight | Request::kReceive;
        void* memory;
        if (params.has(UCP_OP_ATTR_FIELD_REQUEST)) {
            memory = &Request::from_handle(params.raw().request);
            flags |= Request::kUserMemory;
        } else {
            memory = requests_.allocate();
            if (memory == nullptr) [[unlikely]]
                return nullptr;
        }
        auto* request = new (memory) Request(Request::Light());
        request->worker = this;
        request->flags = flags;
        request->callback_kind = Request::CallbackKind::kTagReceive;
        if (params.has_callback()) request->on_finish.tag_receive = params.raw().cb.recv;
        request->user_data = params.user_data();
        return request;
    }
    /** A request that was never started, or is finished, and whose handle nobody holds. */
    void recycle(Request& request) {
        if ((request.flags & Request::kUserMemory) != 0) return;
        request.~Request();
        requests_.release(&request);
    }
    /**
     * A receive's or an internal request's result for the user's call that began it: takes the
     * handle back if the request is finished (kDoneInCall), unless `params` forbid it. Fills
     * recv_info.
     */
    ucs_status_ptr_t end_call(Request& request, const OpParams& params);
    /** The request's call ends with `status` and without a handle. */
    ucs_status_ptr_t give_back(Request& request, ucs_status_t status);
    /** Drop a reference of the request in the next progress(): for failures inside calls. */
    void finish_later(Request& request, ucs_status_t status);
    /** ucp_request_free(): nobody is told of the end if it is still to come. */
    void free_request(Request& request) {
        if (request.is_finished() && lent_.empty()) [[likely]] {
            recycle(request);
        } else {
            request.on_finish = {};
            release_request(request);
        }
    }
    /** ucp_request_release(): the memory goes back at the end, of which the callback tells still.
     */
    void release_request(Request& request);
    /** ucp_request_alloc(): memory of the pool that the user treats as his own. */
    Request* lend_request();

    /** Give the request a name on the wire; Endpoint failure finds it by this table as well. */
    uint64_t name_request(Request& request);
    /** @return null for a name that is not in use: names come from outside */
    Request* find_request(uint64_t wire_id);
    void unname_request(Request& request);
    /** Requests are under way that messages of peers will name. */
    bool has_named_requests() const { return named_.size() != 0; }
    uint64_t next_message_number() { return ++message_number_; }
    /** Of its long tagged messages. */
    Dialogue& dialogue() { return dialogue_; }

    // --- ordering ---

    uint32_t fence_sequence() const { return fence_sequence_; }
    void fence() { ++fence_sequence_; }
    ucs_status_ptr_t flush(const OpParams& params);

    void print_info(FILE* stream) const;

  private:
    friend class Endpoint;
    friend struct Request;
    friend class LaneDriver;
    friend void flush_remote_finished(Endpoint& endpoint);
    friend void flush_endpoint_failed(Endpoint& endpoint, ucs_status_t status);

    struct EndpointKey {
        using type = uint64_t;
        uint64_t operator()(const Endpoint& endpoint) const { return endpoint.remote_uuid(); }
    };
    struct EndpointHash {
        size_t operator()(uint64_t uuid) const { return ucs::mix64(uuid); }
    };
    using EndpointList =
        boost::intrusive::list<Endpoint, boost::intrusive::constant_time_size<false>>;
    using EndpointTable =
        boost::intrusive::unordered_set<Endpoint, boost::intrusive::key_of_value<EndpointKey>,
                                        boost::intrusive::hash<EndpointHash>,
                                        boost::intrusive::power_2_buckets<true>>;

    /** Prepares the user's part of each request of the pool once. */
    class RequestChunks final : public ucs::ChunkSource {
      public:
        explicit RequestChunks(Context& context) : context_(context) {}
        Chunk allocate(size_t bytes) override;
        void release(const Chunk& chunk, size_t bytes) override;
        void prepare(void* object, const Chunk& chunk) override;

      private:
        Context& context_;
        std::vector<void*> prepared_;
    };

    Worker(Context& context, const ucp_worker_params_t& params);
    ucs_status_t open_interfaces();
    ucs_status_t open_interface(unsigned resource);
    ucs_status_t connect(const WorkerAddress& remote, Endpoint** endpoint);
    ucs_status_t adopt_address();
    std::vector<std::byte> pack_own(uint32_t flags, std::vector<uint8_t>* interfaces) const;
    bool reaches(uint8_t local, const AddressEntry& remote) const;
    select::Options selection_options() const;
    void keep_rails(const WorkerAddress& remote, std::span<const select::Candidate> ranked);
    std::string why_unreachable(const WorkerAddress& remote);
    void grow_table();
    void close_endpoint_now(Endpoint& endpoint);
    void make_primary(Endpoint& endpoint);
    void resign_primary(Endpoint& endpoint);
    void retire(Endpoint& endpoint);
    void withdraw_lanes();
    unsigned poll();
    unsigned poll_networks();
    void finish(Request& request);
    void deliver(Request& request);
    void defer(Request& request);
    unsigned run_deferred();
    void reap();
    static ucs_status_t drop_message(void* self, void* data, size_t length,
                                     uct::ReceiveDescriptor* descriptor);
    static void transport_failed(void* self, uct::Endpoint* lane, ucs_status_t status);
    static ucs_status_t on_hello(void* self, void* data, size_t length,
                                 uct::ReceiveDescriptor* descriptor);

    // Written under the lock, read before it is taken.
    std::atomic<uint32_t> gate_{0};
    uint32_t fence_sequence_ = 0;
    ucs::UsageTracker* tracker_ = nullptr;
    size_t short_limit_ = SIZE_MAX;
    Context& context_;

    uint64_t uuid_;
    std::string name_;
    ucs::Random random_;
    ucs_thread_mode_t thread_mode_ = UCS_THREAD_MODE_SINGLE;
    std::recursive_mutex mutex_;
    uct::AmTable am_table_;
    std::vector<std::byte> address_;
    WorkerAddress own_;                    //!< address_, read: what peers choose lanes by
    std::vector<uint8_t> own_interfaces_;  //!< interface of each entry of own_
    std::unordered_map<uint64_t, std::vector<Rail>> rails_;  //!< by the peer's uuid
    uint64_t message_number_ = 0;
    unsigned progress_countdown_ = 0;
    bool in_progress_ = false;
    bool uses_device_atomics_ = false;
    Dialogue dialogue_;
    /** Of those in shared memory, the one that messages came from last; null: none goes before. */
    uct::Interface* busy_ = nullptr;
    uint32_t polled_alone_ = 0;

    RequestChunks request_chunks_;
    ucs::MemoryPool requests_;
    ucs::SlotTable<Request> named_;
    RequestQueue deferred_;
    std::unordered_set<Request*> lent_;

    std::unique_ptr<TagEngine> tags_;
    std::unique_ptr<AmHandlers> am_handlers_;
    std::unique_ptr<Reassembly> reassembly_;
    std::unique_ptr<Streams> streams_;
    NotifyHandler notify_handler_;
    std::vector<WorkerInterface> interfaces_;
    std::vector<WorkerInterface*> networks_;  //!< those of interfaces_ to be polled seldom
    std::vector<WorkerInterface*> memories_;  //!< the others
    std::unique_ptr<LaneDriver> lanes_;
    std::unique_ptr<bulk::Engine> bulk_;
    std::unique_ptr<bulk::QueuePairDriver> queue_pairs_;
    size_t bucket_count_ = 16;
    std::unique_ptr<EndpointTable::bucket_type[]> buckets_;
    EndpointTable by_uuid_;
    EndpointList endpoints_;
    size_t endpoint_count_ = 0;
    /** One of the lists below, or deferred_, has something. Threads of bulk transfers set it, too.
     */
    std::atomic<bool> has_work_{false};
    std::vector<Endpoint*> doomed_;
    std::vector<Endpoint*> to_pump_;
    std::vector<Endpoint*> to_purge_;
    std::vector<std::pair<const uct::Endpoint*, ucs_status_t>> failed_lanes_;
    std::vector<Request*> answer_waiters_;
    std::unique_ptr<wireup::ConnectionManager> connections_;
    std::unique_ptr<Keepalive> keepalive_;
    std::unique_ptr<Wakeup> wakeup_;
    Wakeup::External external_;
    uint64_t client_id_ = 0;
    uint32_t serials_ = 0;
    int dedicated_lanes_ = 0;
};

/** Takes the worker's lock for a C function, if several threads use the worker. */
class WorkerLock {
  public:
    explicit WorkerLock(Worker& worker)
        : mutex_((worker.gate() & Worker::kGateThreads) != 0 ? &worker.mutex() : nullptr) {
        if (mutex_ != nullptr) mutex_->lock();
    }
    ~WorkerLock() {
        if (mutex_ != nullptr) mutex_->unlock();
    }
    WorkerLock(const WorkerLock&) = delete;
    WorkerLock& operator=(const WorkerLock&) = delete;

  private:
    std::recursive_mutex* mutex_;
};

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/notification.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/context/context.h"
#include "ucp/endpoint/endpoint_table.h"
#include "ucp/endpoint/rail_table.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/on_stream/operations.h"
#include "ucp/proto/am/am_handlers.h"
#include "ucp/proto/eager/reassembly.h"
#include "ucp/proto/rma/rma.h"
#include "ucp/proto/rndv/rndv.h"
#include "ucp/proto/stream/stream.h"
#include "ucp/proto/tag/engine.h"
#include "ucp/runtime/wakeup.h"
#include "ucp/stats/collector.h"
#include "ucp/wireup/connection_manager.h"
#include "ucp/wireup/connector.h"
#include "ucp/wireup/keepalive.h"
#include "ucs/sys/spin_lock.h"

namespace ucp {

// A progress engine with its own transports, endpoints, requests and matching: the place where
// these parts are put together, and where their events meet. Nothing but the C functions knows it.
//
// One thread at a time: the C functions take a GateLock. Callbacks of the user run inside
// progress(), under the lock, which is recursive.
class Worker final : private EndpointEvents, private Wakeup::Source {
  public:
    static ucs_status_t create(Context& context, const ucp_worker_params_t& params,
                               std::unique_ptr<Worker>* worker);
    ~Worker();
    Worker(const Worker&) = delete;

    // --- progress and time ---

    // Most calls find nothing.
    unsigned progress() {
        const auto* const met = interfaces_.find_met();
        if (met == nullptr && progress_countdown_ != 0 && !has_work() && interfaces_.may_rest())
            [[likely]] {
            --progress_countdown_;
            ucs::end_look();
            return 0;
        }
        return make_progress(met);
    }
    // Work put aside for the next progress(), whatever the transports have.
    bool has_work() const override { return host_.work.is_due() || lanes_.has_deferred(); }
    // When progress() has work that only time brings; kNever if none.
    ucs::Time next_deadline() const override;
    ucs::Time now() const override { return context_.clock().now(); }
    // Made at first use, which for a context with UCP_FEATURE_WAKEUP is the worker's creation.
    ucs_status_t wakeup(Wakeup** wakeup);

    // --- parts ---

    Gate& gate() { return host_.gate; }
    Context& context() { return context_; }
    const Config& config() const { return context_.config(); }
    uint64_t uuid() const { return host_.uuid; }
    const std::string& name() const { return name_; }
    // From ucp_worker_params_t.
    uint64_t client_id() const { return client_id_; }
    // Is this a child of the process that made it? Its sockets and memory are the parent's.
    bool is_inherited() const { return ucs::process_id() != process_; }
    ucs_thread_mode_t thread_mode() const { return thread_mode_; }
    EndpointHost& host() { return host_; }
    RequestPool& requests() { return requests_; }
    InterfaceSet& interfaces() { return interfaces_; }
    EndpointTable& endpoints() { return endpoints_; }
    const RailTable& rails() const { return rails_; }
    LanePlanner& planner() { return planner_; }
    TagEngine& tags() { return tags_; }
    AmHandlers& am_handlers() { return am_handlers_; }
    Streams& streams() { return streams_; }
    OneSided& one_sided() { return one_sided_; }
    Notifier& notifier() { return notifier_; }
    LaneDriver& lanes() { return lanes_; }
    // Null until the program uses streams of devices, or a thread for progress.
    std::unique_ptr<StreamOperations>& on_stream() { return on_stream_; }
    bulk::Engine& bulk() { return bulk_; }
    bulk::QueuePairDriver& bulk_queue_pairs() { return queue_pairs_; }
    // What connects endpoints by socket address; made at first use.
    ucs_status_t connections(wireup::ConnectionManager** manager);
    // The worker's address, packed.
    const std::vector<std::byte>& address() const { return host_.address; }

    // --- endpoints ---

    // ucp_ep_create(): a new endpoint, or the internal one of that peer, given to the user.
    ucs_status_t create_endpoint(const ucp_ep_params_t& params, Endpoint** endpoint);
    // ucp_ep_close_nbx().
    ucs_status_ptr_t close_endpoint(Endpoint& endpoint, unsigned flags, const OpParams& params);

    // --- ordering ---

    void fence() { ++host_.fence_sequence; }
    // A flush that ends in its call, and a sampling window with it whose time is over.
    // @return false: there is something to wait for
    bool try_flush() {
        if (!(host_.is_settled && interfaces_.are_flushed()) && !settle()) return false;
        lanes_.nothing_to_flush();
        return true;
    }
    ucs_status_ptr_t flush(const OpParams& params);

  private:
    static bool is_to_be_flushed(const Endpoint& endpoint);
    bool settle();
    Worker(Context& context, const ucp_worker_params_t& params);
    // @param met  of InterfaceSet::find_met()
    unsigned make_progress(const InterfaceSet::Nearby* met);
    ucs_status_t open();
    void add_handlers();
    void close_endpoint_now(Endpoint& endpoint);
    void purge(Endpoint& endpoint);
    unsigned purge_failed();
    void retry(ucs::Time time);
    unsigned look_at_clock(bool is_busy);
    void leave();
    // Something is lost, and nobody knows whose it was: all endpoints fail.
    void out_of_memory();
    static void message_lost(void* self, std::optional<uint64_t> sender);
    static void cut_off(void* self, uint64_t sender, ucs_status_t why);
    void free_doomed();
    bool holds_lanes() const { return lanes_.holds_lanes() || queue_pairs_.held() != 0; }
    void withdraw_lanes();
    void log_use() const;
    unsigned run_deferred();
    unsigned end_failed_lanes();
    void look_everywhere();
    static void transport_failed(void* self, uct::Endpoint* lane, ucs_status_t status);

    // EndpointEvents
    void endpoint_failed(Endpoint& endpoint) override;
    void lane_full(Endpoint& endpoint) override { lanes_.lane_full(endpoint); }
    void marker_posted(Endpoint& endpoint) override { lanes_.marker_posted(endpoint); }
    void retry_later() override;
    void reset_told(Endpoint& endpoint) override;
    // Wakeup::Source
    void look_soon() override { progress_countdown_ = 0; }
    bool take_progressed() override { return std::exchange(has_progressed_, false); }
    bool has_callers() const override {
        return connections_ != nullptr && connections_->has_work();
    }

    const uint32_t process_ = ucs::process_id();
    EndpointHost host_;
    std::unique_ptr<StreamOperations> on_stream_;  // outlives requests and endpoints
    Context& context_;
    std::string name_;
    ucs::Random random_;
    ucs_thread_mode_t thread_mode_ = UCS_THREAD_MODE_SINGLE;
    uint64_t client_id_ = 0;
    Wakeup::External external_;
    unsigned progress_countdown_ = 0;
    ucs::Time last_look_{};
    bool in_progress_ = false;
    bool has_progressed_ = false;  // something was found since the program last went to sleep

    RequestPool requests_;
    InterfaceSet interfaces_;
    EndpointTable endpoints_;
    RailTable rails_;
    LaneDriver lanes_;
    LanePlanner planner_;
    Connector connector_;
    bulk::Engine bulk_;
    bulk::QueuePairDriver queue_pairs_;

    Reassembly reassembly_;
    Rendezvous rndv_;
    MessageTimes times_;
    TagEngine tags_;
    AmHandlers am_handlers_;
    Streams streams_;
    OneSided one_sided_;
    Notifier notifier_;

    Keepalive keepalive_;
    stats::Collector statistics_;
    std::unique_ptr<wireup::ConnectionManager> connections_;
    std::unique_ptr<Wakeup> wakeup_;
    std::vector<Endpoint*> to_purge_;
    bool has_unlisted_ = false;  // there was no memory to note one that has failed
    // Of what there was no memory for, of endpoints that have failed.
    ucs::Time next_retry_ = ucs::kNever;
    std::vector<std::pair<const uct::Endpoint*, ucs_status_t>> failed_lanes_;
};

// The worker of an endpoint, for the C functions, which are called with an endpoint alone.
inline Worker& worker_of(const Endpoint& endpoint) {
    return *endpoint.host().owner;
}

}  // namespace ucp

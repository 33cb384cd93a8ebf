// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/worker/worker.h"

#include <algorithm>

#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/notification.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/endpoint/flush.h"
#include "ucp/lanes/driver/lane_driver.h"
#include "ucp/proto/am/am_handlers.h"
#include "ucp/proto/eager/eager.h"
#include "ucp/proto/eager/reassembly.h"
#include "ucp/proto/stream/streams.h"
#include "ucp/proto/tag/engine.h"
#include "ucp/wireup/connection_manager.h"
#include "ucp/wireup/keepalive.h"
#include "ucp/worker/announce.h"
#include "ucp/worker/wakeup.h"
#include "ucs/log.h"
#include "ucs/sys/host.h"

namespace ucp {

Worker::Worker(Context& context, const ucp_worker_params_t& params)
    : context_(context),
      uuid_(context.draw_uuid()),
      random_(ucs::mix64(uuid_)),
      request_chunks_(context),
      requests_({.name = "requests",
                 .object_size = sizeof(Request) + context.user_request_size(),
                 .alignment = 64,
                 .source = &request_chunks_}),
      tags_(std::make_unique<TagEngine>(*this)),
      am_handlers_(std::make_unique<AmHandlers>(*this)),
      reassembly_(std::make_unique<Reassembly>(*this)),
      streams_(std::make_unique<Streams>()),
      buckets_(std::make_unique<EndpointTable::bucket_type[]>(bucket_count_)),
      by_uuid_(EndpointTable::bucket_traits(buckets_.get(), bucket_count_)) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    if (has(UCP_WORKER_PARAM_FIELD_THREAD_MODE)) thread_mode_ = params.thread_mode;
    if (thread_mode_ == UCS_THREAD_MODE_MULTI) set_gate(kGateThreads, true);
    if (has(UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT)) am_handlers_->set_alignment(params.am_alignment);
    if (has(UCP_WORKER_PARAM_FIELD_EVENT_FD)) external_.epoll = params.event_fd;
    if (has(UCP_WORKER_PARAM_FIELD_USER_DATA)) external_.user_data = params.user_data;
    if (has(UCP_WORKER_PARAM_FIELD_EVENTS)) {
        external_.edge = (params.events & UCP_WAKEUP_EDGE) != 0;
    }
    if (has(UCP_WORKER_PARAM_FIELD_CLIENT_ID)) client_id_ = params.client_id;
    if (has(UCP_WORKER_PARAM_FIELD_NAME) && params.name != nullptr) name_ = params.name;
    if (name_.empty()) name_ = fmt::format("{}:{}", ucs::host_name(), ucs::process_id());
    if (name_.size() >= UCP_ENTITY_NAME_MAX) name_.resize(UCP_ENTITY_NAME_MAX - 1);
    if (config().bcopy_threshold) short_limit_ = *config().bcopy_threshold;
    if (short_limit_ != 0 && config().bcopy_threshold) --short_limit_;

    am_table_.entries.fill({drop_message, this});
    set_handler(AmId::kFragment, Reassembly::on_fragment);
    set_handler(AmId::kHello, on_hello);
    add_eager_tag_handlers(*this);
    add_am_handlers(*this);
    add_rndv_handlers(*this);
    add_rma_handlers(*this);
    add_notify_handler(*this);
    add_stream_handler(*this);
    lanes_ = std::make_unique<LaneDriver>(*this);
    tracker_ = lanes_->tracker();
    keepalive_ = std::make_unique<Keepalive>(*this);
    bulk_ = std::make_unique<bulk::Engine>(*this);
    queue_pairs_ = std::make_unique<bulk::QueuePairDriver>(*this);
}

ucs_status_t Worker::create(Context& context, const ucp_worker_params_t& params,
                            std::unique_ptr<Worker>* worker) {
    std::unique_ptr<Worker> made(new Worker(context, params));
    const ucs_status_t status = made->open_interfaces();
    if (status != UCS_OK) return status;
    const ucs_status_t adopted = made->adopt_address();
    if (adopted != UCS_OK) return adopted;
    // The signal must work from any thread, so nothing is left to make then.
    Wakeup* wakeup = nullptr;
    if (context.has_feature(UCP_FEATURE_WAKEUP)) {
        const ucs_status_t made_wakeup = made->wakeup(&wakeup);
        if (made_wakeup != UCS_OK) return made_wakeup;
    }
    *worker = std::move(made);
    return UCS_OK;
}

Worker::~Worker() {
    bulk_->set_wakeup(nullptr);
    announce_use(*this);
    withdraw_lanes();
    for (Endpoint& endpoint : endpoints_) endpoint.take_from_user();
    for (Endpoint& endpoint : endpoints_) endpoint.fail(UCS_ERR_CANCELED);
    // Failing endpoints give up their requests and lanes; the work this makes is bounded.
    for (int round = 0; round < 8 && has_work_; ++round) run_deferred();
    reassembly_.reset();
    tags_.reset();
    am_handlers_.reset();
    by_uuid_.clear();
    // Transport endpoints go before their interfaces, and completions that this may call find their
    // requests alive.
    while (!endpoints_.empty()) {
        Endpoint& endpoint = endpoints_.front();
        endpoints_.pop_front();
        queue_pairs_->forget(endpoint);
        bulk_->forget(endpoint);
        lanes_->drop_lane(endpoint);
        delete &endpoint;
    }
    deferred_.clear();
}

ucs_status_t Worker::drop_message(void* self, void*, size_t length, uct::ReceiveDescriptor*) {
    ucs::log_warn("worker {}: a message of {} bytes and unknown kind was dropped",
                  static_cast<Worker*>(self)->name_, length);
    return UCS_OK;
}

void Worker::deliver_held(uint8_t id, void* data, size_t length) {
    const uct::AmTable::Entry& entry = am_table_.entries[id % uct::kMaxAmId];
    entry.handler(entry.arg, data, length, nullptr);
}

// --- transports
// ------------------------------------------------------------------------------------

namespace {

/** Messages of a worker to itself are there when the call that sent them returns. */
bool can_wake(const uct::InterfaceAttributes& attributes) {
    return (attributes.capabilities & uct::kEventFd) != 0 ||
           attributes.device_type == uct::DeviceType::kSelf;
}

}  // namespace

ucs_status_t Worker::open_interface(unsigned index) {
    const TransportResource& resource = context_.resources()[index];
    const uct::InterfaceParams params{context_.clock(),
                                      random_,
                                      am_table_,
                                      transport_failed,
                                      this,
                                      uuid_,
                                      context_.estimated_endpoints()};
    WorkerInterface interface;
    interface.resource = index;
    interface.domain = resource.domain;
    interface.kind = resource.kind;
    // Steps of virtual time are counted.
    interface.may_rest =
        resource.device_type == uct::DeviceType::kNetwork && !context_.virtual_time();
    const ucs_status_t status = context_.domains()[resource.domain].memory->open_interface(
        resource.transport, params, &interface.transport);
    if (status != UCS_OK) {
        ucs::log_warn("{} on {} cannot be opened: {}", resource.transport, resource.device,
                      ucs_status_string(status));
        return status;
    }
    const auto& attributes = interface.transport->attributes();
    if (context_.has_feature(UCP_FEATURE_WAKEUP) && !can_wake(attributes)) {
        ucs::log_info("{} on {} is left out: it can wake nobody, and the program wants to sleep",
                      resource.transport, resource.device);
        return UCS_ERR_UNSUPPORTED;
    }
    interfaces_.push_back(std::move(interface));
    return UCS_OK;
}

ucs_status_t Worker::open_interfaces() {
    ContextLock lock(context_);
    for (unsigned index = 0; index < context_.resources().size(); ++index) open_interface(index);
    const bool has_scalable = std::ranges::any_of(interfaces_, [](const auto& interface) {
        return interface.transport->attributes().reach == uct::Reach::kInterface;
    });
    for (WorkerInterface& interface : interfaces_) {
        const bool is_network =
            interface.transport->attributes().device_type == uct::DeviceType::kNetwork;
        (is_network ? networks_ : memories_).push_back(&interface);
    }
    if (!has_scalable) {
        ucs::log_error("no scalable transport works here: UCX_TLS must admit one, dc_mlx5 say");
        return UCS_ERR_NO_DEVICE;
    }
    // The same word must not be updated by an adapter and by a CPU: each would miss the other's.
    uses_device_atomics_ = config().atomics == AtomicMode::kDevice;
    if (config().atomics == AtomicMode::kGuess) {
        uses_device_atomics_ = std::ranges::none_of(interfaces_, [](const auto& interface) {
            return (interface.transport->attributes().capabilities & uct::kAtomicCpu) != 0;
        });
    }
    return UCS_OK;
}

void Worker::count_dedicated(int change) {
    dedicated_lanes_ += change;
}

// --- progress
// --------------------------------------------------------------------------------------

// To poll an adapter costs many times what a look into shared memory does. One that has had nothing
// for long is polled seldom: its next message waits for a few more calls, which is little beside
// the time that it has been silent.
unsigned Worker::poll_networks() {
    constexpr uint32_t kPatience = 4096, kSeldom = 16;
    unsigned events = 0;
    for (WorkerInterface* interface : networks_) {
        if (interface->quiet >= kPatience && ++interface->quiet % kSeldom != 0) continue;
        const unsigned found = interface->transport->progress();
        events += found;
        if (interface->may_rest) interface->quiet = found != 0 ? 0 : interface->quiet + 1;
    }
    return events;
}

// The queues in memory that the last messages came through are looked at first, and if there are
// more, mostly alone: the answer to a message need not wait for looks elsewhere. A call that finds
// nothing has looked at all queues in memory; at networks behind look_everywhere().
unsigned Worker::poll() {
    constexpr uint32_t kAlone = 4;
    uct::Interface* const busy = busy_;
    unsigned events = 0;
    if (busy != nullptr) {
        events = busy->progress();
        if (events != 0 && ++polled_alone_ % kAlone != 0) return events;
    }
    for (WorkerInterface* interface : memories_) {
        uct::Interface& transport = *interface->transport;
        if (&transport == busy) continue;
        const unsigned found = transport.progress();
        if (found == 0) continue;
        events += found;
        if (transport.attributes().device_type == uct::DeviceType::kSharedMemory)
            busy_ = &transport;
    }
    return networks_.empty() ? events : events + poll_networks();
}

unsigned Worker::progress() {
    if (in_progress_) return 0;
    in_progress_ = true;
    unsigned events = poll();
    if (has_work()) [[unlikely]]
        events += run_deferred();
    if (progress_countdown_ == 0 || context_.virtual_time()) [[unlikely]] {
        // Set before anything that may ask for the next look.
        progress_countdown_ = std::max(config().progress_factor, 1u) - 1;
        lanes_->advance(now());
        queue_pairs_->advance(now());
        bulk_->advance(now());
        keepalive_->advance(now());
        reassembly_->advance(now());
        context_.collect_registrations();
        if (connections_ != nullptr) events += connections_->progress(now(), events == 0);
    } else {
        --progress_countdown_;
    }
    in_progress_ = false;
    return events;
}

void Worker::look_everywhere() {
    for (WorkerInterface& interface : interfaces_) {
        interface.quiet = 0;
        interface.transport->look_soon();
    }
    look_soon();
}

ucs_status_ptr_t Worker::flush(const OpParams& params) {
    Request* outer = begin_request(params, Request::CallbackKind::kSend);
    if (outer == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    for (Endpoint& endpoint : endpoints_) {
        if (endpoint.is_failed()) continue;
        Request* inner = allocate_request();
        if (inner == nullptr) {
            outer->status = UCS_ERR_NO_MEMORY;
            break;
        }
        make_flush(*inner, endpoint);
        inner->callback_kind = Request::CallbackKind::kInternal;
        inner->user_data = outer;
        inner->on_finish.internal = [](Request& request) {
            // An endpoint that failed has nothing outstanding: that is its own affair.
            static_cast<Request*>(request.user_data)->complete(UCS_OK);
        };
        ++outer->count;
        endpoint.start(*inner);
    }
    outer->complete(UCS_OK);
    return end_call(*outer, params);
}

bool Worker::has_work() const {
    return has_work_.load(std::memory_order_relaxed) || lanes_->has_deferred();
}

ucs_status_t Worker::wakeup(Wakeup** wakeup) {
    if (wakeup_ == nullptr) {
        ucs_status_t status = Wakeup::create(*this, external_, &wakeup_);
        if (status == UCS_OK && connections_ != nullptr) {
            status = wakeup_->watch(connections_->descriptor());
        }
        if (status != UCS_OK) return status;
        bulk_->set_wakeup(wakeup_.get());
    }
    *wakeup = wakeup_.get();
    return UCS_OK;
}

ucs::Time Worker::next_deadline() const {
    ucs::Time next = std::min({lanes_->next_deadline(), keepalive_->next_deadline(),
                               queue_pairs_->next_deadline(), bulk_->next_deadline(),
                               reassembly_->next_deadline()});
    for (const WorkerInterface& interface : interfaces_) {
        next = std::min(next, interface.transport->next_deadline());
    }
    return next;
}

unsigned Worker::run_deferred() {
    unsigned events = 0;
    has_work_.store(false, std::memory_order_relaxed);
    RequestQueue finished;
    finished.swap(deferred_);
    while (!finished.empty()) {
        Request& request = finished.front();
        finished.pop_front();
        request.complete(UCS_OK);
        ++events;
    }
    const auto failures = std::move(failed_lanes_);
    failed_lanes_.clear();
    for (const auto& [lane, status] : failures) {
        Endpoint* endpoint = find_owner(lane);
        if (endpoint == nullptr) {
            if (!bulk_->transport_failed(lane, status)) queue_pairs_->transport_failed(lane);
            continue;
        }
        if (lane == endpoint->scalable()) {
            endpoint->fail(status);
        } else {
            lanes_->lane_failed(*endpoint, status);
        }
        ++events;
    }
    const auto purge = std::move(to_purge_);
    to_purge_.clear();
    for (Endpoint* endpoint : purge) endpoint->purge();
    lanes_->run_deferred();
    queue_pairs_->run_deferred();
    bulk_->run_deferred();
    const auto pump = std::move(to_pump_);
    to_pump_.clear();
    for (Endpoint* endpoint : pump) {
        endpoint->clear_flag(Endpoint::kPumpLater);
        endpoint->pump();
        ++events;
    }
    reap();
    return events + static_cast<unsigned>(purge.size());
}

}  // namespace ucp

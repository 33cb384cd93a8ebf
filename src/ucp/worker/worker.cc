// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/worker/worker.h"

#include <algorithm>
#include <new>
#include <span>

#include "ucp/bulk/threads/thread_pool.h"
#include "ucp/endpoint/flush.h"
#include "ucp/trace/trace.h"
#include "ucs/log/log.h"
#include "ucs/sys/host.h"
#include "uct/tcp/component.h"

namespace ucp {
namespace {

std::string name_from(const ucp_worker_params_t& params) {
    std::string name;
    if ((params.field_mask & UCP_WORKER_PARAM_FIELD_NAME) != 0 && params.name != nullptr)
        name = params.name;
    if (name.empty()) name = fmt::format("{}:{}", ucs::host_name(), ucs::process_id());
    if (name.size() >= UCP_ENTITY_NAME_MAX) name.resize(UCP_ENTITY_NAME_MAX - 1);
    return name;
}

// If looks at the clock are farther apart than this each call of progress looks: sampling must not
// miss its windows.
constexpr ucs::Duration kSeldom = std::chrono::milliseconds(10);

}  // namespace

Worker::Worker(Context& context, const ucp_worker_params_t& params)
    : host_(context.draw_uuid(), requests_, interfaces_, context.domains(), *this, this),
      context_(context),
      name_(name_from(params)),
      random_(ucs::mix64(host_.uuid)),
      requests_({.size = context.user_request_size(),
                 .init = context.request_init(),
                 .cleanup = context.request_cleanup()},
                host_.gate, host_.work, this),
      endpoints_(host_),
      lanes_(interfaces_, endpoints_, host_.gate, config(), context.clock(),
             {host_.uuid, random_(), context.virtual_time(), context.queue_pair_budget().most()}),
      planner_(context, interfaces_, host_.uuid, name_),
      connector_(interfaces_, planner_, endpoints_, rails_, lanes_),
      bulk_(host_.work, interfaces_, endpoints_, rails_, context.clock(),
            bulk::Rules::of(config())),
      queue_pairs_(host_.work, interfaces_, endpoints_, bulk_, context.clock(),
                   {.each = config().bulk_qps,
                    .total = std::min(config().dedicated_qps(), context.queue_pair_budget().most()),
                    .lane_cap = lanes_.negotiator().config().cap,
                    .answer_timeout = config().bulk_cut_timeout,
                    .epoch = static_cast<uint32_t>(random_())}),
      reassembly_(interfaces_),
      rndv_(requests_, endpoints_, context.domains(), bulk_, config().rndv_scheme),
      times_(context.clock(), endpoints_),
      tags_(times_, requests_, endpoints_, rndv_, reassembly_),
      am_handlers_(times_, requests_, endpoints_, rndv_, reassembly_),
      streams_(endpoints_),
      one_sided_(requests_, endpoints_, context.domains(), bulk_, rndv_.direct),
      notifier_(requests_, endpoints_, reassembly_, host_.uuid),
      keepalive_(endpoints_, config().keepalive_interval, config().keepalive_endpoints, now()),
      statistics_(interfaces_, endpoints_, lanes_, context) {
    host_.short_limit = planner_.short_limit();
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    if (has(UCP_WORKER_PARAM_FIELD_THREAD_MODE)) thread_mode_ = params.thread_mode;
    if (thread_mode_ == UCS_THREAD_MODE_MULTI) host_.gate.set_threads();
    if (has(UCP_WORKER_PARAM_FIELD_AM_ALIGNMENT)) am_handlers_.set_alignment(params.am_alignment);
    if (has(UCP_WORKER_PARAM_FIELD_EVENT_FD)) external_.epoll = params.event_fd;
    if (has(UCP_WORKER_PARAM_FIELD_USER_DATA)) external_.user_data = params.user_data;
    if (has(UCP_WORKER_PARAM_FIELD_EVENTS)) external_.edge = (params.events & UCP_WAKEUP_EDGE) != 0;
    if (has(UCP_WORKER_PARAM_FIELD_CLIENT_ID)) client_id_ = params.client_id;
    lanes_.on_lane_change([this](Endpoint& endpoint, bool is_established) {
        queue_pairs_.lane_changed(endpoint, is_established);
    });
    if (config().bulk_workers != 0 && !context.virtual_time()) {
        bulk_.use_threads(std::make_unique<bulk::ThreadPool>(host_.work, interfaces_, context,
                                                             ucs::mix64(host_.uuid + 1),
                                                             bulk::Rules::of(config())));
    }
    ucs::MemoryDetectors::prepare();
    add_handlers();
}

void Worker::add_handlers() {
    connector_.add_handlers();
    times_.add_handlers(interfaces_);
    tags_.add_handlers(interfaces_);
    am_handlers_.add_handlers(interfaces_);
    rndv_.add_handlers(interfaces_);
    one_sided_.add_handlers(interfaces_);
    streams_.add_handlers(interfaces_);
    notifier_.add_handlers(interfaces_);
}

ucs_status_t Worker::create(Context& context, const ucp_worker_params_t& params,
                            std::unique_ptr<Worker>* worker) {
    std::unique_ptr<Worker> made(new Worker(context, params));
    const ucs_status_t status = made->open();
    if (status != UCS_OK) return status;
    *worker = std::move(made);
    return UCS_OK;
}

ucs_status_t Worker::open() {
    Trace::open(config().trace);
    interfaces_.peer_memory().set_limit(config().peer_memory ? config().peer_memory->bytes
                                                             : ucs::physical_memory() / 4);
    if (Trace* trace = Trace::active()) trace->name_track(host_.uuid, name_);
    const unsigned copy_threads = context_.virtual_time() ? 0 : config().bulk_workers;
    ucs_status_t status = interfaces_.open(context_, host_.uuid, random_,
                                           {transport_failed, message_lost, cut_off, this},
                                           config().has_checksums(), copy_threads);
    if (status == UCS_OK) {
        interfaces_.choose_atomics(config().atomics);
        status = planner_.adopt_address(&host_.address);
    }
    if (status == UCS_OK) {
        const HelloHeader header{host_.uuid};
        const auto bytes = std::as_bytes(std::span(&header, 1));
        host_.hello.assign(bytes.begin(), bytes.end());
        host_.hello.insert(host_.hello.end(), host_.address.begin(), host_.address.end());
    }
    // Made now, since ucp_worker_signal() may be called from any thread and must find it.
    Wakeup* made = nullptr;
    if (status == UCS_OK && context_.has_feature(UCP_FEATURE_WAKEUP)) status = wakeup(&made);
    // Not in a simulation, which has hundreds of workers and which nobody watches in its virtual
    // time.
    if (status == UCS_OK && config().shows_statistics && !context_.virtual_time())
        statistics_.open(host_.uuid, name_, now());
    return status;
}

Worker::~Worker() {
    if (on_stream_ != nullptr) on_stream_->cancel();
    if (bulk_.threads() != nullptr) bulk_.threads()->events.set_wakeup(nullptr);
    try {
        leave();
    } catch (const std::bad_alloc&) {
        ucs::log_warn("no memory to leave peers in agreement");
    }
    endpoints_.for_each([](Endpoint& endpoint) { endpoint.take_from_user(); });
    endpoints_.for_each([](Endpoint& endpoint) { endpoint.fail(UCS_ERR_CANCELED); });
    tags_.stop_copies();
    // Failing endpoints give up their requests and lanes; the work this makes is bounded.
    for (int round = 0; round < 8 && (host_.work.is_due() || has_unlisted_); ++round) {
        try {
            run_deferred();
        } catch (const std::bad_alloc&) {
            host_.work.notify();
        }
    }
    rndv_.direct.wait();  // what endpoints had devices copy has ended with these
    reassembly_.clear();
    tags_.clear();
    // Transport endpoints go before their interfaces, and completions that this may call find their
    // requests alive.
    endpoints_.for_each([this](Endpoint& endpoint) {
        queue_pairs_.forget(endpoint);
        bulk_.forget(endpoint);
        endpoint.detach_lane();
    });
    endpoints_.clear();
    requests_.drop_deferred();
    if (Trace* trace = Trace::active()) trace->flush();
}

void Worker::leave() {
    log_use();
    if (!is_inherited()) planner_.keep_learned();
    withdraw_lanes();
}

void Worker::log_use() const {
    if (!ucs::log_enabled(ucs::LogLevel::kInfo)) return;
    std::string used;
    for (const WorkerInterface& interface : interfaces_.list()) {
        if (interface.endpoints_made == 0) continue;
        if (!used.empty()) used += ", ";
        used += fmt::format("{} {}", interface.transport->attributes().transport,
                            interface.endpoints_made);
    }
    const lanes::Counters& counters = lanes_.negotiator().counters();
    ucs::log_info("worker {}: endpoints by transport: {}; dedicated lanes: {} up, {} down", name_,
                  used.empty() ? "none" : used, counters.promotions, counters.demotions);
}

// --- progress ---

unsigned Worker::make_progress(const InterfaceSet::Nearby* met) {
    if (in_progress_) return 0;
    // However this ends: a callback of the program may throw, or its thread be cancelled there.
    struct ProgressScope {
        explicit ProgressScope(bool& taken) : taken_(taken) { taken_ = true; }
        ~ProgressScope() { taken_ = false; }
        ProgressScope(const ProgressScope&) = delete;

      private:
        bool& taken_;
    } const turn(in_progress_);
    try {
        unsigned events = interfaces_.poll(met);
        if (has_work()) [[unlikely]]
            events += run_deferred();
        if (progress_countdown_ == 0) [[unlikely]] {
            events += look_at_clock(events != 0);
        } else {
            --progress_countdown_;
        }
        if (events != 0) has_progressed_ = true;
        return events;
    } catch (const std::bad_alloc&) {
        out_of_memory();
        return 1;
    }
}

// Does what is due by time.
// @return events
unsigned Worker::look_at_clock(bool is_busy) {
    // Set before anything that may ask for the next look.
    const ucs::Time time = now();
    // A program that seldom calls progress has time for a look at the clock in each call.
    const bool is_seldom = time - last_look_ > kSeldom;
    const bool is_each = is_seldom || context_.virtual_time();
    progress_countdown_ = is_each ? 0 : config().progress_factor - 1;
    last_look_ = time;
    lanes_.advance(time);
    planner_.share_learned(time);
    bulk_.advance(time);
    queue_pairs_.advance(time);
    keepalive_.advance(time);
    statistics_.advance(time);
    reassembly_.advance(time);
    rndv_.direct.advance(time);
    am_handlers_.advance(time);
    retry(time);
    context_.domains().collect(time);
    if (connections_ == nullptr) return 0;
    bool look = false;
    const unsigned events = connections_->progress(now(), !is_busy, &look);
    if (look) look_everywhere();
    return events;
}

void Worker::look_everywhere() {
    interfaces_.look_everywhere();
    look_soon();
}

ucs::Time Worker::next_deadline() const {
    return std::min({lanes_.next_deadline(), keepalive_.next_deadline(), bulk_.next_deadline(),
                     queue_pairs_.next_deadline(), reassembly_.next_deadline(),
                     am_handlers_.next_deadline(), interfaces_.next_deadline(), next_retry_});
}

unsigned Worker::run_deferred() {
    host_.work.taken();
    unsigned events = requests_.run_deferred();
    if (on_stream_ != nullptr) events += on_stream_->run_deferred();
    events += rndv_.run_deferred();
    events += one_sided_.run_deferred();
    events += tags_.run_deferred();
    events += am_handlers_.run_deferred();
    events += notifier_.run_deferred();
    events += end_failed_lanes();
    events += purge_failed();
    events += lanes_.run_deferred();
    queue_pairs_.run_deferred();
    bulk_.run_deferred();
    const auto pumped = std::exchange(host_.to_pump, {});
    for (Endpoint* endpoint : pumped) endpoint->pump_now();
    free_doomed();
    return events + static_cast<unsigned>(pumped.size());
}

ucs_status_t Worker::wakeup(Wakeup** wakeup) {
    if (wakeup_ == nullptr) {
        ucs_status_t status = Wakeup::create(*this, host_.gate, interfaces_, external_, &wakeup_);
        if (status == UCS_OK && connections_ != nullptr)
            status = wakeup_->watch(connections_->descriptor());
        if (status != UCS_OK) return status;
        if (bulk_.threads() != nullptr) bulk_.threads()->events.set_wakeup(wakeup_.get());
    }
    *wakeup = wakeup_.get();
    return UCS_OK;
}

ucs_status_t Worker::connections(wireup::ConnectionManager** manager) {
    if (connections_ == nullptr) {
        ucs_status_t status =
            wireup::ConnectionManager::create({connector_, streams_, host_.gate, random_,
                                               context_.clock(), client_id_, uct::tcp::job_key()},
                                              &connections_);
        if (status == UCS_OK && wakeup_ != nullptr)
            status = wakeup_->watch(connections_->descriptor());
        if (status != UCS_OK) {
            connections_.reset();
            return status;
        }
    }
    *manager = connections_.get();
    return UCS_OK;
}

// A flush waits for the program's endpoints. Endpoints of the library's own carry answers, which
// are no operations of the program's, to peers that may have ended. A failed endpoint has nothing
// outstanding: its operations end by themselves.
bool Worker::is_to_be_flushed(const Endpoint& endpoint) {
    return (endpoint.is_users() || endpoint.is_lent() || endpoint.is_being_closed()) &&
           !endpoint.is_failed();
}

// Asks all endpoints. Those that need not be flushed now may have to be later.
bool Worker::settle() {
    bool has_others = false;
    const bool is_done = endpoints_.all_of([&](const Endpoint& endpoint) {
        if (endpoint.is_failed() || endpoint.is_flushed()) return true;
        has_others = true;
        return !is_to_be_flushed(endpoint);
    });
    host_.is_settled = is_done && !has_others;
    return is_done;
}

ucs_status_ptr_t Worker::flush(const OpParams& params) {
    if (try_flush() && !params.has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL)) return nullptr;
    Request* outer = requests_.begin(params, Request::CallbackKind::kSend);
    if (outer == nullptr) return UCS_STATUS_PTR(UCS_ERR_NO_MEMORY);
    ++host_.flushes;
    endpoints_.for_each([&](Endpoint& endpoint) {
        if (!is_to_be_flushed(endpoint) || outer->status != UCS_OK) return;
        Request* inner = make_internal_flush(endpoint, outer, [](Request& request) {
            // A failed endpoint has nothing outstanding: its operations end by themselves.
            static_cast<Request*>(request.user_data)->complete(UCS_OK);
        });
        if (inner == nullptr) {
            outer->status = UCS_ERR_NO_MEMORY;
            return;
        }
        ++outer->count;
        endpoint.start(*inner);
    });
    outer->complete(UCS_OK);
    return requests_.end_call(*outer, params);
}

}  // namespace ucp

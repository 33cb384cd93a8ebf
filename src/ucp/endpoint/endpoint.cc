// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/endpoint/endpoint.h"

#include <algorithm>
#include <utility>

#include "ucp/base/handles.h"
#include "ucp/endpoint/backlog.h"
#include "ucp/endpoint/extras.h"
#include "ucp/endpoint/lane_state.h"
#include "ucs/log/log.h"

namespace ucp {

Endpoint::Endpoint(EndpointHost& host, uint64_t remote_uuid, ConfigurationRef configuration,
                   std::unique_ptr<uct::Endpoint> scalable)
    : tx_lane_(scalable.get()),
      host_(&host),
      remote_uuid_(remote_uuid),
      fence_(host.fence_sequence),
      configuration_(std::move(configuration)),
      scalable_(std::move(scalable)),
      serial_(++host.serials) {
    if (dedicated_index() != kNoInterface) standing_ = Standing::kPromotable;
    host.is_settled = false;
    update_fast_path();
}

Endpoint::~Endpoint() = default;

bool Endpoint::pass_devices(const void* buffer, size_t bytes, uint32_t tracker) {
    if ((gate().bits() & tracker) != 0) touch(bytes);
    return gate().is_host(buffer);
}

void Endpoint::count_send(size_t bytes) {
    // Longer messages are always counted: that costs nothing beside sending them, and sampling
    // windows would see few.
    constexpr size_t kAlwaysCounted = 65536;
    if (bytes >= kAlwaysCounted) {
        gate().count(tracker_hook_, remote_uuid_, bytes);
    } else {
        gate().touch_if_armed(tracker_hook_, remote_uuid_, bytes);
    }
}

EndpointExtras& Endpoint::make_extras() {
    if (extras_ == nullptr) extras_ = std::make_unique<EndpointExtras>();
    return *extras_;
}

unsigned Endpoint::interface_of(const Lane& lane) const {
    return &lane.endpoint == scalable_.get() ? scalable_index() : lane_state_->interface_index;
}

uint8_t Endpoint::one_sided_bit() const {
    return lane_state_ != nullptr && lane_state_->takes_one_sided() ? kDedicatedBit : kScalableBit;
}

void Endpoint::hang_up() {
    if (extras_ != nullptr) extras_->connection.reset();
}

void Endpoint::take_lanes(Endpoint& made) {
    if (backlog_ != nullptr) {
        backlog_->request_wait.end();
        backlog_->controls.end_waiting();
    }
    host_->is_settled = false;
    std::swap(scalable_, made.scalable_);
    configuration_ = made.configuration_;
    remote_uuid_ = made.remote_uuid_;
    // Nobody agrees on lanes with a stranger.
    if (made.is_promotable() && !is_stranger()) standing_ = Standing::kPromotable;
    update_fast_path();
}

bool Endpoint::admits(AmId id) const {
    if (host_->interfaces.may_be_from(remote_uuid_)) return true;
    host_->interfaces.refuse_sender(id, remote_uuid_);
    return false;
}

std::span<const DomainPair> Endpoint::domain_pairs(std::span<DomainPair> pairs) const {
    size_t count = 0;
    pairs[count++] = domains();
    for (const RailLanes& rail : configuration_->lanes().rails) {
        if (count == pairs.size()) break;
        pairs[count++] = rail.domains;
    }
    return pairs.first(count);
}
Lane Endpoint::dedicated_lane() const {
    return {*lane_state_->dedicated, host_->interfaces.attributes(lane_state_->interface_index),
            domains()};
}

bool Endpoint::is_scalable(const uct::Endpoint* lane) const {
    return lane == scalable_.get() ||
           (lane_state_ != nullptr && lane != nullptr && lane == lane_state_->ordered.get());
}

Lane Endpoint::one_sided_lane() {
    if (lane_state_ != nullptr && lane_state_->takes_one_sided()) return dedicated_lane();
    return scalable_lane();
}
bool Endpoint::is_flushed() const {
    if (has_backlog_ || is_failed() || has_remote_operations()) return false;
    if (backlog_ != nullptr && !backlog_->controls.is_empty()) return false;
    if (!scalable_->is_flushed()) return false;
    return lane_state_ == nullptr ||
           (lane_state_->dedicated != nullptr && lane_state_->dedicated->is_flushed());
}

ucs_status_t Endpoint::flush_fenced(uct::Completion& completion) {
    ucs_status_t result = UCS_OK;
    const auto flush = [&](uct::Endpoint& lane) {
        ++completion.count;
        const ucs_status_t status = lane.flush(&completion);
        if (status != UCS_INPROGRESS) --completion.count;
        const bool is_worse = status < 0 && result != UCS_ERR_NO_RESOURCE;
        if (result == UCS_OK || status == UCS_ERR_NO_RESOURCE || is_worse) result = status;
    };
    if ((fence_.before() & kScalableBit) != 0) flush(*scalable_);
    const bool has_dedicated =
        lane_state_ != nullptr && lane_state_->connected && !lane_state_->drained();
    if ((fence_.before() & kDedicatedBit) != 0 && has_dedicated) flush(*lane_state_->dedicated);
    return result;
}

bool Endpoint::owns(const uct::Endpoint* lane) const {
    return lane == scalable_.get() ||
           (lane_state_ != nullptr && lane == lane_state_->dedicated.get());
}

void Endpoint::attach_lane(std::unique_ptr<LaneState> state) {
    host_->is_settled = false;
    lane_state_ = state.release();
    update_fast_path();
}

std::unique_ptr<LaneState> Endpoint::detach_lane() {
    std::unique_ptr<LaneState> state(lane_state_);
    if (state == nullptr) return state;
    if (backlog_ != nullptr) {
        LaneWait& wait = backlog_->request_wait;
        if (wait.lane != nullptr && wait.lane != scalable_.get()) wait.end();
    }
    lane_state_ = nullptr;
    fence_.forget(kDedicatedBit);
    return state;
}

size_t Endpoint::waiting_requests(size_t most) const {
    if (backlog_ == nullptr) return 0;
    size_t count = 0;
    for (auto at = backlog_->requests.begin(); count < most && at != backlog_->requests.end(); ++at)
        ++count;
    return count;
}

void Endpoint::give_to_user(const ucp_ep_params_t& params) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    const bool reports =
        has(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) && params.err_mode != UCP_ERR_HANDLING_MODE_NONE;
    owner_ = reports ? Owner::kUserWithPeerErrors : Owner::kUser;
    set_handlers(params);
    if (extras_ != nullptr && extras_->stream != nullptr) extras_->stream->open();
}

ucs_status_t Endpoint::modify(const ucp_ep_params_t& params) {
    constexpr uint64_t kFixed = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                                UCP_EP_PARAM_FIELD_CONN_REQUEST |
                                UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
    if ((params.field_mask & kFixed) != 0) return UCS_ERR_INVALID_PARAM;
    if ((params.field_mask & UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE) != 0 &&
        (params.err_mode != UCP_ERR_HANDLING_MODE_NONE) != reports_peer_errors()) {
        return UCS_ERR_INVALID_PARAM;
    }
    set_handlers(params);
    return UCS_OK;
}

void Endpoint::set_handlers(const ucp_ep_params_t& params) {
    const auto has = [&](uint64_t field) { return (params.field_mask & field) != 0; };
    if (has(UCP_EP_PARAM_FIELD_ERR_HANDLER)) {
        EndpointExtras& extras = make_extras();
        extras.error_callback = params.err_handler.cb;
        extras.user_argument = params.err_handler.arg;
    }
    if (has(UCP_EP_PARAM_FIELD_USER_DATA)) make_extras().user_argument = params.user_data;
    if (has(UCP_EP_PARAM_FIELD_NAME) && params.name != nullptr) make_extras().name = params.name;
}

void Endpoint::take_from_user() {
    owner_ = Owner::kLibrary;
    if (extras_ == nullptr) return;
    extras_->error_callback = nullptr;
    extras_->user_argument = nullptr;
    if (extras_->stream != nullptr) extras_->stream->close();
}

void Endpoint::update_fast_path() {
    tx_lane_ = scalable_.get();
    const uct::InterfaceAttributes* attributes = &scalable_lane().attributes;
    bool is_switching = false;
    if (lane_state_ != nullptr && lane_state_->direction != nullptr) {
        using State = lanes::TxDirection::State;
        const State state = lane_state_->direction->tx.state();
        is_switching = state != State::kScalable && state != State::kDedicated;
        if (state == State::kDedicated) {
            tx_lane_ = lane_state_->dedicated.get();
            attributes = &dedicated_lane().attributes;
        }
    }
    const bool is_fast = !is_switching && !is_failed() && !has_backlog_ &&
                         (attributes->capabilities & uct::kAmShort) != 0;
    const size_t limit =
        std::min<size_t>({attributes->am.max_short, host_->short_limit, INT32_MAX});
    locked_short_limit_ = is_fast ? static_cast<int32_t>(limit) : -1;
    acts_in_place_ = !is_failed() && !has_backlog_ && !is_waiting();
    // Threads read short_limit_ without the lock: with several it is never written, and each takes
    // the lock first.
    if (!gate().has_threads()) short_limit_ = locked_short_limit_;
}

void Endpoint::remote_operation_finished(uint32_t number) {
    // A heap with the earliest at its top: those that end in the wrong order may be many.
    const auto is_later = [](uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; };
    if (number != remote_finished_) {
        std::vector<uint32_t>& early = make_extras().finished_early;
        early.push_back(number);
        std::ranges::push_heap(early, is_later);
        return;
    }
    ++remote_finished_;
    if (extras_ != nullptr) {
        std::vector<uint32_t>& early = extras_->finished_early;
        for (; !early.empty() && early.front() == remote_finished_; ++remote_finished_) {
            std::ranges::pop_heap(early, is_later);
            early.pop_back();
        }
        // The operations of an endpoint that fails end as well, and not because they are done.
        extras_->flushes.finish(remote_finished_,
                                [this](FlushWait& flush) { flush.request->complete(status_); });
    }
    if (!has_remote_operations() && has_backlog_) pump();
}

void Endpoint::fail(ucs_status_t status) {
    if (!is_failed()) fail(status, false);
}

void Endpoint::fail(ucs_status_t status, bool to_tell) {
    status_ = status;
    failure_ = failure_of(true, to_tell);
    update_fast_path();
    host_->events.endpoint_failed(*this);
}

void Endpoint::end_waiting() {
    if (backlog_ == nullptr) return;
    backlog_->request_wait.end();
    backlog_->controls.drop();
    while (!backlog_->requests.empty()) {
        Request& request = backlog_->requests.front();
        backlog_->requests.pop_front();
        request.flags &= ~Request::kQueued;
        request.complete(status_);
    }
    if (has_backlog_) trace_stall(false);
    has_backlog_ = false;
}

void Endpoint::tell_failure() {
    if (!has_error_callback() || !reports_peer_errors()) return;
    const auto callback = std::exchange(extras_->error_callback, nullptr);
    callback(extras_->user_argument, wrap(this), status_);
}

void Endpoint::log_failure() const {
    if (!has_error_callback() && reports_peer_errors()) {
        ucs::log_warn("endpoint to worker {:016x} failed: {}", remote_uuid_,
                      ucs_status_string(status_));
    } else {
        ucs::log_debug("endpoint to worker {:016x} failed: {}", remote_uuid_,
                       ucs_status_string(status_));
    }
}

}  // namespace ucp

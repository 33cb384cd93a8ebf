// SPDX-License-Identifier: BSD-3-Clause

// The part of an endpoint that decides what is sent next, and on which lane.

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "ucp/endpoint/backlog.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/endpoint/lane_state.h"
#include "ucp/trace/probe.h"
#include "ucp/trace/trace.h"
#include "ucs/log/log.h"

namespace ucp {

Backlog& Endpoint::backlog() {
    if (backlog_ == nullptr) backlog_ = std::make_unique<Backlog>(*this, serve_requests);
    return *backlog_;
}

void Endpoint::trace_stall(bool begins) const {
    if (begins) {
        SWIFTLANE_PROBE(stall_begin, this, remote_uuid());
    } else {
        SWIFTLANE_PROBE(stall_end, this);
    }
    Trace* const trace = Trace::active();
    if (trace == nullptr) return;
    if (!begins) {
        trace->end("stall", "stall", local_uuid(), this);
        return;
    }
    trace->begin("stall", "stall", local_uuid(), this,
                 {{"peer", fmt::format("{:016x}", remote_uuid())}});
}

// Lives while control messages are posted for a request. They may change the lane, and pump() must
// not post what waits meanwhile: the request may be the first of it.
class Endpoint::MakingWay {
  public:
    explicit MakingWay(Endpoint& endpoint)
        : endpoint_(endpoint), is_outermost_(!endpoint.makes_way_) {
        endpoint.makes_way_ = true;
    }
    ~MakingWay() {
        if (is_outermost_) endpoint_.makes_way_ = false;
    }
    MakingWay(const MakingWay&) = delete;

  private:
    Endpoint& endpoint_;
    const bool is_outermost_;
};

// --- requests ---

ucs_status_ptr_t Endpoint::submit(Request& request, const OpParams& params) {
    start(request);
    if (params.has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) && request.holder == Request::Holder::kCall &&
        withdraw(request)) {
        end_posting(request, UCS_ERR_NO_RESOURCE);
    }
    return host_->requests.end_call(request, params);
}

void Endpoint::start(Request& request) {
    request.fence = host_->fence_sequence;
    if (is_failed()) {
        end_posting(request, status_);
        return;
    }
    if (!has_backlog_) {
        bool has_begun = false;  // the greeting, or pieces of a message
        while (auto step = step_of(request)) {
            const ucs_status_t status = step->kind == Step::Kind::kRequest
                                            ? try_post(request, step->lane)
                                            : UCS_ERR_NO_RESOURCE;
            if (status == UCS_INPROGRESS) {
                has_begun = request.order == Request::Order::kMessage;
                continue;
            }
            if (status == UCS_ERR_NO_RESOURCE) break;
            if (status == UCS_ERR_NO_MEMORY && has_begun) out_of_memory();
            end_posting(request, status);
            return;
        }
    }
    if (enqueue(request)) {
        pump();
    } else {
        end_posting(request, UCS_ERR_NO_MEMORY);
    }
}

void Endpoint::out_of_memory() {
    ucs::log_error("no memory for what goes to worker {:016x}: its endpoint fails", remote_uuid_);
    reset(UCS_ERR_NO_MEMORY);
}

void Endpoint::reset(ucs_status_t status) {
    if (is_failed()) return;
    fail(status, !is_waiting());
    if (is_untold()) post_reset();
}

ucs_status_t Endpoint::post_reset() {
    const ResetHeader header{local_uuid()};
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    try {
        status = ControlMessage::post(scalable_lane(), AmId::kReset,
                                      std::as_bytes(std::span(&header, 1)));
    } catch (const std::bad_alloc&) {
        ucs::log_debug("worker {:016x} is not told yet that its endpoint fails", remote_uuid_);
    }
    if (status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY) return status;
    // Any other error is the lane's: the peer learns of the failure by that.
    told();
    return UCS_OK;
}

void Endpoint::told() {
    failure_ = failure_of(is_to_be_purged(), false);
    host_->events.reset_told(*this);
}

void Endpoint::tell_peer() {
    if (!is_untold() || (backlog_ != nullptr && backlog_->controls.is_waiting())) return;
    ucs_status_t status = UCS_ERR_NO_MEMORY;
    try {
        do {
            status = post_reset();
        } while (status == UCS_ERR_NO_RESOURCE && !backlog().controls.wait_to_tell());
    } catch (const std::bad_alloc&) {
        status = UCS_ERR_NO_MEMORY;
    }
    if (status == UCS_ERR_NO_MEMORY) host_->events.retry_later();
}

void Endpoint::end_telling() {
    if (!is_untold()) return;
    if (backlog_ != nullptr) backlog_->controls.end_waiting();
    told();
}

void Endpoint::start_within(Request& part, Request& whole) {
    if ((whole.flags & Request::kQueued) == 0 || is_failed()) return start(part);
    part.fence = whole.fence;
    part.flags |= Request::kQueued;
    RequestQueue& queue = backlog_->requests;
    queue.insert(queue.iterator_to(whole), part);
}

bool Endpoint::enqueue(Request& request) {
    // Without memory to wait in the endpoint fails, since a message that has begun has to go on.
    if (with_memory([this] { backlog(); }) != UCS_OK) return false;
    request.flags |= Request::kQueued;
    RequestQueue& queue = backlog_->requests;
    // What a fence may wait for goes before the rest: were the answers of two workers queued each
    // behind a fence that waits for the other one, both would wait for ever.
    const auto place = (request.flags & Request::kAwaited) == 0
                           ? queue.end()
                           : std::ranges::find_if(queue, [](const Request& other) {
                                 return (other.flags & Request::kAwaited) == 0;
                             });
    queue.insert(place, request);
    if (!has_backlog_) {
        host_->is_settled = false;
        has_backlog_ = true;
        trace_stall(true);
        update_fast_path();
    }
    return true;
}

bool Endpoint::dequeue(Request& request) {
    if ((request.flags & Request::kQueued) == 0) return false;
    request.flags &= ~Request::kQueued;
    RequestQueue& queue = backlog_->requests;
    queue.erase(queue.iterator_to(request));
    if (queue.empty()) {
        has_backlog_ = false;
        trace_stall(false);
        update_fast_path();
    }
    return true;
}

bool Endpoint::withdraw(Request& request) {
    if (!dequeue(request)) return false;
    pump();
    return true;
}

std::optional<Endpoint::Step> Endpoint::next_step() {
    if (is_failed()) return {};
    if (!has_backlog_) return {};
    return step_of(backlog_->requests.front());
}

namespace {

// One-sided operations, also those that go as messages; but not answers that a peer's fence may
// wait for.
bool obeys_fences(const Request& request) {
    constexpr uint32_t kRelevant = Request::kEmulated | Request::kAwaited;
    return request.order == Request::Order::kOneSided ||
           (request.flags & kRelevant) == Request::kEmulated;
}

}  // namespace

std::optional<Endpoint::Step> Endpoint::step_of(Request& request) {
    const auto on_scalable = [&] { return Step{Step::Kind::kRequest, scalable_lane(), &request}; };
    if (request.order == Request::Order::kFlush) return on_scalable();
    if (request.order == Request::Order::kFlushDedicated) {
        if (lane_state_ == nullptr || !lane_state_->connected || lane_state_->drained())
            return on_scalable();
        return Step{Step::Kind::kRequest, dedicated_lane(), &request};
    }
    // Behind a fence: operations before it that end with the peer's answer have to end first.
    const bool is_one_sided = request.order == Request::Order::kOneSided;
    if (obeys_fences(request) && !fence_.has_seen(request.fence) && has_remote_operations()) {
        return {};
    }
    if (lane_state_ == nullptr || lane_state_->direction == nullptr) return on_scalable();
    if (obeys_fences(request)) {
        const Lane lane = one_sided_lane();
        if (lane_state_->fence.running) return {};
        // A transport's fence orders operations of its own lane only: what went before on another
        // one has to be flushed, and before a message, which may take any lane, all of it.
        const uint8_t same = is_one_sided ? lane_bit(lane) : uint8_t{0};
        const uint8_t other = fence_.before(request.fence) & static_cast<uint8_t>(~same);
        if (other != 0) {
            return Step{Step::Kind::kFenceFlush,
                        (other & kScalableBit) != 0 ? scalable_lane() : dedicated_lane(), &request};
        }
        if (is_one_sided) return Step{Step::Kind::kRequest, lane, &request};
    }
    const lanes::TxDirection& direction = lane_state_->direction->tx;
    if (!direction.may_post()) return {};
    if (direction.is_ordered()) {
        // The ordered lane is not there yet: until it is the fast path takes the dedicated one.
        if (lane_state_->ordered == nullptr) return {};
        return Step{Step::Kind::kRequest, lane_state_->ordered->lane(), &request};
    }
    if (direction.lane() == lanes::LaneKind::kScalable) return on_scalable();
    return Step{Step::Kind::kRequest, dedicated_lane(), &request};
}

ucs_status_t Endpoint::try_post(Request& request, const Lane& lane) {
    return with_memory([&] { return post(request, lane); });
}

ucs_status_t Endpoint::post(Request& request, const Lane& lane) {
    if ((request.flags & Request::kNeedsGreeting) != 0 && greeting_ != Greeting::kPosted) {
        const MakingWay way(*this);
        const ucs_status_t status = greet();
        // The request's lane may be another one now: choose again.
        return status == UCS_OK ? UCS_INPROGRESS : status;
    }
    if (obeys_fences(request) && !fence_.has_seen(request.fence)) {
        if (fence_.since() != 0) {
            const ucs_status_t status = lane.endpoint.fence();
            if (status != UCS_OK) return status;
            // A message would overtake copies that this processor still does for the lane.
            const bool overtakes = request.order != Request::Order::kOneSided &&
                                   (lane.attributes.capabilities & uct::kCopies) != 0;
            if (overtakes && lane.endpoint.flush(nullptr) == UCS_INPROGRESS)
                return UCS_ERR_NO_RESOURCE;
        }
        fence_.obey(request.fence);
    }
    if (request.order == Request::Order::kOneSided) {
        const ucs_status_t status = request.post(request, lane);
        if (status == UCS_OK || status == UCS_INPROGRESS) note_one_sided(lane);
        return status;
    }
    const ucs_status_t status = request.post(request, lane);
    if ((status == UCS_OK || status == UCS_INPROGRESS) && lane_state_ != nullptr &&
        request.order == Request::Order::kMessage) {
        lane_state_->posted();
    }
    return status;
}

bool Endpoint::pass_fence() {
    if (!fence_.has_seen(host_->fence_sequence)) {
        if (has_remote_operations()) return false;
        if (fence_.since() != 0) forget_flushed();
        if (fence_.since() != 0) return false;
        fence_.obey(host_->fence_sequence);
    }
    if (fence_.before() == 0) return true;
    // Memory may be accessed past a lane only when its copies before the fence have ended.
    const auto passes = [](const uct::Endpoint* lane) {
        return lane != nullptr && lane->may_access_mapped();
    };
    if (passes(scalable_.get())) fence_.pass(kScalableBit);
    if (lane_state_ != nullptr && passes(lane_state_->dedicated.get())) fence_.pass(kDedicatedBit);
    return fence_.before() == 0;
}

void Endpoint::forget_flushed() {
    if (scalable_->is_flushed()) fence_.forget(kScalableBit);
    if (lane_state_ != nullptr && lane_state_->dedicated != nullptr &&
        lane_state_->dedicated->is_flushed())
        fence_.forget(kDedicatedBit);
}

bool Endpoint::waits_for_dedicated() const {
    return backlog_ != nullptr && lane_state_ != nullptr && lane_state_->dedicated != nullptr &&
           backlog_->request_wait.lane == lane_state_->dedicated.get();
}

bool Endpoint::message_ready() const {
    if (is_failed() || has_backlog_) return false;
    if (lane_state_ == nullptr || lane_state_->direction == nullptr) return true;
    using State = lanes::TxDirection::State;
    const State state = lane_state_->direction->tx.state();
    return state == State::kScalable || state == State::kDedicated;
}

bool Endpoint::is_drained(const uct::Endpoint* lane) const {
    if (lane == scalable_.get()) return false;
    return lane_state_ == nullptr || lane != lane_state_->dedicated.get() || lane_state_->drained();
}

// One-sided operations before the fence went to the other lane: they must be done there first.
ucs_status_t Endpoint::flush_for_fence(const Lane& lane) {
    LaneState::Fence& fence = lane_state_->fence;
    fence.count = 1;
    fence.status = UCS_OK;
    fence.lane_bit = lane_bit(lane);
    const ucs_status_t status = lane.endpoint.flush(&fence);
    if (status == UCS_INPROGRESS) {
        fence.running = true;
        return UCS_OK;
    }
    if (status == UCS_OK) fence_.forget(lane_bit(lane));
    return status;
}

ucs_status_t Endpoint::take(const Step& step) {
    if (step.kind == Step::Kind::kRequest) return take_request(*step.request, step.lane);
    const ucs_status_t status = with_memory([&] { return flush_for_fence(step.lane); });
    if (status == UCS_ERR_NO_RESOURCE) return status;
    if (status != UCS_OK) fail(status);
    return UCS_OK;
}

ucs_status_t Endpoint::take_request(Request& request, const Lane& lane) {
    const ucs_status_t status = try_post(request, lane);
    if (status == UCS_INPROGRESS) return UCS_OK;
    if (status == UCS_ERR_NO_RESOURCE) return status;
    if (!dequeue(request)) return UCS_OK;
    // The program's call has returned: a message must not go missing.
    if (status == UCS_ERR_NO_MEMORY && request.order == Request::Order::kMessage) out_of_memory();
    end_posting(request, status);
    return UCS_OK;
}

// A request that could not be posted gets no answer either: the reference that the answer would
// have given back goes as well.
void Endpoint::end_posting(Request& request, ucs_status_t status) {
    if (status != UCS_OK && request.wire_id != 0) {
        host_->requests.unname(request);
        host_->requests.abort(request, status);
    }
    request.complete(status);
}

void Endpoint::pump() {
    if (makes_way_) return pump_later();
    if (backlog_ == nullptr) return;
    LaneWait& wait = backlog_->request_wait;
    for (;;) {
        if (wait.serving) return;
        const auto step = next_step();
        if (!step) {
            wait.end();
            return;
        }
        if (wait.lane == &step->lane.endpoint) return;
        wait.end();
        const ucs_status_t status = take(*step);
        if (status == UCS_ERR_NO_RESOURCE && backlog_->controls.is_starved()) return;
        if (status == UCS_ERR_NO_RESOURCE && !wait.serving && wait.lane == nullptr) {
            const bool is_message = step->request->order == Request::Order::kMessage;
            if (wait.begin(step->lane.endpoint) && is_message && waits_for_dedicated())
                host_->events.lane_full(*this);
        }
    }
}

void Endpoint::pump_later() {
    if (is_to_be_pumped_) return;
    if (with_memory([this] { host_->pump_later(*this); }) != UCS_OK) return;
    is_to_be_pumped_ = true;
}

void Endpoint::pump_now() {
    is_to_be_pumped_ = false;
    pump();
}

void Endpoint::lanes_changed() {
    update_fast_path();
    pump();
}

// --- control messages ---

bool Endpoint::post_waiting_controls() {
    if (backlog_ == nullptr || backlog_->controls.is_serving()) return true;
    const MakingWay way(*this);
    return backlog_->controls.post() == UCS_OK;
}

void Endpoint::send_control(AmId id, std::span<const std::byte> message) {
    (void)with_memory([&] { queue_control(id, message, ControlMessage::Then::kNothing); });
}

void Endpoint::send_control_greeted(AmId id, std::span<const std::byte> message) {
    greet();
    send_control(id, message);
}

void Endpoint::send_marker(std::span<const std::byte> message) {
    queue_control(AmId::kMarker, message, ControlMessage::Then::kMarked);
}

void Endpoint::negotiate(std::span<const std::byte> message, bool greets_anew) {
    if (greets_anew && greeting_ == Greeting::kPosted) {
        queue_hello();
    } else {
        begin_greeting();
    }
    queue_control(AmId::kLane, message, ControlMessage::Then::kNothing);
}

ucs_status_t Endpoint::greet() {
    return with_memory([this] { return begin_greeting(); });
}

ucs_status_t Endpoint::begin_greeting() {
    if (greeting_ == Greeting::kPosted) return UCS_OK;
    if (greeting_ == Greeting::kNone) {
        greeting_ = Greeting::kQueued;
        try {
            queue_hello();
        } catch (const std::bad_alloc&) {
            greeting_ = Greeting::kNone;
            throw;
        }
    } else if (backlog_ != nullptr) {  // null: it has failed meanwhile
        backlog_->controls.post();
    }
    return greeting_ == Greeting::kPosted ? UCS_OK : UCS_ERR_NO_RESOURCE;
}

void Endpoint::greet_again() {
    if (greeting_ != Greeting::kPosted) {
        greet();
    } else {
        (void)with_memory([this] { queue_hello(); });
    }
}

void Endpoint::queue_hello() {
    if (is_stranger()) {
        // A stranger has an endpoint to this worker, and is not told its address.
        greeting_ = Greeting::kPosted;
        return;
    }
    queue_control(AmId::kHello, host_->hello, ControlMessage::Then::kGreeted);
}

void Endpoint::queue_control(AmId id, std::span<const std::byte> message,
                             ControlMessage::Then then) {
    if (is_failed()) return;
    if (message.size() > scalable_lane().attributes.am.max_bcopy) {
        ucs::log_error("a control message of {} bytes does not fit into one packet of {}",
                       message.size(), scalable_lane().attributes.transport);
        fail(UCS_ERR_EXCEEDS_LIMIT);
        return;
    }
    // Most messages find room at once and need not be copied.
    const bool is_first =
        backlog_ == nullptr || (backlog_->controls.is_empty() && !backlog_->controls.is_waiting());
    if (is_first && then != ControlMessage::Then::kMarked) {
        const ucs_status_t posted = ControlMessage::post(scalable_lane(), id, message);
        if (posted == UCS_OK) return control_posted(then);
        if (posted == UCS_ERR_NO_MEMORY) throw std::bad_alloc();
        if (posted != UCS_ERR_NO_RESOURCE) return fail(posted);
    }
    host_->is_settled = false;
    backlog().controls.add(id, message, then);
    (void)with_memory([this] { pump_controls(); });
}

void Endpoint::control_posted(ControlMessage::Then then) {
    if (then == ControlMessage::Then::kGreeted) greeting_ = Greeting::kPosted;
    if (then == ControlMessage::Then::kMarked)
        (void)with_memory([this] { host_->events.marker_posted(*this); });
}

void Endpoint::pump_controls() {
    if (backlog_ != nullptr) backlog_->controls.pump();
}

void Endpoint::retry_controls() {
    if (backlog_ == nullptr || !backlog_->controls.is_starved()) return;
    (void)with_memory([this] { backlog_->controls.retry(); });
    pump();
}

// --- called by a lane that has room again ---

// Within the transport's call a wait can neither leave its queue nor join another one: `serving`
// keeps pump() from that, and what has to go on another lane is left to the worker's progress.
ucs_status_t Endpoint::serve_requests(uct::Pending* pending) {
    auto& wait = *static_cast<LaneWait*>(pending);
    Endpoint& endpoint = wait.endpoint;
    wait.serving = true;
    const auto no_room = [&] {
        wait.serving = false;
        // It was memory that was missing, not room: the worker tries again later.
        if (!endpoint.backlog_->controls.is_starved()) return UCS_ERR_NO_RESOURCE;
        wait.lane = nullptr;
        return UCS_OK;
    };
    // Control messages go first: what is tried here may need one of them.
    if (endpoint.is_scalable(wait.lane) && endpoint.backlog_->controls.post() != UCS_OK)
        return no_room();
    const auto step = endpoint.next_step();
    if (step && &step->lane.endpoint == wait.lane) {
        const ucs_status_t status = endpoint.take(*step);
        if (status == UCS_ERR_NO_RESOURCE) return no_room();
        if (endpoint.lane_state_ != nullptr) endpoint.lane_state_->had_room = true;
    }
    wait.serving = false;
    const auto next = endpoint.next_step();
    if (next && &next->lane.endpoint == wait.lane) return UCS_INPROGRESS;
    wait.lane = nullptr;
    if (next) endpoint.pump_later();
    return UCS_OK;
}

}  // namespace ucp

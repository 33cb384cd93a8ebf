// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/lanes/driver/lane_driver.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ucp/base/sender.h"
#include "ucp/endpoint/control_queue.h"
#include "ucp/lanes/driver/savings.h"
#include "ucs/log/log.h"
#include "ucs/sys/random.h"

namespace ucp {
namespace {

// Seconds between rankings that the negotiator's default times are made for.
constexpr double kDefaultInterval = 0.1;
// Nanoseconds: a day.
constexpr double kLongestWait = 86400e9;

// Endpoints that the tracker knows for each dedicated lane. Lanes go to endpoints among the three
// or four times as many that the worker sends most to. The others count as well: a link is ranked
// by the traffic of both its directions, and seems lighter than it is where one end does not know
// its own. With traffic by Zipf's law, where the last link with a lane has a quarter of the hottest
// one's traffic, a table of four for each lane would make that error larger than the margin.
constexpr size_t kTrackedForALane = 16;

// What one call of progress does of a ranking: places of the tracker's table that it reads, or
// scores that it hands over, each of which may cost a message.
constexpr size_t kCollectedAtOnce = 20, kRankedAtOnce = 3;

// Messages of the negotiation that one call of progress hears, if several have come. Each may lead
// to a switch of this end's direction, or to a decision.
constexpr unsigned kHeardAtOnce = 2;

// An endpoint's value is computed anew in one of so many intervals, as that reads all that was
// learned of its lanes.
constexpr uint64_t kLooksToRevalue = 16;

constexpr uint32_t kNoCap = 1u << 24;  // more endpoints than any worker has

bool is_enabled(const Config& config) {
    return config.lanes != LaneMode::kScalable && config.switch_interval != ucs::kForever &&
           (config.lanes == LaneMode::kDedicated || config.max_priority_endpoints > 0);
}

size_t tracked_endpoints(const Config& config) {
    return std::clamp(kTrackedForALane * static_cast<size_t>(config.max_priority_endpoints),
                      ucs::UsageTracker::kMinCapacity, ucs::UsageTracker::kMaxCapacity);
}

lanes::Config negotiator_config(const Config& config, uint32_t room) {
    lanes::Config result;
    result.cap = is_enabled(config) ? config.max_priority_endpoints : 0;
    result.host_cap = is_enabled(config) ? config.max_host_lanes : 0;
    // All that the tracker knows, and as many who send to this worker.
    result.max_links = static_cast<uint32_t>(2 * tracked_endpoints(config));
    if (config.lanes == LaneMode::kDedicated) {
        result.cap = result.host_cap = kNoCap;
        result.max_links = UINT32_MAX;
    }
    result.cap = std::min(result.cap, room);
    result.margin_permille = static_cast<uint32_t>(config.hysteresis_margin * 1000);
    result.min_residence = static_cast<lanes::Time>(config.min_residence.count());
    // These are waits for new scores, which come with each ranking: they scale with the interval.
    const double pace = ucs::seconds(config.switch_interval) / kDefaultInterval;
    for (lanes::Time* wait : {&result.busy_retry, &result.retry_after, &result.retry_max,
                              &result.refresh, &result.stale_after}) {
        const double scaled = static_cast<double>(*wait) * pace;
        *wait = static_cast<lanes::Time>(std::clamp(scaled, 1e3, kLongestWait));
    }
    // The negotiator needs this, which the longest wait may have cut.
    result.stale_after = std::max(result.stale_after, 2 * result.refresh);
    result.hold = static_cast<lanes::Time>(config.hold().count());
    result.min_score = static_cast<lanes::Score>(config.min_score);
    result.trickle_ratio = config.trickle_ratio;
    result.window = config.switch_window;
    result.patience = static_cast<lanes::Time>(config.lane_patience.count());
    result.max_parked = config.max_parked_lanes;
    result.keep = static_cast<lanes::Time>(config.lane_keep.count());
    return result;
}

lanes::Time lane_time(ucs::Time now) {
    return static_cast<lanes::Time>(now.time_since_epoch().count());
}

}  // namespace

LaneDriver::LaneDriver(InterfaceSet& interfaces, EndpointTable& endpoints, Gate& gate,
                       const Config& config, const ucs::Clock& clock, const Options& options)
    : interfaces_(interfaces),
      endpoints_(endpoints),
      gate_(gate),
      config_(config),
      clock_(clock),
      options_(options),
      negotiator_(negotiator_config(config_, options.room), options.uuid, *this) {
    interfaces.set_handler(AmId::kLane, on_control, this);
    interfaces.set_handler(AmId::kMarker, on_control, this);
    interfaces.set_handler(AmId::kOrdered, on_ordered, this);
    if (!is_enabled(config_) || config_.lanes != LaneMode::kDynamic) return;
    ucs::UsageTracker::Options tracking;
    tracking.capacity = tracked_endpoints(config_);
    tracking.interval = config_.switch_interval;
    tracking.windows = config_.sample_windows;
    tracking.duty = config_.sample_duty;
    tracking.decay = config_.score_decay;
    tracking.trend = config_.score_trend;
    tracking.few = negotiator_.config().cap;
    tracking.min_score = config_.min_score;
    tracking.hold = config_.hold();
    tracking.seed = options.seed;
    tracking.in_steps = true;
    tracker_.emplace(tracking, [this](uint64_t uuid) { return value_of(uuid); });
    collection_.found.reserve(tracking.capacity);
    for (auto* peers : {&scored_, &scored_before_}) peers->reserve(tracking.capacity);
    gate_.set_tracker(&*tracker_);
}

LaneDriver::~LaneDriver() = default;

// --- time

void LaneDriver::tick() {
    negotiator_.set_time(lane_time(clock_.now()));
}

// Gives up kept lanes, which carry nothing, while a worker of the process lacks a queue pair for a
// lane.
void LaneDriver::drop_wanted_lanes() {
    std::vector<lanes::PeerId> wanted;
    for (const auto& [peer, kept] : kept_) {
        if (kept.share.is_wanted()) wanted.push_back({peer, 0});
    }
    for (const lanes::PeerId& peer : wanted) {
        if (!interfaces_.is_lane_wanted()) return;
        tick();
        negotiator_.on_kept_lane_wanted(peer);
    }
}

void LaneDriver::advance(ucs::Time now) {
    if (!kept_.empty() && interfaces_.is_lane_wanted()) [[unlikely]]
        drop_wanted_lanes();
    // A call that has decided on messages decides nothing else, nor does one that does a step of a
    // ranking.
    bool may_decide = !std::exchange(has_decided_, false);
    if (tracker_) {
        const bool was_armed = tracker_->armed();
        tracker_->progress(now);
        if (tracker_->armed() != was_armed) {
            if (tracker_->armed()) ++windows_;
            gate_.arm(tracker_->armed());
        }
        if (tracker_->rounds() != seen_rounds_) {
            seen_rounds_ = tracker_->rounds();
            begin_collection(now);
        } else if (may_decide && collection_.step != RateCollection::Step::kNone) {
            // The program seldom calls progress: this call does all that is left.
            const bool is_late = now - collection_.begun > config_.switch_interval / 8;
            do {
                go_on_collecting();
            } while (is_late && collection_.step != RateCollection::Step::kNone);
            may_decide = false;
        }
    }
    if (now >= next_full_look_) [[unlikely]]
        look_at_full_lanes(now);
    if (now >= next_retry_) [[unlikely]] {
        next_retry_ = ucs::kNever;
        has_deferred_ = true;
    }
    // Nothing is decided on a part of an interval's scores: the link that comes first would win.
    const bool is_collecting =
        collection_.step != RateCollection::Step::kNone || (tracker_ && tracker_->is_closing());
    if (may_decide && !is_collecting && lane_time(now) >= negotiator_.next_deadline())
        negotiator_.advance(lane_time(now));
}

void LaneDriver::look_at_window() {
    if (++flushes_ % kFlushesToLook != 0) return;
    const ucs::Time now = clock_.now();
    if (now < tracker_->next_event()) return;
    tracker_->disarm(now);
    gate_.arm(false);
}

ucs::Time LaneDriver::next_deadline() const {
    if (collection_.step != RateCollection::Step::kNone) return collection_.begun;
    const lanes::Time deadline = negotiator_.next_deadline();
    ucs::Time result = deadline == lanes::kNever
                           ? ucs::kNever
                           : ucs::Time(ucs::Duration(static_cast<int64_t>(deadline)));
    // A worker without traffic is not woken by sampling windows. On a virtual clock windows keep
    // their times all the same, so that traffic may begin at any moment of one.
    if (tracker_ && (options_.has_virtual_time || !tracker_->is_idle())) {
        result = std::min(result, tracker_->next_event());
    }
    return std::min({result, next_full_look_, next_retry_});
}

// Of several endpoints to a peer the primary one takes part in lane selection; traffic of the
// others counts for it.
ucs::UsageTracker::Value LaneDriver::value_of(uint64_t uuid) const {
    const Endpoint* endpoint = endpoints_.find(uuid);
    if (endpoint == nullptr || !endpoint->is_promotable()) return {0, 0};
    const auto attributes = [this](unsigned index) -> const uct::InterfaceAttributes& {
        return interfaces_[index].transport->attributes();
    };
    std::optional<double> bytes_per_message;
    if (const auto& bytes = config_.bytes_per_message) {
        const bool counts = bytes->bytes != ucs::config::MemorySize::kInfinite;
        bytes_per_message = counts ? static_cast<double>(bytes->bytes) : 0;
    }
    ucs::UsageTracker::Value value = savings(
        attributes(endpoint->scalable_index()), attributes(endpoint->dedicated_index()),
        config_.bulk_slice_size, bytes_per_message, endpoint->configuration().measured_saving());
    if (const auto weight = weights_.find(uuid); weight != weights_.end()) {
        value.per_message *= weight->second;
        value.per_byte *= weight->second;
    }
    return value;
}

lanes::Pool LaneDriver::pool_of(const Endpoint& endpoint) const {
    const bool is_local =
        endpoint.is_promotable() &&
        interfaces_[endpoint.dedicated_index()].transport->attributes().device_type ==
            uct::DeviceType::kSharedMemory;
    return is_local ? lanes::Pool::kHost : lanes::Pool::kDevice;
}

void LaneDriver::begin_collection(ucs::Time now) {
    while (collection_.step != RateCollection::Step::kNone) go_on_collecting();
    collection_.step = RateCollection::Step::kCollect;
    collection_.begun = now;
    collection_.place = collection_.before = 0;
    scored_before_.swap(scored_);
    scored_.clear();
}

void LaneDriver::go_on_collecting() {
    if (collection_.step == RateCollection::Step::kCollect) {
        collect_scores();
    } else {
        hand_over_scores();
    }
}

void LaneDriver::collect_scores() {
    std::vector<RateCollection::Found>& found = collection_.found;
    const bool is_more = tracker_->for_some(
        collection_.place, kCollectedAtOnce, [&](const ucs::UsageTracker::Usage& usage) {
            Endpoint* endpoint = endpoints_.find(usage.id);
            if (endpoint == nullptr || !is_adaptive(*endpoint)) return;
            // What was learned since takes effect in one of so many intervals, on average.
            if (endpoint->learned() != nullptr && ucs::mix64(++looks_) % kLooksToRevalue == 0)
                tracker_->revalue(endpoint->tracker_hook());
            const auto peer = try_enter(*endpoint);
            if (!peer) return;  // the next interval tries again
            found.push_back({*peer, usage.rate, usage.deviation * usage.deviation});
            std::push_heap(found.begin(), found.end());
        });
    if (!is_more) collection_.step = RateCollection::Step::kHandOver;
}

// Merges, in the order of peers, those that the tracker has with those that it had at the last
// ranking and has no more: their score is 0 now.
void LaneDriver::hand_over_scores() {
    const auto score_of = [](double rate) {
        return static_cast<lanes::Score>(
            std::clamp(rate, 0.0, static_cast<double>(lanes::kMaxMeasuredScore)));
    };
    std::vector<RateCollection::Found>& found = collection_.found;
    size_t& before = collection_.before;
    const auto are_all = [&] { return found.empty() && before == scored_before_.size(); };
    const auto was_scored = [&](lanes::Peer peer) {
        return before != scored_before_.size() && scored_before_[before] == peer;
    };
    std::array<lanes::Measured, kRankedAtOnce> measured;
    size_t count = 0;
    for (size_t left = kRankedAtOnce; left > 0 && !are_all(); --left) {
        const bool is_gone = before != scored_before_.size() &&
                             (found.empty() || scored_before_[before] < found.front().peer);
        lanes::Measured next{};
        if (is_gone) {
            next.peer = scored_before_[before++];
        } else {
            RateCollection::Found sum{found.front().peer};
            // Two endpoints to one worker are one peer.
            while (!found.empty() && found.front().peer == sum.peer) {
                sum.rate += found.front().rate;
                sum.variance += found.front().variance;
                std::pop_heap(found.begin(), found.end());
                found.pop_back();
            }
            next = {sum.peer, score_of(sum.rate),
                    score_of(config_.confidence * std::sqrt(sum.variance))};
            if (was_scored(sum.peer)) ++before;
            scored_.push_back(sum.peer);
        }
        // The endpoint may have gone since it was found.
        const Endpoint* owner = endpoint_of(next.peer);
        if (owner != nullptr && is_adaptive(*owner) && !owner->is_closing())
            measured[count++] = next;
    }
    if (are_all()) collection_.step = RateCollection::Step::kNone;
    tick();
    negotiator_.on_scores(std::span(measured).first(count), are_all());
}

namespace {

// The program has closed the endpoint, and its link has ended. If it has made a new one to the same
// peer meanwhile, that one takes part in the selection of lanes from now on.
void hand_over(EndpointTable& endpoints, Endpoint& endpoint, LaneEvents& events) {
    if (!endpoint.is_primary() || endpoint.is_users() || endpoint.is_failed()) return;
    Endpoint* next = nullptr;
    endpoints.for_each([&](Endpoint& other) {
        const bool is_open = !other.is_failed() && !other.is_closing() && other.is_users();
        if (is_open && other.remote_uuid() == endpoint.remote_uuid()) next = &other;
    });
    if (next == nullptr) return;
    endpoints.replace_primary(endpoint, *next);
    endpoints.doom(endpoint);
    events.endpoint_created(*next);
}

}  // namespace

unsigned LaneDriver::run_deferred() {
    has_deferred_ = false;
    // Decisions wait until all is heard that has come, and are enough for one call.
    const bool may_decide = has_heard_ && inbox_.is_empty();
    const unsigned heard = hear_some();
    retrying_.swap(to_retry_);
    for (Endpoint* endpoint : retrying_) {
        if (LaneState* state = endpoint->lane_state()) retry(*state);
    }
    retrying_.clear();
    // To destroy a queue pair takes an adapter long: one in a call, and none beside decisions.
    if (!graveyard_.empty() && !has_heard_) {
        Buried grave = std::move(graveyard_.front());
        graveyard_.erase(graveyard_.begin());
        grave.state->dedicated.reset();
        grave.state->share.give_back();
        // A flush that was given up may still call back.
        if (grave.state->fence.running || grave.state->flush.running) {
            abandoned_.push_back(std::move(grave.state));
        }
        tick();
        negotiator_.on_lane_destroyed(grave.peer);
    }
    if (!graveyard_.empty()) has_deferred_ = true;
    std::erase_if(abandoned_,
                  [](const auto& state) { return !state->fence.running && !state->flush.running; });
    std::vector<lanes::Peer> forget;
    forget.swap(to_forget_);
    for (const lanes::Peer peer : forget) {
        negotiator_.forget(peer);
        if (Endpoint* endpoint = endpoint_of(peer)) hand_over(endpoints_, *endpoint, *this);
    }
    if (may_decide) {
        decide();
    } else if (has_heard_) {
        has_deferred_ = has_decided_ = true;
    }
    return heard;
}

void LaneDriver::decide() {
    has_heard_ = false;
    has_decided_ = true;
    tick();
    negotiator_.settle();
}

// --- events

lanes::Peer LaneDriver::enter(Endpoint& endpoint) {
    const lanes::Peer peer = endpoint.serial();
    peers_.try_emplace(peer, &endpoint);
    return peer;
}

std::optional<lanes::Peer> LaneDriver::try_enter(Endpoint& endpoint) {
    try {
        return enter(endpoint);
    } catch (const std::bad_alloc&) {
        return {};
    }
}

bool LaneDriver::is_adaptive(const Endpoint& endpoint) const {
    return is_enabled(config_) && endpoint.is_primary() && endpoint.is_promotable() &&
           !endpoint.is_failed();
}

void LaneDriver::endpoint_created(Endpoint& endpoint) {
    if (!is_adaptive(endpoint)) return;
    if (config_.lanes == LaneMode::kDedicated) set_policy(endpoint, lanes::Policy::kDedicated);
    if (!tracker_) return;
    const bool is_within_host = pool_of(endpoint) == lanes::Pool::kHost;
    endpoint.tracker_hook().competes = !is_within_host;
    if (is_within_host) tracker_->expect_newcomers(clock_.now());
}

void LaneDriver::endpoint_renamed(Endpoint& endpoint) {
    if (tracker_) tracker_->remove(endpoint.tracker_hook());
}

bool LaneDriver::has_link(const Endpoint& endpoint) const {
    return endpoint.lane_state() != nullptr || link_of(endpoint) != nullptr;
}

void LaneDriver::endpoint_closing(Endpoint& endpoint) {
    if (endpoint.is_primary()) weights_.erase(endpoint.remote_uuid());
    if (tracker_) tracker_->remove(endpoint.tracker_hook());
    if (!peers_.contains(endpoint.serial())) return;
    tick();
    negotiator_.on_close(endpoint.serial());
}

void LaneDriver::endpoint_failed(Endpoint& endpoint) {
    if (tracker_) tracker_->remove(endpoint.tracker_hook());
    const bool is_known =
        peers_.contains(endpoint.serial()) || kept_.contains(endpoint.remote_uuid());
    if (!is_known) return;
    tick();
    negotiator_.on_peer_died(enter(endpoint));
}

bool LaneDriver::release_endpoint(Endpoint& endpoint) {
    if (tracker_) tracker_->remove(endpoint.tracker_hook());
    const lanes::Peer peer = endpoint.serial();
    if (!peers_.contains(peer)) return true;
    tick();
    negotiator_.forget(peer);
    const bool is_known = negotiator_.find(peer) != nullptr || negotiator_.waits_for_memory();
    if (is_known || endpoint.lane_state() != nullptr) return false;
    for (const Buried& grave : graveyard_) {
        if (grave.peer == peer) return false;
    }
    peers_.erase(peer);
    std::erase(to_retry_, &endpoint);
    std::erase(to_forget_, peer);
    return true;
}

void LaneDriver::lane_failed(Endpoint& endpoint, ucs_status_t status) {
    tick();
    negotiator_.on_lane_failed(endpoint.serial(), status);
}

void LaneDriver::kept_lane_failed(const uct::Endpoint* lane) {
    const auto found = std::ranges::find_if(
        kept_, [lane](const auto& entry) { return entry.second.dedicated.get() == lane; });
    if (found == kept_.end()) return;
    const lanes::PeerId peer{found->first, 0};
    kept_.erase(found);
    tick();
    negotiator_.on_kept_lane_lost(peer);
}

void LaneDriver::marker_posted(Endpoint& endpoint) {
    replays_ += endpoint.waiting_requests();
    tick();
    negotiator_.on_marker_posted(endpoint.serial());
    endpoint.lanes_changed();
}

void LaneDriver::lane_full(Endpoint& endpoint) {
    LaneState& state = *endpoint.lane_state();
    // With UCX_LANES=dedicated an endpoint waits for its lane, however long.
    if (state.is_watched || config_.lanes != LaneMode::kDynamic) return;
    const ucs::Time now = clock_.now();
    try {
        full_lanes_.push_back(
            {endpoint.serial(), ucs::deadline(now, config_.lane_patience), false});
    } catch (const std::bad_alloc&) {
        return;  // the next message that finds no room tries again
    }
    state.is_watched = true;
    state.had_room = false;
    next_full_look_ = std::min(next_full_look_, ucs::deadline(now, config_.lane_patience / 4));
}

void LaneDriver::look_at_full_lanes(ucs::Time now) {
    const auto full = std::exchange(full_lanes_, {});
    std::vector<lanes::Peer> to_leave;
    for (FullLane lane : full) {
        const Endpoint* owner = endpoint_of(lane.peer);
        LaneState* state = owner != nullptr ? owner->lane_state() : nullptr;
        if (state == nullptr || !state->is_watched) continue;
        const bool is_full = owner->waits_for_dedicated();
        if (is_full && std::exchange(state->had_room, false)) {
            lane = {lane.peer, ucs::deadline(now, config_.lane_patience), false};
        } else if (is_full && now >= lane.end && !lane.is_last) {
            lane = {lane.peer, ucs::deadline(now, config_.lane_patience / 4), true};
        } else if (!is_full || now >= lane.end) {
            state->is_watched = false;
            if (is_full) to_leave.push_back(lane.peer);
            continue;
        }
        full_lanes_.push_back(lane);
    }
    next_full_look_ =
        full_lanes_.empty() ? ucs::kNever : ucs::deadline(now, config_.lane_patience / 4);
    for (const lanes::Peer peer : to_leave) {
        tick();
        negotiator_.on_lane_full(peer);
    }
}

// Posts the last message of this direction on the dedicated lane (DMARK). Without room it waits in
// the lane's queue, without memory for the next try.
void LaneDriver::begin_marker(LaneState& state) {
    while (post_end_marker(state) == UCS_ERR_NO_RESOURCE) {
        const ucs_status_t status = state.dedicated->pending_add(state.marker_wait.get());
        if (status == UCS_ERR_BUSY) continue;
        if (status != UCS_OK) {
            tick();
            negotiator_.on_lane_failed(state.endpoint.serial(), status);
        }
        return;
    }
}

// @return UCS_ERR_NO_RESOURCE: the lane has no room; UCS_OK: it is posted, has failed, or is tried
// again later
ucs_status_t LaneDriver::post_end_marker(LaneState& state) {
    const auto pack = [](void* destination, void* arg) -> size_t {
        const auto& bytes = *static_cast<std::vector<std::byte>*>(arg);
        std::memcpy(destination, bytes.data(), bytes.size());
        return bytes.size();
    };
    ssize_t sent = UCS_ERR_NO_MEMORY;
    try {
        sent =
            state.dedicated->am_bcopy(static_cast<uint8_t>(AmId::kMarker), pack, &state.end_marker);
    } catch (const std::bad_alloc&) {
        ucs::log_debug("no memory yet for the last message of a lane");
    }
    if (sent == UCS_ERR_NO_RESOURCE) return UCS_ERR_NO_RESOURCE;
    if (sent == UCS_ERR_NO_MEMORY && may_retry_marker(state)) return UCS_OK;
    state.end_marker.clear();
    tick();
    Endpoint& owner = state.endpoint;
    if (sent < 0) {
        negotiator_.on_lane_failed(owner.serial(), static_cast<ucs_status_t>(sent));
        return UCS_OK;
    }
    replays_ += owner.waiting_requests();
    negotiator_.on_marker_posted(owner.serial());
    if (owner.lane_state() == &state && state.flush.due) try_flush(state);
    return UCS_OK;
}

// @return false: it has been tried often enough
bool LaneDriver::may_retry_marker(LaneState& state) {
    LaneState::MarkerWait& wait = *state.marker_wait;
    if (++wait.failed_tries == ControlQueue::kMostTries) return false;
    wait.next_try = ucs::deadline(clock_.now(), kPause);
    retry_at(state, wait.next_try);
    return true;
}

ucs_status_t LaneDriver::serve_marker(uct::Pending* self) {
    LaneState& state = static_cast<LaneState::MarkerWait*>(self)->state;
    if (state.direction == nullptr) return UCS_OK;
    return static_cast<LaneDriver*>(state.owner)->post_end_marker(state);
}

void LaneDriver::withdraw() {
    tick();
    negotiator_.withdraw_all();
}

ucs_status_t LaneDriver::on_control(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<LaneDriver*>(arg);
    LaneHeader header;
    lanes::Message message;
    if (length < sizeof(header)) {
        ucs::log_warn("a lane message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    std::memcpy(&header, data, sizeof(header));
    const auto* bytes = static_cast<const uint8_t*>(data) + sizeof(header);
    const ucs_status_t status = lanes::decode({bytes, length - sizeof(header)}, message);
    Endpoint* endpoint = self.endpoints_.find(header.sender);
    if (status != UCS_OK || endpoint == nullptr) {
        ucs::log_debug("a lane message of worker {:016x} is {}: dropped", uint64_t{header.sender},
                       endpoint == nullptr ? "of nobody known" : "malformed");
        return UCS_OK;
    }
    self.put_in(header.sender, std::move(message));
    return UCS_OK;
}

// Puts a message aside for progress: many may come together, and one may take long.
void LaneDriver::put_in(uint64_t sender, lanes::Message&& message) {
    if (!has_heard_) heard_since_ = clock_.now();
    has_heard_ = has_deferred_ = true;
    try {
        inbox_.add(sender, std::move(message));
    } catch (const std::bad_alloc&) {
        while (!inbox_.is_empty()) hear(inbox_.take());
        hear({sender, std::move(message)});
    }
}

void LaneDriver::hear(const LaneInbox::Entry& heard) {
    Endpoint* endpoint = endpoints_.find(heard.sender);
    if (endpoint == nullptr) return;  // it has gone since
    const auto peer = try_enter(*endpoint);
    // There is no memory to know the peer. Nothing is agreed on with it yet, so it repeats what it
    // wants.
    if (!peer) return;
    try {
        tick();
        if (negotiator_.on_message(*peer, heard.message, is_adaptive(*endpoint)) != UCS_OK) {
            ucs::log_debug("worker {:016x} broke the lane protocol with {}", heard.sender,
                           lanes::name(heard.message.type));
        }
    } catch (const std::bad_alloc&) {
        interfaces_.message_lost(heard.sender);
    }
}

unsigned LaneDriver::hear_some() {
    if (inbox_.is_empty()) return 0;
    // The program seldom calls progress: this call does all that is left.
    const bool is_late = clock_.now() - heard_since_ > config_.switch_interval / 8;
    unsigned heard = 0;
    for (; !inbox_.is_empty() && (is_late || heard < kHeardAtOnce); ++heard) hear(inbox_.take());
    return heard;
}

ucs_status_t LaneDriver::on_ordered(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    using Order = lanes::Negotiator::Order;
    auto& self = *static_cast<LaneDriver*>(arg);
    OrderedHeader header;
    if (length < sizeof(header)) {
        ucs::log_warn("an ordered message of {} bytes is too short: dropped", length);
        return UCS_OK;
    }
    std::memcpy(&header, data, sizeof(header));
    // Only messages of requests may be in an ordered one.
    const bool is_request = header.id < static_cast<uint8_t>(AmId::kHello);
    // What that sender said before is heard first: the round may have begun with it.
    while (self.inbox_.has(header.sender)) self.hear(self.inbox_.take());
    Endpoint* endpoint = is_request ? self.endpoints_.find(header.sender) : nullptr;
    const Order order = endpoint == nullptr
                            ? Order::kDrop
                            : self.negotiator_.order_of(endpoint->serial(), header.epoch);
    if (order == Order::kDrop) {
        ucs::log_debug("a message of worker {:016x} comes after what was lost: dropped",
                       uint64_t{header.sender});
        return UCS_OK;
    }
    auto* message = static_cast<std::byte*>(data) + sizeof(header);
    const std::optional<uint64_t> inner =
        claimed_sender(static_cast<AmId>(header.id), std::span(message, length - sizeof(header)));
    if (inner && *inner != header.sender) {
        ucs::log_warn("a message of worker {:016x} in the name of {:016x} was dropped",
                      uint64_t{header.sender}, *inner);
        return UCS_OK;
    }
    LaneState* state = endpoint->lane_state();
    if (order == Order::kHold || (state != nullptr && !state->early.empty())) {
        if (state->early.size() >= self.negotiator_.config().window) {
            ucs::log_warn("worker {:016x} sends more than it was granted: dropped",
                          uint64_t{header.sender});
            return UCS_OK;
        }
        state->hold_early(header.id, message, length - sizeof(header));
    } else {
        self.interfaces_.deliver(header.sender, header.id, message, length - sizeof(header));
    }
    return UCS_OK;
}

// --- ucpx

ucs_status_t LaneDriver::set_policy(Endpoint& endpoint, lanes::Policy policy) {
    if (endpoint.is_failed()) return endpoint.status();
    if (!is_adaptive(endpoint)) return UCS_ERR_UNSUPPORTED;
    tick();
    negotiator_.set_policy(enter(endpoint), policy);
    return UCS_OK;
}

ucs_status_t LaneDriver::set_weight(Endpoint& endpoint, double weight) {
    if (endpoint.is_failed()) return endpoint.status();
    if (!is_adaptive(endpoint)) return UCS_ERR_UNSUPPORTED;
    weights_[endpoint.remote_uuid()] = weight;
    if (tracker_) tracker_->revalue(endpoint.tracker_hook());
    return UCS_OK;
}

const lanes::Link* LaneDriver::link_of(const Endpoint& endpoint) const {
    return negotiator_.find(endpoint.serial());
}

Endpoint* LaneDriver::endpoint_of(lanes::Peer peer) const {
    const auto found = peers_.find(peer);
    return found == peers_.end() ? nullptr : found->second;
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/match/message_times.h"

#include <algorithm>

#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"

namespace ucp {
namespace {

// Of a network's figures none is more wrong than this.
constexpr double kMostWrong = 4;

uint64_t nanoseconds(ucs::Duration duration) {
    return static_cast<uint64_t>(std::max<ucs::Duration::rep>(duration.count(), 0));
}

ucs::Duration duration(uint64_t nanoseconds) {
    constexpr uint64_t kMaxNanoseconds = 1'000'000'000;  // who takes longer was away
    return ucs::Duration(static_cast<ucs::Duration::rep>(std::min(nanoseconds, kMaxNanoseconds)));
}

}  // namespace

MessageTimes::Route MessageTimes::route(const Endpoint& endpoint, select::Operation operation,
                                        select::Load load, size_t length, select::Protocol usual) {
    using select::Protocol;
    using select::Way;
    const LearnedLane& lane = *endpoint.learned(operation);
    const select::Ways* const ways = lane.ways_of(load, length);
    if (ways == nullptr) return {usual};
    const Way usual_way = is_announced(usual) ? Way::kRendezvous : Way::kEager;
    const auto which = select::LearnedCosts::class_of(load, length);
    const auto [way, is_timed] = lane.costs->choose(which, *ways, length, usual_way);
    const uint64_t stamp = is_timed ? open(endpoint, lane, which, way, length) : 0;
    if (way == usual_way) return {usual, stamp};
    return {way == Way::kEager ? Protocol::kCopy : Protocol::kRendezvous, stamp};
}

uint64_t MessageTimes::open(const Endpoint& endpoint, const LearnedLane& lane,
                            select::LearnedCosts::Class which, select::Way way, size_t length) {
    next_place_ = next_place_ % (kPlaces - 1) + 1;
    const auto time = static_cast<uint64_t>(clock_.now().time_since_epoch().count());
    const uint64_t stamp = ((time << kPlaceBits) & ~kStamped) | (next_place_ << 1) |
                           (lane.is_within_host ? kSharedClock : 0);
    // The same moment, and as many messages: no two have the same one.
    if (open_[next_place_].stamp == stamp) return 0;
    const double assumed = lane.ways_of(which.load, length)->assumed(way).at(length);
    open_[next_place_] = {
        .stamp = stamp,
        .peer = endpoint.remote_uuid(),
        .costs = lane.costs,
        .which = which,
        .way = way,
        .assumed = assumed,
        .wires = lane.is_within_host ? ucs::Duration() : ucs::from_seconds(kMostWrong * assumed)};
    return stamp;
}

void MessageTimes::begin(Timing& timing, uint64_t sender, uint64_t stamp, size_t length,
                         size_t arrived) {
    timing = {.times = this,
              .sender = sender,
              .stamp = stamp,
              .began = clock_.now().time_since_epoch(),
              .work = {},
              .took = {},
              .is_elsewhere = false,
              .length = length,
              .rest = length - arrived};
}

void MessageTimes::end(ucs_status_t status, Timing& timing) {
    timing.times = nullptr;
    Endpoint* endpoint = status == UCS_OK ? endpoints_.find(timing.sender) : nullptr;
    // Over a network the first of it has come at once: the rest must say something.
    const bool is_shared = (timing.stamp & kSharedClock) != 0;
    const bool says_something = timing.rest != 0 && timing.rest >= timing.length / 2;
    if (endpoint == nullptr || (!is_shared && !says_something)) return;
    if (timing.took == ucs::Duration()) arrived(timing);
    ucs::Duration took = timing.took;
    ucs::Duration before{};
    if (is_shared) {
        const auto sent = static_cast<ucs::Duration::rep>(timing.stamp >> kPlaceBits);
        before = timing.began - ucs::Duration(sent);
    } else {
        const double times = static_cast<double>(timing.length) / static_cast<double>(timing.rest);
        took = ucs::from_seconds(ucs::seconds(took) * times);
    }
    const TookMessage message{
        .from = endpoint->local_uuid(),
        .stamp = timing.stamp,
        .work = timing.is_elsewhere ? TookMessage::kUnknown : nanoseconds(timing.work),
        .before = nanoseconds(before),
        .took = nanoseconds(took)};
    endpoint->send_control(AmId::kTook, std::as_bytes(std::span(&message, 1)));
}

ucs_status_t MessageTimes::on_took(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<MessageTimes*>(arg);
    TookMessage took{};
    if (!read_whole(data, length, &took)) {
        ucs::log_warn("malformed time of a message, of {} bytes, dropped", length);
        return UCS_OK;
    }
    Open& open = self.open_[place_of(took.stamp)];
    if (took.stamp == 0 || open.stamp != took.stamp || open.peer != took.from) return UCS_OK;
    open.stamp = 0;
    open.costs->observe(
        open.which, open.way, open.assumed,
        {.sending = open.work,
         .receiving = took.work == TookMessage::kUnknown ? ucs::kForever : duration(took.work),
         .before = duration(took.before),
         .took = duration(took.took),
         .wires = open.wires});
    return UCS_OK;
}
}  // namespace ucp

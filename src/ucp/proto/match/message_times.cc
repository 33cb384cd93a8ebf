// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/match/message_times.h"

#include <algorithm>
#include <cstring>

#include "ucp/endpoint/endpoint.h"
#include "ucs/log/log.h"
#include "ucs/sys/random.h"

namespace ucp {
namespace {

using select::LearnedCosts;
using select::Situation;

/** Parts of a thousand of a message that must be left to come, else its time says little. */
constexpr size_t kLeastRest = 500;

}  // namespace

void MessageTimes::start(TagReceive& receive, uint64_t sender, select::Way way, size_t length,
                         size_t arrived) {
    if (length == 0 || (length - arrived) < length / 1000 * kLeastRest) return;
    receive.times = this;
    receive.sender = sender;
    receive.way = way;
    receive.timed_bytes = length - arrived;
    receive.timed_length = length;
    receive.is_among_others = under_way_ != 0;
    receive.began = clock_.now().time_since_epoch();
    ++under_way_;
}

void MessageTimes::end(Request& request, TagReceive& receive) {
    --under_way_;
    receive.times = nullptr;
    const ucs::Time now = clock_.now(), began(receive.began);
    const bool is_among_others = receive.is_among_others || under_way_ != 0 || began < last_end_;
    const ucs::Duration took = now - std::max(began, last_end_);
    const bool is_pure = !is_among_others || last_way_ == receive.way;
    last_end_ = now;
    last_way_ = receive.way;
    if (request.status != UCS_OK || !is_pure || took <= ucs::Duration(0)) return;
    // As if all of it had come after the first of it.
    const double times =
        static_cast<double>(receive.timed_length) / static_cast<double>(receive.timed_bytes);
    const Situation situation = is_among_others ? Situation::kAmongOthers : Situation::kAlone;
    add(receive.sender,
        {.sender = receive.sender,
         .situation = static_cast<uint8_t>(situation),
         .way = static_cast<uint8_t>(receive.way),
         .count = 1,
         .bytes = receive.timed_length,
         .nanoseconds = static_cast<uint64_t>(static_cast<double>(took.count()) * times)},
        now);
}

void MessageTimes::add(uint64_t sender, const TookMessage& took, ucs::Time now) {
    const size_t size = LearnedCosts::size_of(took.bytes);
    const uint64_t hash =
        ucs::mix64(sender ^ ucs::mix64((size << 16) | (took.situation << 8u) | took.way));
    Sum& sum = sums_[hash % sums_.size()];
    const bool is_same = sum.message.sender == sender && sum.size == size &&
                         sum.message.situation == took.situation && sum.message.way == took.way;
    if (is_same) {
        sum.message.count += took.count;
        sum.message.bytes += took.bytes;
        sum.message.nanoseconds += took.nanoseconds;
    } else {
        if (sum.message.count != 0) tell(sum, now);
        sum = {.message = took, .size = size, .told = {}};
    }
    if (sum.told == ucs::Time() || now - sum.told >= kInterval) tell(sum, now);
}

void MessageTimes::tell(Sum& sum, ucs::Time now) {
    sum.told = now;
    if (Endpoint* endpoint = endpoints_.find(sum.message.sender)) {
        TookMessage message = sum.message;
        message.sender = endpoint->local_uuid();
        endpoint->send_control(AmId::kTook, std::as_bytes(std::span(&message, 1)));
    }
    sum.message.count = 0;
    sum.message.bytes = 0;
    sum.message.nanoseconds = 0;
}

ucs_status_t MessageTimes::on_took(void* arg, void* data, size_t length, uct::ReceiveDescriptor*) {
    auto& self = *static_cast<MessageTimes*>(arg);
    TookMessage took{};
    if (length == sizeof(took)) std::memcpy(&took, data, sizeof(took));
    if (took.count == 0 || took.situation >= select::kSituations || took.way >= select::kWays ||
        took.nanoseconds / took.count > INT64_MAX) {
        ucs::log_warn("malformed times of messages, of {} bytes, dropped", length);
        return UCS_OK;
    }
    Endpoint* endpoint = self.is_on_ ? self.endpoints_.find(took.sender) : nullptr;
    const LearnedLane* learned = endpoint != nullptr ? endpoint->learned() : nullptr;
    if (learned == nullptr) return UCS_OK;
    const size_t bytes = took.bytes / took.count;
    const auto situation = static_cast<Situation>(took.situation);
    const select::Ways* ways = learned->ways_of(situation, bytes);
    if (ways == nullptr) return UCS_OK;
    const auto average = static_cast<ucs::Duration::rep>(took.nanoseconds / took.count);
    learned->costs->observe(LearnedCosts::class_of(situation, bytes), *ways,
                            static_cast<select::Way>(took.way), bytes, ucs::Duration(average),
                            took.count);
    return UCS_OK;
}
}  // namespace ucp

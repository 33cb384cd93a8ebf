// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/model/fault.h"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace softhca {
namespace {

template <typename Number>
bool number(std::string_view text, Number* value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), *value);
    return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

bool probability(std::string_view text, double* value) {
    return number(text, value) && *value >= 0 && *value <= 1;
}

// "N" or "N:M".
bool pair(std::string_view text, uint64_t* first, uint64_t* second) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) return number(text, first);
    return number(text.substr(0, colon), first) && number(text.substr(colon + 1), second);
}

// "P:NS".
bool chance_of_time(std::string_view text, double* chance, uint64_t* nanoseconds) {
    const size_t colon = text.find(':');
    return colon != std::string_view::npos && probability(text.substr(0, colon), chance) &&
           number(text.substr(colon + 1), nanoseconds);
}

bool parse_item(std::string_view key, std::string_view value, FaultPlan* plan) {
    if (key == "drop") return probability(value, &plan->drop);
    if (key == "ud_drop") return probability(value, &plan->ud_drop);
    if (key == "ud_duplicate") return probability(value, &plan->ud_duplicate);
    if (key == "delay") return chance_of_time(value, &plan->delay, &plan->delay_ns);
    if (key == "ud_delay") return chance_of_time(value, &plan->ud_delay, &plan->ud_delay_ns);
    if (key == "kill_qp") return number(value, &plan->kill_qp_after);
    if (key == "fail_post") return number(value, &plan->fail_post);
    if (key == "fail_post_every") return number(value, &plan->fail_post_every);
    if (key == "fail_create") return number(value, &plan->fail_create);
    if (key == "link_down") return pair(value, &plan->link_down_at, &plan->link_down_for);
    if (key == "die") return number(value, &plan->die_at);
    if (key == "seed") return number(value, &plan->seed);
    return false;
}

}  // namespace

bool FaultPlan::parse(std::string_view text, FaultPlan* plan, std::string* error) {
    *plan = FaultPlan();
    while (!text.empty()) {
        const size_t comma = text.find(',');
        const std::string_view item = text.substr(0, comma);
        text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
        const size_t equals = item.find('=');
        if (equals == std::string_view::npos ||
            !parse_item(item.substr(0, equals), item.substr(equals + 1), plan)) {
            *error = std::string(item);
            return false;
        }
    }
    return true;
}

FaultPlan FaultPlan::from_environment() {
    FaultPlan plan;
    const char* text = std::getenv("SOFTHCA_FAULTS");
    std::string error;
    if (text != nullptr && !parse(text, &plan, &error)) {
        std::fprintf(stderr, "softhca: SOFTHCA_FAULTS: cannot read '%s'\n", error.c_str());
        return FaultPlan();
    }
    return plan;
}

bool FaultPlan::active() const {
    return drop > 0 || delay > 0 || ud_drop > 0 || ud_duplicate > 0 || ud_delay > 0 ||
           kill_qp_after != 0 || fail_post != 0 || fail_post_every != 0 || fail_create != 0 ||
           link_down_at != 0 || die_at != 0;
}

void FaultInjector::set(const FaultPlan& plan) {
    std::lock_guard guard(mutex_);
    plan_ = plan;
    active_ = plan.active();
    state_ = plan.seed;
    posts_ = creates_ = operations_ = 0;
}

// SplitMix64.
uint64_t FaultInjector::draw() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}
bool FaultInjector::happens(double FaultPlan::*probability) {
    if (!active()) return false;
    std::lock_guard guard(mutex_);
    return chance(plan_.*probability);
}

uint64_t FaultInjector::message_delay_ns() {
    if (!active()) return 0;
    std::lock_guard guard(mutex_);
    return chance(plan_.delay) ? plan_.delay_ns : 0;
}

uint64_t FaultInjector::datagram_delay_ns() {
    if (!active()) return 0;
    std::lock_guard guard(mutex_);
    if (plan_.ud_delay_ns == 0 || !chance(plan_.ud_delay)) return 0;
    return 1 + draw() % plan_.ud_delay_ns;
}

bool FaultInjector::fail_post() {
    if (!active()) return false;
    std::lock_guard guard(mutex_);
    ++posts_;
    return posts_ == plan_.fail_post ||
           (plan_.fail_post_every != 0 && posts_ % plan_.fail_post_every == 0);
}

bool FaultInjector::fail_create() {
    if (!active()) return false;
    std::lock_guard guard(mutex_);
    return ++creates_ == plan_.fail_create;
}

FaultInjector::Fate FaultInjector::operation() {
    if (!active()) return Fate::kNothing;
    std::lock_guard guard(mutex_);
    ++operations_;
    if (operations_ == plan_.die_at) kill(getpid(), SIGKILL);
    if (operations_ == plan_.kill_qp_after) return Fate::kKillQp;
    if (plan_.link_down_at != 0 && operations_ >= plan_.link_down_at &&
        (plan_.link_down_for == 0 || operations_ < plan_.link_down_at + plan_.link_down_for)) {
        return Fate::kLinkDown;
    }
    return Fate::kNothing;
}

}  // namespace softhca

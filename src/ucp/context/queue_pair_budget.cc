// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/context/queue_pair_budget.h"

#include <algorithm>
#include <set>

namespace ucp {
namespace {

bool take_of(QueuePairCount& count, uint32_t most) {
    uint32_t taken = count.taken.load(std::memory_order_relaxed);
    while (taken < most) {
        if (count.taken.compare_exchange_weak(taken, taken + 1, std::memory_order_relaxed))
            return true;
    }
    return false;
}

// What was missing is there.
void give_back_to(QueuePairCount& count) {
    count.taken.fetch_sub(1, std::memory_order_relaxed);
    count.is_wanted.store(false, std::memory_order_relaxed);
}

uint32_t left_of(const QueuePairCount& count, uint32_t most) {
    if (most == UINT32_MAX) return UINT32_MAX;
    return most - std::min(most, count.taken.load(std::memory_order_relaxed));
}

bool is_wanted_of(const QueuePairCount& count) {
    return count.is_wanted.load(std::memory_order_relaxed);
}

}  // namespace

AdapterCounts& AdapterCounts::own() {
    static AdapterCounts counts;
    return counts;
}

std::shared_ptr<QueuePairCount> AdapterCounts::find_or_make(const std::string& adapter) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<QueuePairCount>& count = counts_[adapter];
    if (count == nullptr) count = std::make_shared<QueuePairCount>();
    return count;
}

bool QueuePairBudget::Share::is_wanted() const {
    return std::ranges::any_of(counts_, [](const QueuePairCount* count) {
        return count != nullptr && is_wanted_of(*count);
    });
}

void QueuePairBudget::Share::give_back() {
    for (QueuePairCount* count : std::exchange(counts_, {})) {
        if (count != nullptr) give_back_to(*count);
    }
}

void QueuePairBudget::limit(unsigned domain, std::shared_ptr<QueuePairCount> count, uint32_t most) {
    adapters_.insert_or_assign(domain, Adapter{std::move(count), most});
}

uint32_t QueuePairBudget::most() const {
    return least_of(most_, [](const Adapter& adapter) { return adapter.most; });
}

uint32_t QueuePairBudget::room() const {
    return least_of(left_of(all_, most_),
                    [](const Adapter& adapter) { return left_of(*adapter.count, adapter.most); });
}

template <typename Limit>
uint32_t QueuePairBudget::least_of(uint32_t limit_of_all, Limit&& limit_of) const {
    if (adapters_.empty()) return limit_of_all;
    uint64_t sum = 0;
    std::set<const QueuePairCount*> seen;
    for (const auto& [domain, adapter] : adapters_) {
        if (seen.insert(adapter.count.get()).second) sum += limit_of(adapter);
    }
    return static_cast<uint32_t>(std::min<uint64_t>(limit_of_all, sum));
}

uint32_t QueuePairBudget::room_of(unsigned domain) const {
    const uint32_t room = left_of(all_, most_);
    const auto found = adapters_.find(domain);
    if (found == adapters_.end()) return room;
    return std::min(room, left_of(*found->second.count, found->second.most));
}

bool QueuePairBudget::share_an_adapter(unsigned domain, unsigned other) const {
    if (domain == other) return true;
    const auto one = adapters_.find(domain), another = adapters_.find(other);
    return one != adapters_.end() && another != adapters_.end() &&
           one->second.count == another->second.count;
}

QueuePairBudget::Share QueuePairBudget::take(unsigned domain, Use use) {
    const auto take_one = [use](QueuePairCount& count, uint32_t most) {
        const bool is_taken = take_of(count, most);
        if (!is_taken && use == Use::kLane) count.is_wanted.store(true, std::memory_order_relaxed);
        return is_taken;
    };
    if (!take_one(all_, most_)) return {};
    const auto found = adapters_.find(domain);
    if (found == adapters_.end()) return {all_, nullptr};
    QueuePairCount& count = *found->second.count;
    if (take_one(count, found->second.most)) return {all_, &count};
    all_.taken.fetch_sub(1, std::memory_order_relaxed);
    return {};
}

bool QueuePairBudget::is_lane_wanted() const {
    return is_wanted_of(all_) || std::ranges::any_of(adapters_, [](const auto& entry) {
               return is_wanted_of(*entry.second.count);
           });
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/proto/am/early_messages.h"

#include <algorithm>
#include <utility>

namespace ucp {

void EarlyMessages::add(EarlyMessage message) {
    const size_t size = message.size();
    messages_.push_back(std::move(message));
    bytes_ += size;
}

bool EarlyMessages::has(uint16_t id) const {
    return std::ranges::any_of(messages_, [&](const auto& message) { return message.id == id; });
}

void EarlyMessages::take(Messages::iterator found, EarlyMessage* message) {
    bytes_ -= found->size();
    *message = std::move(*found);
    messages_.erase(found);
}

bool EarlyMessages::take(uint16_t id, EarlyMessage* message) {
    const auto found =
        std::ranges::find_if(messages_, [&](const auto& other) { return other.id == id; });
    if (found == messages_.end()) return false;
    take(found, message);
    return true;
}

bool EarlyMessages::take_any(EarlyMessage* message) {
    if (messages_.empty()) return false;
    take(messages_.begin(), message);
    return true;
}

bool EarlyMessages::take_overdue(ucs::Time now, EarlyMessage* message) {
    for (auto other = messages_.rbegin(); other != messages_.rend() && !other->was_seen; ++other) {
        other->since = now;
        other->was_seen = true;
    }
    if (messages_.empty() || now < messages_.front().since + kPatience) return false;
    return take_any(message);
}

ucs::Time EarlyMessages::next_deadline() const {
    if (messages_.empty()) return ucs::kNever;
    const EarlyMessage& oldest = messages_.front();
    return oldest.was_seen ? oldest.since + kPatience : ucs::Time{};
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ucp/lanes/messages.h"

namespace ucp {

// Messages of the negotiation that have come and are still to be looked at, in their order.
class LaneInbox {
  public:
    struct Entry {
        uint64_t sender;
        lanes::Message message;
    };

    // What comes while there is no memory has room.
    LaneInbox() { entries_.reserve(kRoom); }

    bool is_empty() const { return next_ == entries_.size(); }
    // Throws std::bad_alloc; nothing is added then, and the message is as it was.
    void add(uint64_t sender, lanes::Message&& message) {
        if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size());
        entries_.push_back({sender, std::move(message)});
    }
    // The oldest one. There is one.
    Entry take() {
        Entry entry = std::move(entries_[next_++]);
        if (is_empty()) {
            entries_.clear();
            next_ = 0;
        }
        return entry;
    }
    // Whether there is one of that sender.
    bool has(uint64_t sender) const {
        for (size_t i = next_; i < entries_.size(); ++i) {
            if (entries_[i].sender == sender) return true;
        }
        return false;
    }

  private:
    static constexpr size_t kRoom = 16;

    std::vector<Entry> entries_;
    size_t next_ = 0;
};

}  // namespace ucp

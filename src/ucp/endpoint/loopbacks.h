// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ucp {

class Endpoint;

// Endpoints to the own worker that are each other's other end (UCP_EP_PARAMS_FLAGS_NO_LOOPBACK):
// the first and the second, the third and the fourth. Each has a number, below any uuid, by which
// the messages of its partner name it. What a stream brings for a partner that is yet to come
// waits.
class Loopbacks {
  public:
    static constexpr uint16_t kMaxNumber = 4094;

    // @return its partner's number; 0: there are too many, it reaches the worker as others do
    uint16_t add(Endpoint& endpoint) {
        if (!awaited_) awaited_ = find_free_pair();
        if (!awaited_) return 0;
        const size_t place = *awaited_;
        slots_[place].endpoint = &endpoint;
        const size_t partner = place ^ 1;
        awaited_ = slots_[partner].endpoint == nullptr ? std::optional(partner) : std::nullopt;
        return static_cast<uint16_t>(partner + 1);
    }
    // @param partner  what add() said
    void remove(uint16_t partner) {
        const size_t place = static_cast<size_t>(partner - 1) ^ 1;
        slots_[place] = {};
        if (awaited_ == (place ^ 1)) {
            slots_[place ^ 1] = {};
            awaited_.reset();
        }
    }
    static bool is_number(uint64_t name) { return name != 0 && name <= kMaxNumber; }
    Endpoint* find(uint64_t number) const {
        return number <= slots_.size() ? slots_[number - 1].endpoint : nullptr;
    }
    // Who waits for a partner of that number; null: nobody does.
    Endpoint* find_waiting(uint64_t number) const {
        return awaited_ && *awaited_ + 1 == number ? slots_[*awaited_ ^ 1].endpoint : nullptr;
    }
    // Bytes of a stream for the one that is awaited.
    void hold(std::span<const std::byte> bytes) {
        std::vector<std::byte>& early = slots_[*awaited_].early;
        early.insert(early.end(), bytes.begin(), bytes.end());
    }
    // What has come before the endpoint. @param partner  what add() said
    std::vector<std::byte> take_early(uint16_t partner) {
        std::vector<std::byte> early;
        early.swap(slots_[static_cast<size_t>(partner - 1) ^ 1].early);
        return early;
    }

  private:
    struct Slot {
        Endpoint* endpoint = nullptr;
        std::vector<std::byte> early;
    };

    std::optional<size_t> find_free_pair() {
        for (size_t place = 0; place + 1 < slots_.size(); place += 2) {
            if (slots_[place].endpoint == nullptr && slots_[place + 1].endpoint == nullptr)
                return place;
        }
        if (slots_.size() == kMaxNumber) return {};
        slots_.resize(slots_.size() + 2);
        return slots_.size() - 2;
    }

    std::vector<Slot> slots_;
    std::optional<size_t> awaited_;  // the place of the next one
};

}  // namespace ucp

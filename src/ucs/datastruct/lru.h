// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ucs {

// The most recently used of many objects, in a fixed number of entries.
//
// An object takes part by holding a Slot: two bytes, the number of its entry if it has one. So a
// lookup is an array access, there is no hash of addresses, and memory depends on the capacity
// alone: capacity * sizeof(Entry), all of it taken by the constructor. An object with a slot in use
// must not move, and must be removed before its memory goes. One thread at a time.
template <typename Value>
class Lru {
  public:
    using SlotNumber = uint16_t;
    static constexpr SlotNumber kMaxCapacity = 0xfffe;
    static constexpr SlotNumber kNone = 0xffff;

    struct Slot {
        constexpr Slot() = default;
        Slot(Slot&&) = delete;

        bool in_use() const { return number != kNone; }

        SlotNumber number = kNone;  // for the LRU to set
    };

    // At least 1 and at most kMaxCapacity entries; a value outside is brought to the next inside.
    explicit Lru(size_t capacity)
        : capacity_(capacity < 1              ? 1
                    : capacity > kMaxCapacity ? kMaxCapacity
                                              : capacity),
          entries_(std::make_unique<Entry[]>(capacity_)) {
        for (size_t index = 0; index < capacity_; ++index) free_.push_back(entries_[index]);
    }

    Lru(const Lru&) = delete;

    size_t capacity() const { return capacity_; }
    size_t size() const { return size_; }
    size_t memory_bytes() const { return sizeof(*this) + capacity_ * sizeof(Entry); }

    // One comparison.
    bool is_newest(const Slot& slot) const { return slot.number == newest_; }

    // Undefined for an empty LRU.
    Value& newest() { return *newest_value_; }

    // Makes the object the newest. One that had no entry gets a value-initialised one, taken from
    // the oldest object if none is free: on_evict(Value&) sees that one's last value first.
    template <typename OnEvict>
    Value& touch(Slot& slot, OnEvict&& on_evict) {
        if (slot.in_use()) {
            order_.splice(order_.begin(), order_, order_.iterator_to(entries_[slot.number]));
        } else {
            if (free_.empty()) {
                Entry& oldest = order_.back();
                on_evict(oldest.value);
                release(oldest);
            }
            Entry& entry = free_.front();
            free_.pop_front();
            order_.push_front(entry);
            entry.owner = &slot;
            entry.value = Value{};
            slot.number = static_cast<SlotNumber>(&entry - entries_.get());
            ++size_;
        }
        newest_ = slot.number;
        newest_value_ = &entries_[newest_].value;
        return *newest_value_;
    }

    // Null if the object has no entry. The order stays.
    Value* find(const Slot& slot) { return slot.in_use() ? &entries_[slot.number].value : nullptr; }

    // What is in that entry, by its number below capacity(); null if it is free. The order stays.
    Value* at(size_t number) {
        Entry& entry = entries_[number];
        return entry.owner != nullptr ? &entry.value : nullptr;
    }

    // No effect on an object without an entry.
    void remove(Slot& slot) {
        if (slot.in_use()) release(entries_[slot.number]);
    }

    void clear() {
        while (!order_.empty()) release(order_.front());
    }

    // From the newest to the oldest. The function must not touch or remove.
    template <typename Function>
    void for_each(Function&& function) {
        for (Entry& entry : order_) function(entry.value);
    }
    template <typename Function>
    void for_each(Function&& function) const {
        for (const Entry& entry : order_) function(entry.value);
    }

  private:
    // What newest_ holds while there is none: differs from every slot's number.
    static constexpr SlotNumber kEmpty = 0xfffe;

    using Hook = boost::intrusive::list_base_hook<
        boost::intrusive::link_mode<boost::intrusive::normal_link>>;

    struct Entry : Hook {
        Slot* owner = nullptr;
        Value value{};
    };

    using List = boost::intrusive::list<Entry, boost::intrusive::constant_time_size<false>>;

    void release(Entry& entry) {
        order_.erase(order_.iterator_to(entry));
        entry.owner->number = kNone;
        entry.owner = nullptr;
        free_.push_front(entry);
        --size_;
        if (order_.empty()) {
            newest_ = kEmpty;
            newest_value_ = nullptr;
        } else {
            newest_ = static_cast<SlotNumber>(&order_.front() - entries_.get());
            newest_value_ = &order_.front().value;
        }
    }

    // First, as they are all that the usual touch reads.
    SlotNumber newest_ = kEmpty;
    Value* newest_value_ = nullptr;

    size_t capacity_;
    size_t size_ = 0;
    std::unique_ptr<Entry[]> entries_;
    List order_;
    List free_;
};

}  // namespace ucs

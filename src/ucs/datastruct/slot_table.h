// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ucs {

// Stable names for objects, that may travel in messages: a small index and the generation of its
// slot. The name of an object that is gone finds nothing, although its slot may be in use again
// (a generation comes back after 2^32 uses of its slot). Insert, find and erase are O(1); only an
// insert that needs a new slot allocates. Objects are not owned. One thread at a time.
template <typename T>
class SlotTable {
  public:
    struct Handle {
        uint32_t index = UINT32_MAX;
        uint32_t generation = 0;

        constexpr uint64_t packed() const { return uint64_t{generation} << 32 | index; }
        static constexpr Handle unpack(uint64_t packed) {
            return {static_cast<uint32_t>(packed), static_cast<uint32_t>(packed >> 32)};
        }
        friend bool operator==(Handle, Handle) = default;
    };

    Handle insert(T& object) {
        uint32_t index = free_;
        if (index == kEnd) {
            index = static_cast<uint32_t>(slots_.size());
            slots_.emplace_back();
        } else {
            free_ = slots_[index].next_free;
        }
        slots_[index].object = &object;
        ++size_;
        return {index, slots_[index].generation};
    }

    // Null for any handle that this table has not given, or whose object is erased.
    T* find(Handle handle) const {
        if (handle.index >= slots_.size()) return nullptr;
        const Slot& slot = slots_[handle.index];
        return slot.generation == handle.generation ? slot.object : nullptr;
    }

    // False, and no effect, where find() gives null.
    bool erase(Handle handle) {
        if (find(handle) == nullptr) return false;
        Slot& slot = slots_[handle.index];
        slot.object = nullptr;
        ++slot.generation;
        slot.next_free = free_;
        free_ = handle.index;
        --size_;
        return true;
    }

    size_t size() const { return size_; }

    // function(Handle, T&) for each object, in the order of index. It may erase, not insert.
    template <typename Function>
    void for_each(Function&& function) {
        for (uint32_t index = 0; index < slots_.size(); ++index) {
            if (slots_[index].object != nullptr) {
                function(Handle{index, slots_[index].generation}, *slots_[index].object);
            }
        }
    }

  private:
    static constexpr uint32_t kEnd = UINT32_MAX;

    struct Slot {
        T* object = nullptr;
        uint32_t generation = 0;
        uint32_t next_free = kEnd;
    };

    std::vector<Slot> slots_;
    uint32_t free_ = kEnd;
    size_t size_ = 0;
};

}  // namespace ucs

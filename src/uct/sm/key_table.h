// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "uct/api/memory_domain.h"
#include "uct/base/joint_copy.h"
#include "uct/sm/segment.h"

namespace uct::sm {

// What a key gives access to.
struct Grant {
    uint64_t address;  // in the owner's address space
    uint64_t length;
    uint64_t nonce;       // of the segment that holds the memory; 0: in none
    uint64_t offset;      // in that segment
    uint32_t descriptor;  // of that segment
    PeerRights rights;
};

// A place in the table.
struct alignas(64) KeySlot {
    std::atomic<uint64_t> number;  // of the key that is good now; 0: none
    Grant grant;
};
static_assert(sizeof(KeySlot) == 64);

// The keys to memory of a process that are good now, in shared memory of that process; behind them
// lies the board on which peers offer it copies from and to that memory.
//
// Accesses over shared memory run on the peer's processor, so that its owner cannot look at each.
// A key names a slot of this table and the number that must be found there: the peer maps the
// table, takes range and rights from there and not from the key, and looks at the number before
// each access. An access that has begun when the memory is deregistered still runs to its end.
//
// The numbers are random: who was not given a key cannot name one. Only the owner may change the
// table; that peers, which are processes of the same user, do not is as much as the system offers,
// which lets them at the memory itself.
class KeyTable {
  public:
    static constexpr uint32_t kSlots = 16384;
    static constexpr uint32_t kNoSlot = UINT32_MAX;

    struct Key {
        uint32_t slot = kNoSlot;
        uint64_t number = 0;
    };

    KeyTable() = default;
    ~KeyTable();
    KeyTable(const KeyTable&) = delete;
    KeyTable& operator=(const KeyTable&) = delete;

    // Has this process made a table of that name? What else it shares peers can write.
    static bool is_own(uint64_t nonce);

    // @return a key of kNoSlot if the table is full, or there is no shared memory for one
    Key add(const Grant& grant);
    void remove(const Key& key);
    // In shared memory once the first key has been added.
    const SharedSegment* segment() const { return segment_.get(); }

    // The slots in a table that was mapped; null if it is none.
    static const KeySlot* slots(const std::byte* base, size_t size) {
        return size == kBytes ? reinterpret_cast<const KeySlot*>(base) : nullptr;
    }
    // The board in a table.
    static JointCopyBoard* board(std::byte* base) {
        return reinterpret_cast<JointCopyBoard*>(base + kSlots * sizeof(KeySlot));
    }
    // The own one; null before the first key. Any thread may ask.
    JointCopyBoard* board() const { return board_.load(std::memory_order_acquire); }
    // May a peer copy like this with a key of this table? Any thread may ask.
    bool allows(const JointCopyTerms& terms) const;

  private:
    static constexpr size_t kBytes = kSlots * sizeof(KeySlot) + sizeof(JointCopyBoard);

    // Not 0.
    uint64_t draw_number();
    KeySlot* slots() const { return reinterpret_cast<KeySlot*>(segment_->base()); }

    std::unique_ptr<SharedSegment> segment_;
    std::atomic<JointCopyBoard*> board_{nullptr};
    bool is_refused_ = false;  // there is no shared memory: not asked for again
    uint32_t used_ = 0;        // slots from here on were never used
    std::vector<uint32_t> free_;
    // Drawn ahead: a system call for each would take as long as a short message.
    std::array<uint64_t, 32> numbers_;
    size_t drawn_ = 0;  // of these, from the front, still to be used
};

// Do the bytes lie within what was granted?
bool covers(const Grant& grant, uint64_t address, size_t length);

// What a key names in a mapped table. @return false if the key is not good
bool read_grant(const KeySlot& slot, uint64_t number, Grant* grant);

}  // namespace uct::sm

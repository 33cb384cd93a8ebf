// SPDX-License-Identifier: BSD-3-Clause
#include "uct/sm/key_table.h"

#include <algorithm>
#include <mutex>
#include <new>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"

namespace uct::sm {

namespace {

// The tables of this process, by the names of their segments: each domain has one.
struct OwnTables {
    std::mutex mutex;
    std::vector<uint64_t> names;
};

OwnTables& own_tables() {
    static auto* tables = new OwnTables;
    return *tables;
}

// @return false if there is no memory
bool remember(uint64_t nonce) {
    OwnTables& own = own_tables();
    const std::lock_guard lock(own.mutex);
    try {
        own.names.push_back(nonce);
    } catch (const std::bad_alloc&) {
        return false;
    }
    return true;
}

}  // namespace

KeyTable::~KeyTable() {
    if (segment_ == nullptr) return;
    OwnTables& own = own_tables();
    const std::lock_guard lock(own.mutex);
    std::erase(own.names, segment_->name().nonce);
}

bool KeyTable::is_own(uint64_t nonce) {
    OwnTables& own = own_tables();
    const std::lock_guard lock(own.mutex);
    return std::ranges::find(own.names, nonce) != own.names.end();
}

KeyTable::Key KeyTable::add(const Grant& grant) {
    if (segment_ == nullptr) {
        if (is_refused_) return {};
        if (SharedSegment::create(kBytes, nullptr, false, &segment_) != UCS_OK ||
            !remember(segment_->name().nonce)) {
            segment_.reset();
            is_refused_ = true;
            ucs::log_info("no shared memory for keys: peers reach memory by messages");
            return {};
        }
        board_.store(board(segment_->base()), std::memory_order_release);
    }
    uint32_t index = used_;
    if (!free_.empty()) {
        index = free_.back();
        free_.pop_back();
    } else if (used_ == kSlots) {
        return {};
    } else {
        ++used_;
    }
    KeySlot& slot = slots()[index];
    slot.grant = grant;
    const uint64_t number = draw_number();
    slot.number.store(number, std::memory_order_release);
    return {index, number};
}

uint64_t KeyTable::draw_number() {
    for (;;) {
        if (drawn_ == 0) {
            ucs::runtime().entropy->fill(numbers_);
            drawn_ = numbers_.size();
        }
        if (const uint64_t number = numbers_[--drawn_]; number != 0) return number;
    }
}

void KeyTable::remove(const Key& key) {
    if (key.slot == kNoSlot) return;
    // Seen before any message that is sent from now on. Nobody waits here for the line, which the
    // peer has: the owner of a message that was announced would do so for each.
    slots()[key.slot].number.store(0, std::memory_order_release);
    try {
        free_.push_back(key.slot);
    } catch (const std::bad_alloc&) {
        // The slot is not used again.
    }
}

bool KeyTable::allows(const JointCopyTerms& terms) const {
    Grant grant;
    if (terms.key_slot >= kSlots || !read_grant(slots()[terms.key_slot], terms.key, &grant))
        return false;
    const PeerRights wanted =
        terms.direction == CopyDirection::kPut ? PeerRights::kWrite : PeerRights::kRead;
    return uct::allows(grant.rights, wanted) && covers(grant, terms.remote, terms.length);
}

bool covers(const Grant& grant, uint64_t address, size_t length) {
    return address >= grant.address && address - grant.address <= grant.length &&
           length <= grant.length - (address - grant.address);
}

bool read_grant(const KeySlot& slot, uint64_t number, Grant* grant) {
    if (number == 0 || slot.number.load(std::memory_order_acquire) != number) return false;
    *grant = slot.grant;
    std::atomic_thread_fence(std::memory_order_acquire);
    // Else another key has taken the place while it was read.
    if (slot.number.load(std::memory_order_relaxed) != number) return false;
    uint64_t end;
    return !__builtin_add_overflow(grant->address, grant->length, &end);
}

}  // namespace uct::sm

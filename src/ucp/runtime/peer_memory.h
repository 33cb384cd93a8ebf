// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <unordered_map>

namespace ucp {

// What each peer makes this worker hold: messages that nobody has received yet, and parts of
// messages (UCX_PEER_MEMORY).
//
// Who sends more than that while nobody receives loses his endpoint, and others go on. Workers are
// told apart by their uuid. What a worker sends to itself (uuid 0) is not counted.
//
// Most peers have a message here now and then, so that their accounts stay when nothing is in them,
// until there are many such. One that holds something stays where it is.
class PeerMemory {
  public:
    PeerMemory() = default;
    PeerMemory(PeerMemory&&) = delete;

    void set_limit(size_t bytes) { limit_ = bytes; }
    size_t limit() const { return limit_; }
    // @param account  the worker's, which stays while something is in it; null: it is not counted
    // @return false: that is more than the peer may have here; nothing was added
    bool add(uint64_t worker, size_t bytes, size_t** account) {
        *account = nullptr;
        if (worker == 0 || limit_ == SIZE_MAX) return true;
        size_t& held = account_of(worker);
        if (bytes > limit_ || held > limit_ - bytes) return false;
        held += bytes;
        *account = &held;
        return true;
    }
    size_t held(uint64_t worker) const {
        const auto found = held_.find(worker);
        return found == held_.end() ? 0 : found->second;
    }
    // Accounts, those in which nothing is as well.
    size_t size() const { return held_.size(); }
    static constexpr size_t kFewAccounts = 256;  // nothing is tidied up before

  private:
    size_t& account_of(uint64_t worker) {
        if (last_ != nullptr && last_worker_ == worker) [[likely]]
            return *last_;
        return find_account(worker);
    }
    [[gnu::noinline]] size_t& find_account(uint64_t worker) {
        last_ = nullptr;
        auto found = held_.find(worker);
        if (found == held_.end()) {
            if (held_.size() >= most_) {
                std::erase_if(held_, [](const auto& account) { return account.second == 0; });
                most_ = std::max(kFewAccounts, 2 * held_.size());
            }
            found = held_.emplace(worker, 0).first;
        }
        last_worker_ = worker;
        last_ = &found->second;
        return *last_;
    }

    size_t limit_ = SIZE_MAX;
    std::unordered_map<uint64_t, size_t> held_;  // bytes, by worker
    size_t most_ = kFewAccounts;                 // accounts, before those without bytes go
    uint64_t last_worker_ = 0;
    size_t* last_ = nullptr;
};

// What one message takes of its sender's memory here, until it goes.
class HeldBytes {
  public:
    HeldBytes() = default;
    ~HeldBytes() { release(); }
    HeldBytes(HeldBytes&&) = delete;

    // Without memory for the account the message is not counted.
    // @return false: there is no room; nothing is held
    bool open(PeerMemory& memory, uint64_t worker, size_t bytes) {
        size_t* account;
        try {
            if (!memory.add(worker, bytes, &account)) return false;
        } catch (const std::bad_alloc&) {
            return true;
        }
        if (account == nullptr || bytes == 0) return true;
        memory_ = &memory;
        worker_ = worker;
        account_ = account;
        bytes_ = bytes;
        return true;
    }
    // So much more. @return false: there is no room; what was held still is
    bool grow(size_t bytes) {
        if (bytes_ == 0) return true;
        size_t* account;
        if (!memory_->add(worker_, bytes, &account)) return false;
        bytes_ += bytes;
        return true;
    }
    void release() {
        if (bytes_ != 0) *account_ -= bytes_;
        bytes_ = 0;
    }

  private:
    size_t bytes_ = 0;  // 0: none, and nothing else here has a value
    size_t* account_;
    PeerMemory* memory_;
    uint64_t worker_;
};

}  // namespace ucp

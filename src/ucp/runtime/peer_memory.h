// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
    // The worker's account: stays while something is in it, and until generation() is another one.
    // Throws std::bad_alloc. @return null: that worker is not counted
    size_t* account_of(uint64_t worker) {
        if (worker == 0 || limit_ == SIZE_MAX) return nullptr;
        auto found = held_.find(worker);
        if (found == held_.end()) {
            if (held_.size() >= most_) forget_empty();
            found = held_.emplace(worker, 0).first;
        }
        return &found->second;
    }
    // Of accounts that may be kept by who asked for them.
    uint32_t generation() const { return generation_; }
    // @return false: that is more than the peer may have here; nothing was added
    bool add(size_t& account, size_t bytes) const {
        if (bytes > limit_ - account) return false;  // no account has more than the limit
        account += bytes;
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
    void forget_empty() {
        ++generation_;
        std::erase_if(held_, [](const auto& account) { return account.second == 0; });
        most_ = std::max(kFewAccounts, 2 * held_.size());
    }

    size_t limit_ = SIZE_MAX;
    std::unordered_map<uint64_t, size_t> held_;  // bytes, by worker
    size_t most_ = kFewAccounts;                 // accounts, before those without bytes go
    uint32_t generation_ = 0;
};

// What one message takes of its sender's memory here, until it goes.
class HeldBytes {
  public:
    HeldBytes() = default;
    ~HeldBytes() { release(); }
    HeldBytes(HeldBytes&&) = delete;

    // @param account  PeerMemory::account_of()
    // @return false: there is no room; nothing is held
    bool open(const PeerMemory& memory, size_t* account, size_t bytes) {
        if (account == nullptr) return true;
        if (!memory.add(*account, bytes)) return false;
        account_ = account;
        bytes_ = bytes;
        return true;
    }
    // So much more. @return false: there is no room; what was held still is
    bool grow(const PeerMemory& memory, size_t bytes) {
        if (bytes_ == 0) return true;
        if (!memory.add(*account_, bytes)) return false;
        bytes_ += bytes;
        return true;
    }
    void release() {
        if (bytes_ != 0) *account_ -= bytes_;
        bytes_ = 0;
    }

  private:
    size_t bytes_ = 0;  // 0: none
    size_t* account_ = nullptr;
};

}  // namespace ucp

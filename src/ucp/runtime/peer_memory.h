// SPDX-License-Identifier: BSD-3-Clause
#pragma once

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
class PeerMemory {
  public:
    PeerMemory() = default;
    PeerMemory(PeerMemory&&) = delete;

    void set_limit(size_t bytes) { limit_ = bytes; }
    size_t limit() const { return limit_; }
    // @return false: that is more than the peer may have here; nothing was added
    bool add(uint64_t worker, size_t bytes) {
        if (worker == 0 || limit_ == SIZE_MAX) return true;
        size_t& held = account(worker);
        if (bytes > limit_ || held > limit_ - bytes) return false;
        held += bytes;
        return true;
    }
    // What was added.
    void remove(uint64_t worker, size_t bytes) {
        if (worker == 0 || limit_ == SIZE_MAX || bytes == 0) return;
        account(worker) -= bytes;
    }
    size_t held(uint64_t worker) const {
        const auto found = held_.find(worker);
        return found == held_.end() ? 0 : found->second;
    }
    // Peers that have something here, and one that had last.
    size_t size() const { return held_.size(); }

  private:
    size_t& account(uint64_t worker) {
        if (last_ == nullptr || last_worker_ != worker) [[unlikely]] {
            // The last one stays while nobody else comes: most have one message here, again and
            // again.
            if (last_ != nullptr && *last_ == 0) held_.erase(last_worker_);
            last_ = nullptr;
            last_ = &held_[worker];
            last_worker_ = worker;
        }
        return *last_;
    }

    size_t limit_ = SIZE_MAX;
    std::unordered_map<uint64_t, size_t> held_;  // bytes, by worker
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
        try {
            if (!memory.add(worker, bytes)) return false;
        } catch (const std::bad_alloc&) {
            return true;
        }
        memory_ = &memory;
        worker_ = worker;
        bytes_ = bytes;
        return true;
    }
    // So much more. @return false: there is no room; what was held still is
    bool grow(size_t bytes) {
        if (memory_ != nullptr && !memory_->add(worker_, bytes)) return false;
        bytes_ += bytes;
        return true;
    }
    void release() {
        if (memory_ != nullptr) memory_->remove(worker_, bytes_);
        memory_ = nullptr;
    }

  private:
    PeerMemory* memory_ = nullptr;
    uint64_t worker_ = 0;
    size_t bytes_ = 0;
};

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ucp {

// Dedicated queue pairs that are there of those that share a limit. Any thread.
struct QueuePairCount {
    std::atomic<uint32_t> taken{0};
    // A lane found no room: who has queue pairs that it can do without gives one back.
    std::atomic<bool> is_wanted{false};
};

// The counts of a process's adapters: all of its contexts share them. Any thread.
class AdapterCounts {
  public:
    // Those of this process.
    static AdapterCounts& own();
    // @param adapter  without its port
    std::shared_ptr<QueuePairCount> find_or_make(const std::string& adapter);

  private:
    std::mutex mutex_;
    std::map<std::string, std::shared_ptr<QueuePairCount>, std::less<>> counts_;
};

// Dedicated queue pairs that the workers of a context may have: all together, and of each adapter
// with those of the process's other contexts, as an adapter keeps the state of so many at hand
// (docs/design/lanes.md). Any thread, once all limits are set.
class QueuePairBudget {
  public:
    enum class Use : uint8_t {
        kLane,
        kBulk,  // gives way to lanes
    };

    // One queue pair's part of the budget, from before it is made until after it is destroyed.
    class Share {
      public:
        Share() = default;
        // Of these, where it is counted already. @param adapter  null: of none with a limit
        Share(QueuePairCount& all, QueuePairCount* adapter) : counts_{&all, adapter} {}
        Share(Share&& other) noexcept : counts_(std::exchange(other.counts_, {})) {}
        Share& operator=(Share&& other) noexcept {
            give_back();
            counts_ = std::exchange(other.counts_, {});
            return *this;
        }
        ~Share() { give_back(); }

        explicit operator bool() const { return counts_[0] != nullptr; }
        // A lane lacks what this one takes.
        bool is_wanted() const;
        void give_back();

      private:
        std::array<QueuePairCount*, 2> counts_{};
    };

    // @param most  of all workers together; UINT32_MAX: any number
    explicit QueuePairBudget(uint32_t most) : most_(most) {}
    QueuePairBudget(const QueuePairBudget&) = delete;

    // The adapter of that memory domain has so many at most of those that the count counts.
    void limit(unsigned domain, std::shared_ptr<QueuePairCount> count, uint32_t most);
    // The most that a worker can have, if it is alone; UINT32_MAX: any number.
    uint32_t most() const;
    // Takes one for a queue pair of that domain, if there is one left.
    Share take(unsigned domain, Use use);
    // How many more there are now, of that domain, and of all; UINT32_MAX: any number.
    uint32_t room_of(unsigned domain) const;
    uint32_t room() const;
    // What one of these domains gives back is there for the other.
    bool share_an_adapter(unsigned domain, unsigned other) const;
    // A lane lacks one: cheap to ask.
    bool is_lane_wanted() const;

  private:
    struct Adapter {
        std::shared_ptr<QueuePairCount> count;
        uint32_t most;
    };

    // Of all adapters' limits together, and the one of all queue pairs, the lower one.
    template <typename Limit>
    uint32_t least_of(uint32_t limit_of_all, Limit&& limit_of) const;

    const uint32_t most_;
    QueuePairCount all_;
    std::map<unsigned, Adapter> adapters_;  // by domain: the ports of an adapter share a count
};

}  // namespace ucp

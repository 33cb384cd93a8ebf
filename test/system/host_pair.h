// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "softhca/host/host_fabric.h"
#include "ucp/api/ucpx.h"
#include "ucp/bulk/engine/engine.h"
#include "ucp/bulk/engine/path.h"
#include "ucp/bulk/queue_pairs/queue_pair_driver.h"
#include "ucp/bulk/threads/thread_pool.h"
#include "uct/api/memory_domain.h"
#include "unit/ucp/cluster.h"

namespace ucp::test {

// Whether all have that value: as fast with a sanitizer, without optimisation.
inline bool is_all(std::span<const uint8_t> bytes, uint8_t value) {
    return bytes.empty() || (bytes[0] == value &&
                             std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// An operation of a HostPair, and how often its callback was called.
struct HostOperation {
    unsigned ends = 0;
    ucs_status_t status = UCS_INPROGRESS;
};

// Two workers of this process on the host-wide fabric of emulated adapters, or on other transports
// of this host, in real time, with threads for bulk transfers if the configuration says so. The
// second has memory for the first.
//
// The program sets SOFTHCA_FABRIC, and SOFTHCA_DEVICES, before the first is made.
class HostPair {
  public:
    struct Options {
        unsigned workers = 1;
        unsigned shards = 4;
        unsigned qps = 4;
        size_t length = 8 << 20;
        uint64_t features = kAllFeatures;
        ucs::Duration stall_timeout = std::chrono::milliseconds(400);
        size_t window = 4 << 20;
        size_t slice = 65536;
        std::vector<std::pair<std::string, std::string>> variables;  // set as users do
        std::vector<std::string> transports = {"dc_mlx5", "rc_mlx5"};
    };

    explicit HostPair(const Options& options);
    ~HostPair();

    ucp_worker_h worker(size_t index) const { return sides_[index].worker; }
    ucp_ep_h endpoint(size_t index) const { return sides_[index].endpoint; }
    Worker& inner(size_t index) const { return unwrap(sides_[index].worker); }
    // Its threads; null: none.
    bulk::ThreadPool* pool(size_t index) const { return inner(index).bulk().threads(); }
    uint64_t moved(size_t index) const {
        return pool(index) == nullptr ? 0 : pool(index)->counters().bytes.load();
    }
    // The same of copies within the host.
    uint64_t copied(size_t index) const {
        const uct::CopyThreads* threads = inner(index).interfaces().copy_threads();
        return threads == nullptr ? 0 : threads->bytes();
    }

    void step();
    // Progress of both until the condition holds. @return false: it does not
    template <typename Condition>
    bool until(Condition condition, std::chrono::seconds limit = std::chrono::seconds(60)) {
        return until(
            condition, [this] { step(); }, limit);
    }
    // The same without any progress: only threads run.
    template <typename Condition>
    static bool await(Condition condition, std::chrono::seconds limit = std::chrono::seconds(60)) {
        return until(
            condition, [] { std::this_thread::yield(); }, limit);
    }

    // Promote the endpoint of the first, with queue pairs on all devices, or take that back.
    void promote();
    void demote();
    bool has_queue_pairs() const;
    bool is_scalable(size_t index) const;

    HostOperation& start_put(size_t offset = 0, size_t length = SIZE_MAX);
    HostOperation& start_get(size_t offset = 0, size_t length = SIZE_MAX);
    HostOperation& start_send(const void* data, size_t length);
    HostOperation& start_receive(void* data, size_t length);
    // Progress until it has ended.
    ucs_status_t finish(HostOperation& operation);

    void destroy(size_t index);
    // The memory of the second is no longer registered.
    void withdraw_memory();
    void fill(uint64_t seed);
    void fill_there(uint64_t seed);

    std::vector<uint8_t> here, there;

  private:
    struct Side {
        std::unique_ptr<Context> context;
        ucp_worker_h worker = nullptr;
        ucp_ep_h endpoint = nullptr;
    };
    template <typename Condition, typename Step>
    static bool until(Condition condition, Step step, std::chrono::seconds limit) {
        const auto end = std::chrono::steady_clock::now() + limit;
        while (!condition()) {
            if (std::chrono::steady_clock::now() > end) return false;
            step();
        }
        return true;
    }
    void connect(size_t from, size_t to);
    HostOperation& add();
    static void end(HostOperation& operation, void* request, ucs_status_t status);
    static ucp_request_param_t parameters(HostOperation& operation);
    HostOperation& started(HostOperation& operation, ucs_status_ptr_t request);

    unsigned queue_pairs_wanted_;
    std::array<uct::Component*, 3> components_;
    std::array<Side, 2> sides_;
    std::vector<std::unique_ptr<HostOperation>> operations_;
    ucp_mem_h memory_ = nullptr;
    ucp_rkey_h key_ = nullptr;
};

}  // namespace ucp::test

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ucp/bulk/schedule/rules.h"
#include "ucp/bulk/threads/shared_queue.h"
#include "ucp/bulk/threads/thread_events.h"
#include "ucs/datastruct/memory_pool.h"
#include "ucs/sys/random.h"
#include "uct/api/interface.h"
#include "uct/api/memory_domain.h"
#include "uct/base/refusing_endpoint.h"

namespace ucp::bulk {

// What the threads of a worker have done.
struct ThreadCounters {
    std::atomic<uint64_t> chains{0}, bytes{0};  // posted
};

// A thread that moves slices of transfers over queue pairs of its own interface.
//
// The public calls are the worker's, one thread at a time, and hold no shard. They wait for the
// thread, which never waits for the worker.
class BulkThread {
  public:
    struct Params {
        const ucs::Clock& clock;
        ThreadEvents& events;
        Rules rules;
        ThreadCounters& counters;
        std::vector<unsigned> cpus;  // to run on; empty: any
        uint64_t seed;
        size_t estimated_endpoints;
        // Starts a thread; throws std::system_error where there may be no more.
        std::thread (*spawn)(std::function<void()> run) = [](std::function<void()> run) {
            return std::thread(std::move(run));
        };
    };

    // Opens the interface and starts the thread. @return UCS_ERR_NO_RESOURCE: no thread
    static ucs_status_t start(const Params& params, uct::MemoryDomain& domain,
                              const std::string& transport, std::unique_ptr<BulkThread>* thread);
    // All queue pairs are closed before.
    ~BulkThread();
    BulkThread(const BulkThread&) = delete;

    // Runs it in the thread, between two calls of the transport, and waits for its end.
    void call(const std::function<void()>& command);
    // There may be something to take.
    void wake();

    ucs_status_t make_queue_pair(std::shared_ptr<ThreadQueuePair>* queue_pair);
    // From now on the queue pair, which is connected, carries transfers of the shared queue.
    void begin(ThreadQueuePair& queue_pair, SharedQueue& queue, unsigned domain, double rate);
    // It takes no more; ThreadEvent::Kind::kStopped follows when what is under way has ended.
    void stop(ThreadQueuePair& queue_pair);
    // It is destroyed; if it was in use, this counts as a failure.
    void close(ThreadQueuePair& queue_pair);

  private:
    explicit BulkThread(const Params& params);

    // --- bulk_thread.cc ---
    void run();
    void run_command();
    void sleep();
    static void on_error(void* self, uct::Endpoint* endpoint, ucs_status_t status);

    // --- bulk_thread_posting.cc ---
    bool pull_all();
    bool pull(ThreadQueuePair& queue_pair);
    void withdraw(ThreadQueuePair& queue_pair, SharedTransfer& shared, const Run& rest,
                  bool is_all);
    static void chain_done(uct::Completion* self);
    void handle_failures();
    void give_up(ThreadQueuePair& queue_pair, ucs_status_t status);
    void leave(ThreadQueuePair& queue_pair);
    void stopped(ThreadQueuePair& queue_pair);
    void watch(ucs::Time now);
    std::shared_ptr<ThreadQueuePair> shared(const ThreadQueuePair& queue_pair) const;

    const ucs::Clock& clock_;
    ThreadEvents& events_;
    const Rules rules_;
    ThreadCounters& counters_;
    const std::vector<unsigned> cpus_;

    ucs::Random random_;
    uct::AmTable am_table_;
    ucs::ObjectPool<ThreadChain> chains_{"chains of a thread for bulk transfers"};
    std::unique_ptr<uct::Interface> interface_;
    std::vector<std::shared_ptr<ThreadQueuePair>> queue_pairs_;
    std::vector<ThreadQueuePair*> posting_;  // and stopping
    size_t next_ = 0;                        // of posting_, to be served first
    bool has_failures_ = false;
    bool is_stopping_ = false;
    ucs::Time tick_{};  // when queue pairs are looked at next

    int wake_fd_ = -1;
    std::atomic<bool> is_asleep_{false};
    std::atomic<bool> has_command_{false};
    std::mutex mutex_;
    std::condition_variable done_;
    const std::function<void()>* command_ = nullptr;
    std::thread thread_;
};

// A thread's queue pair as the queue pair driver sees it: a dedicated transport endpoint that can
// be connected and destroyed, each carried out by the thread. Nothing is posted on it by others.
class QueuePairProxy final : public uct::RefusingEndpoint {
  public:
    explicit QueuePairProxy(std::shared_ptr<ThreadQueuePair> queue_pair);
    ~QueuePairProxy() override;

    const std::shared_ptr<ThreadQueuePair>& queue_pair() const { return queue_pair_; }

    ucs_status_t get_address(std::span<std::byte> address) const override;
    ucs_status_t connect(const uct::RemoteAddress& remote) override;
    bool is_connected(const uct::RemoteAddress& remote) const override;

  private:
    const std::shared_ptr<ThreadQueuePair> queue_pair_;
};

}  // namespace ucp::bulk

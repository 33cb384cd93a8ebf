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

#include "ucp/bulk/threads/shared_queue.h"
#include "ucp/bulk/threads/thread_events.h"
#include "ucs/datastruct/memory_pool.h"
#include "ucs/random.h"
#include "uct/api/interface.h"
#include "uct/api/memory_domain.h"

namespace ucp::bulk {

/** What all movers of a worker go by. */
struct MoverRules {
    ScheduleRules schedule;
    unsigned max_retries = 8;
    ucs::Duration stall_timeout = std::chrono::milliseconds(400);
};

/** What the movers of a worker have done. */
struct MoverCounters {
    std::atomic<uint64_t> chains{0}, bytes{0};  //!< posted
};

/**
 * A thread that moves slices of lent transfers over strands of its own interface.
 *
 * The public calls are the worker's, one thread at a time, and hold no shard. They wait for the
 * mover, which never waits for the worker.
 */
class Mover {
  public:
    struct Params {
        const ucs::Clock& clock;
        Returns& returns;
        MoverRules rules;
        MoverCounters& counters;
        std::vector<unsigned> cpus;  //!< to run on; empty: any
        uint64_t seed;
        size_t estimated_endpoints;
        /** Starts a thread; throws std::system_error where there may be no more. */
        std::thread (*spawn)(std::function<void()> run) = [](std::function<void()> run) {
            return std::thread(std::move(run));
        };
    };

    /** Opens the interface and starts the thread. @return UCS_ERR_NO_RESOURCE: no thread */
    static ucs_status_t start(const Params& params, uct::MemoryDomain& domain,
                              const std::string& transport, std::unique_ptr<Mover>* mover);
    /** All strands are closed. */
    ~Mover();
    Mover(const Mover&) = delete;
    Mover& operator=(const Mover&) = delete;

    /** Runs it in the thread, between two calls of the transport, and waits for its end. */
    void call(const std::function<void()>& command);
    /** There may be something to take. */
    void wake();

    ucs_status_t make(std::shared_ptr<MoverStrand>* strand);
    /** From now on the strand, which is connected, carries loads of the crew. */
    void begin(MoverStrand& strand, Crew& crew, unsigned domain, double rate);
    /** It takes no more; Return::kStopped follows when what is under way has ended. */
    void stop(MoverStrand& strand);
    /** Its end is destroyed; if it was in use, this counts as a failure. */
    void close(MoverStrand& strand);

  private:
    explicit Mover(const Params& params);

    // --- mover.cc ---
    void run();
    void run_command();
    void sleep();
    static void on_error(void* self, uct::Endpoint* endpoint, ucs_status_t status);

    // --- mover_work.cc ---
    bool pull_all();
    bool pull(MoverStrand& strand);
    void withdraw(MoverStrand& strand, Load& load, const Run& rest, bool is_all);
    static void chain_done(uct::Completion* self);
    void handle_failures();
    void give_up(MoverStrand& strand, ucs_status_t status);
    void leave(MoverStrand& strand);
    void stopped(MoverStrand& strand);
    void watch(ucs::Time now);
    std::shared_ptr<MoverStrand> shared(const MoverStrand& strand) const;

    const ucs::Clock& clock_;
    Returns& returns_;
    const MoverRules rules_;
    MoverCounters& counters_;
    const std::vector<unsigned> cpus_;

    ucs::Random random_;
    uct::AmTable am_table_;
    ucs::ObjectPool<MoverChain> chains_{"chains of a thread for bulk transfers"};
    std::unique_ptr<uct::Interface> interface_;
    std::vector<std::shared_ptr<MoverStrand>> strands_;
    std::vector<MoverStrand*> posting_;  //!< and stopping
    size_t next_ = 0;                    //!< of posting_, to be served first
    bool has_failures_ = false;
    bool is_stopping_ = false;
    ucs::Time tick_{};  //!< when strands are looked at next

    int wake_fd_ = -1;
    std::atomic<bool> is_asleep_{false};
    std::atomic<bool> has_command_{false};
    std::mutex mutex_;
    std::condition_variable done_;
    const std::function<void()>* command_ = nullptr;
    std::thread thread_;
};

}  // namespace ucp::bulk

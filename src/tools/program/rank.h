// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ucp/api/ucp.h>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <queue>
#include <string>
#include <utility>
#include <vector>

namespace tools {

// What one rank measured over one stretch of a program.
struct Sample {
    uint64_t size = 0;      // bytes of one message
    uint64_t messages = 0;  // that this rank sent
    int64_t elapsed = 0;    // nanoseconds; 0 if the rank only took part
    uint64_t rounds = 0;    // alltoall: complete exchanges
};

// Where a rank runs: a process of its own (bench) or one of many workers in a process on virtual
// time (sim). Everything that a rank program needs besides its worker.
class Host {
  public:
    // Nanoseconds since a start common to all ranks of the job.
    virtual int64_t now() = 0;

    // Barriers are out of band, so that they heat no link. Every rank enters each in turn;
    // `ticket` counts a rank's barriers from 1.
    virtual void barrier_enter(uint64_t ticket) = 0;
    virtual bool barrier_open(uint64_t ticket) = 0;

    // A finished measurement; every rank reports one per size, in the same order.
    virtual void report(const Sample& sample) = 0;

    // The rank does something else for so many nanoseconds: no progress. Rank::compute() calls it.
    virtual void compute(int64_t nanoseconds) = 0;

    // A message of this rank took so many nanoseconds to complete locally.
    virtual void completed(int64_t nanoseconds) = 0;

    // Messages that this rank sent since the last call, for live progress.
    virtual void progressed(uint64_t messages) = 0;

  protected:
    ~Host() = default;
};

// A coroutine of a rank program. Lazy: it starts when it is awaited or when its owner resumes it.
// Awaiting one runs it to its end and passes on what it threw. The object owns the frame.
class [[nodiscard]] Task {
  public:
    struct promise_type {
        struct FinalAwaiter {
            bool await_ready() const noexcept { return false; }
            std::coroutine_handle<> await_suspend(
                std::coroutine_handle<promise_type> self) const noexcept {
                const std::coroutine_handle<> next = self.promise().continuation;
                return next ? next : std::noop_coroutine();
            }
            void await_resume() const noexcept {}
        };

        Task get_return_object() {
            return Task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        FinalAwaiter final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() noexcept { error = std::current_exception(); }

        std::coroutine_handle<> continuation;
        std::exception_ptr error;
    };

    Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Task& operator=(Task&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Task() {
        if (handle_) handle_.destroy();
    }

    std::coroutine_handle<> handle() const { return handle_; }
    bool done() const { return handle_.done(); }
    // What the finished coroutine threw, if anything, is thrown here.
    void check() const {
        if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
    }

    auto operator co_await() const noexcept {
        struct Awaiter {
            std::coroutine_handle<promise_type> callee;
            bool await_ready() const noexcept { return callee.done(); }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) const noexcept {
                callee.promise().continuation = caller;
                return callee;
            }
            void await_resume() const {
                if (callee.promise().error) std::rethrow_exception(callee.promise().error);
            }
        };
        return Awaiter{handle_};
    }

  private:
    explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

    std::coroutine_handle<promise_type> handle_;
};

// Kinds of messages, told apart by the top byte of the tag; the sender's rank lies below.
enum class MessageKind : uint8_t { kHot = 1, kAck, kControl, kTrickle };

constexpr ucp_tag_t make_tag(MessageKind stream, unsigned sender) {
    return static_cast<ucp_tag_t>(stream) << 56 | sender;
}
constexpr unsigned tag_sender(ucp_tag_t tag) {
    return static_cast<uint32_t>(tag);
}
inline constexpr ucp_tag_t kExactTag = ~ucp_tag_t{0};
inline constexpr ucp_tag_t kAnySender = ~ucp_tag_t{0} << 56;

// Told of every application message as it is delivered. One call a message: not for wall time.
class DeliveryObserver {
  public:
    virtual void delivered(unsigned sender, unsigned receiver, size_t length) = 0;

  protected:
    ~DeliveryObserver() = default;
};

// One rank of a job: a worker, endpoints to other ranks, and the coroutines that use them. All
// runs inside step(): coroutines are resumed there, never from within a callback of the library.
// One thread.
class Rank {
  public:
    // `addresses` of all ranks' workers, by rank. The worker is not owned.
    Rank(unsigned index, ucp_worker_h worker, std::vector<std::string> addresses, Host& host)
        : index_(index),
          worker_(worker),
          addresses_(std::move(addresses)),
          endpoints_(addresses_.size()),
          host_(host) {}
    Rank(const Rank&) = delete;

    unsigned index() const { return index_; }
    unsigned count() const { return static_cast<unsigned>(addresses_.size()); }
    Host& host() { return host_; }
    ucp_worker_h worker() const { return worker_; }

    // Make an endpoint to the peer, unless there is one. Throws on failure.
    void connect(unsigned peer);
    // Null if there is none.
    ucp_ep_h endpoint(unsigned peer) const { return endpoints_[peer]; }

    // Start a coroutine beside the others.
    void spawn(Task task);
    // All coroutines have ended.
    bool finished() const { return tasks_.empty(); }

    // Wake what is due, run it, progress the worker once. Throws what a coroutine threw.
    // @return whether anything happened
    bool step();
    // Whether the last step ran a coroutine.
    bool resumed() const { return resumed_; }

    // The earliest time at which a sleeping coroutine wants to run; INT64_MAX if none sleeps.
    int64_t next_timer() const { return timers_.empty() ? INT64_MAX : timers_.top().when; }

    // Awaitable: every rank has come to this barrier.
    auto barrier();
    // Awaitable: the host's clock has reached `when`.
    auto sleep_until(int64_t when);
    // Awaitable: the rank has done something else for so many nanoseconds, without progress.
    auto compute(int64_t nanoseconds);
    // Awaitable: the worker has been progressed once more.
    auto yield();
    // Flush and close the endpoint to the peer, if there is one.
    Task disconnect(unsigned peer);
    // Flush and close all endpoints, when all ranks have come to that; ends when all have done so.
    Task leave();

    void observe_deliveries(DeliveryObserver* observer) { observer_ = observer; }
    // An application message of `sender` has come.
    void delivered(unsigned sender, size_t length) {
        if (observer_ != nullptr) observer_->delivered(sender, index_, length);
    }

    // Resume a coroutine in the next step.
    void make_ready(std::coroutine_handle<> handle) { ready_.push_back(handle); }

  private:
    struct Timer {
        int64_t when;
        uint64_t order;  // of equal times, the first to sleep wakes first
        std::coroutine_handle<> sleeper;
        bool operator>(const Timer& other) const {
            return when != other.when ? when > other.when : order > other.order;
        }
    };

    void wake_due();
    void reap();

    const unsigned index_;
    const ucp_worker_h worker_;
    const std::vector<std::string> addresses_;
    std::vector<ucp_ep_h> endpoints_;
    Host& host_;
    DeliveryObserver* observer_ = nullptr;

    std::list<Task> tasks_;
    std::deque<std::coroutine_handle<>> ready_;
    std::deque<std::coroutine_handle<>> yielded_;  // ready after the next progress
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    uint64_t timers_started_ = 0;
    bool resumed_ = false;
    ucs_status_t peer_failure_ = UCS_OK;
    uint64_t barriers_entered_ = 0;
    std::coroutine_handle<> at_barrier_;
};

// Operations that are awaited together. Must outlive them: a coroutine awaits done() before its
// batch goes, except when the process is about to end on an error.
class Batch {
  public:
    explicit Batch(Rank& rank) : rank_(rank) {}
    Batch(const Batch&) = delete;

    void send(unsigned peer, ucp_tag_t tag, const void* buffer, size_t length);
    void receive(ucp_tag_t tag, ucp_tag_t mask, void* buffer, size_t length);
    void close(ucp_ep_h endpoint);

    // Awaitable: nothing is outstanding. Throws std::runtime_error if an operation failed.
    auto done();
    // Awaitable: at most `limit` operations are outstanding.
    auto at_most(unsigned limit);

    // Give up the receive that was started last, if it is still waiting.
    void cancel() {
        if (last_receive_ != nullptr) ucp_request_cancel(rank_.worker(), last_receive_);
    }
    bool cancelled() const { return cancelled_; }

    unsigned outstanding() const { return outstanding_; }
    // Of the receive that completed last.
    const ucp_tag_recv_info_t& received() const { return received_; }

  private:
    struct Awaiter;

    static void on_sent(void* request, ucs_status_t status, void* user_data);
    static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                            void* user_data);
    static void on_closed(void* request, ucs_status_t status, void* user_data);
    void started(ucs_status_ptr_t request);
    void completed(ucs_status_t status);
    void delivered(const ucp_tag_recv_info_t& info) {
        rank_.delivered(tag_sender(info.sender_tag), info.length);
    }
    void check() const;

    Rank& rank_;
    unsigned outstanding_ = 0;
    unsigned wanted_ = 0;
    bool cancelled_ = false;
    ucs_status_t status_ = UCS_OK;
    void* last_receive_ = nullptr;
    ucp_tag_recv_info_t received_{};
    std::coroutine_handle<> waiter_;
};

struct Batch::Awaiter {
    Batch& batch;
    unsigned limit;

    bool await_ready() const { return batch.outstanding_ <= limit; }
    void await_suspend(std::coroutine_handle<> waiter) const {
        batch.wanted_ = limit;
        batch.waiter_ = waiter;
    }
    void await_resume() const { batch.check(); }
};

inline auto Batch::done() {
    return Awaiter{*this, 0};
}
inline auto Batch::at_most(unsigned limit) {
    return Awaiter{*this, limit};
}

inline auto Rank::barrier() {
    struct Awaiter {
        Rank& rank;
        bool await_ready() const {
            rank.host_.barrier_enter(++rank.barriers_entered_);
            return rank.host_.barrier_open(rank.barriers_entered_);
        }
        void await_suspend(std::coroutine_handle<> waiter) const { rank.at_barrier_ = waiter; }
        void await_resume() const {}
    };
    return Awaiter{*this};
}

inline auto Rank::sleep_until(int64_t when) {
    struct Awaiter {
        Rank& rank;
        int64_t when;
        bool await_ready() const { return rank.host_.now() >= when; }
        void await_suspend(std::coroutine_handle<> sleeper) const {
            rank.timers_.push({when, rank.timers_started_++, sleeper});
        }
        void await_resume() const {}
    };
    return Awaiter{*this, when};
}

inline auto Rank::compute(int64_t nanoseconds) {
    host_.compute(nanoseconds);
    return sleep_until(host_.now() + nanoseconds);
}

inline auto Rank::yield() {
    struct Awaiter {
        Rank& rank;
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> waiter) const {
            rank.yielded_.push_back(waiter);
        }
        void await_resume() const {}
    };
    return Awaiter{*this};
}

}  // namespace tools

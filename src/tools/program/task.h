// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace tools {

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

}  // namespace tools

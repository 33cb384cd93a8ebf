// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/on_stream/progress_thread.h"

#include <sched.h>

#include <chrono>
#include <system_error>

namespace ucp {

namespace {

constexpr unsigned kIdleRounds = 20000;  // rounds in which nothing happens, a few milliseconds
constexpr std::chrono::microseconds kPause{20};

}  // namespace

ucs_status_t ProgressThread::create(std::function<unsigned()> progress,
                                    std::unique_ptr<ProgressThread>* thread) {
    std::unique_ptr<ProgressThread> made(new ProgressThread(std::move(progress)));
    try {
        made->thread_ = std::thread(&ProgressThread::run, made.get());
    } catch (const std::system_error&) {
        return UCS_ERR_NO_RESOURCE;
    }
    *thread = std::move(made);
    return UCS_OK;
}

ProgressThread::~ProgressThread() {
    is_stopping_ = true;
    if (thread_.joinable()) thread_.join();
}

void ProgressThread::run() {
    unsigned idle = 0;
    while (!is_stopping_.load(std::memory_order_relaxed)) {
        if (progress_() != 0) {
            idle = 0;
        } else if (++idle > kIdleRounds) {
            std::this_thread::sleep_for(kPause);
        } else {
            // Between two rounds others get at the worker's lock.
            sched_yield();
        }
    }
}

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "ucs/type/status.h"

namespace ucp {

// A thread that makes progress for a program that does not. It looks without a pause while
// something happens, and every 20 us when nothing has for a while.
class ProgressThread {
  public:
    // @param progress  returns how much has happened; takes the worker's lock by itself
    //  @return UCS_ERR_NO_RESOURCE: the system gives no thread
    static ucs_status_t create(std::function<unsigned()> progress,
                               std::unique_ptr<ProgressThread>* thread);
    // Waits for it.
    ~ProgressThread();
    ProgressThread(ProgressThread&&) = delete;

    bool is_current() const { return thread_.get_id() == std::this_thread::get_id(); }

  private:
    explicit ProgressThread(std::function<unsigned()> progress) : progress_(std::move(progress)) {}
    void run();

    const std::function<unsigned()> progress_;
    std::atomic<bool> is_stopping_{false};
    std::thread thread_;
};

}  // namespace ucp

// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <thread>

#include "ucp/api/ucp.h"

namespace cuda_test {

// Progress of a worker by a process that waits. After some looks in vain it leaves the processor
// for a moment: the other process and the stand-in's copies may need it, and so may the tests and
// compilers beside.
class Waiting {
  public:
    explicit Waiting(ucp_worker_h worker) : worker_(worker) {}
    void progress() {
        if (ucp_worker_progress(worker_) != 0) {
            vain_ = 0;
        } else if (++vain_ > kMostInVain) {
            std::this_thread::sleep_for(kMoment);
        }
    }

  private:
    static constexpr unsigned kMostInVain = 100;
    static constexpr std::chrono::microseconds kMoment{20};

    const ucp_worker_h worker_;
    unsigned vain_ = 0;
};

}  // namespace cuda_test

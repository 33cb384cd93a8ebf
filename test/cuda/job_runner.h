// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>

#include "cuda/device.h"
#include "cuda/device_job.h"

namespace cuda_test {

// Kernels that communicate, in the context that is current. What fails is thrown.
class JobRunner {
  public:
    JobRunner();
    ~JobRunner();
    JobRunner(const JobRunner&) = delete;
    JobRunner& operator=(const JobRunner&) = delete;

    // Begin a job; one at a time.
    void begin(ucs_device_level_t level, DeviceJob job);
    bool is_done() const;
    // Of the job that is done.
    JobResult result() const;

  private:
    static constexpr size_t kLevels = UCS_DEVICE_LEVEL_GRID + 1;

    uct::cuda::abi::Stream stream_ = nullptr;
    uct::cuda::abi::Module module_ = nullptr;
    std::array<uct::cuda::abi::Function, kLevels> functions_{};
    uct::cuda::abi::DevicePointer result_ = 0;
};

}  // namespace cuda_test

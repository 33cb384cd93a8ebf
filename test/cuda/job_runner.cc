// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/job_runner.h"

#include "cuda/kernels.h"

namespace cuda_test {

namespace abi = uct::cuda::abi;

namespace {

// Threads of a block, by level: warps need not be whole.
constexpr unsigned kThreads[] = {1, 32, 100, 64};
constexpr unsigned kBlocksOfGrid = 4, kBlocksOfNoise = 64;

}  // namespace

JobRunner::JobRunner() {
    check(driver().stream_create(&stream_, abi::kStreamNonBlocking), "cuStreamCreate");
    check(driver().module_load(&module_, test_kernel_image), "cuModuleLoadData");
    for (size_t level = 0; level < kLevels; ++level) {
        check(driver().load_function(&functions_[level], module_, kJobKernels[level], true),
              kJobKernels[level]);
    }
    check(driver().memory_allocate(&result_, sizeof(JobResult)), "cuMemAlloc");
}

JobRunner::~JobRunner() {
    (void)driver().stream_synchronize(stream_);
    (void)driver().memory_free(result_);
    (void)driver().module_unload(module_);
    (void)driver().stream_destroy(stream_);
}

void JobRunner::begin(ucs_device_level_t level, DeviceJob job) {
    const JobResult none;
    check(driver().copy(result_, reinterpret_cast<uintptr_t>(&none), sizeof(none)), "cuMemcpy");
    check(driver().stream_synchronize(nullptr), "cuStreamSynchronize");
    job.result = reinterpret_cast<JobResult*>(result_);
    void* arguments[] = {&job};
    if (level != UCS_DEVICE_LEVEL_GRID) {
        const unsigned blocks = job.noise == 0 ? 1 : 1 + kBlocksOfNoise;
        check(driver().launch(functions_[level], blocks, 1, 1, kThreads[level], 1, 1, 0, stream_,
                              arguments, nullptr),
              "cuLaunchKernel");
        return;
    }
    using Launch = abi::Result (*)(abi::Function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, abi::Stream, void**);
    static const auto launch =
        reinterpret_cast<Launch>(driver_function("cuLaunchCooperativeKernel", 9000));
    check(launch(functions_[level], kBlocksOfGrid, 1, 1, kThreads[level], 1, 1, 0, stream_,
                 arguments),
          "cuLaunchCooperativeKernel");
}

bool JobRunner::is_done() const {
    const abi::Result result = driver().stream_query(stream_);
    if (result != abi::kNotReady) check(result, "a kernel");
    return result == abi::kSuccess;
}

JobResult JobRunner::result() const {
    JobResult result;
    check(driver().copy(reinterpret_cast<uintptr_t>(&result), result_, sizeof(result)), "cuMemcpy");
    return result;
}

}  // namespace cuda_test

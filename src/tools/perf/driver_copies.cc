// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/run.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <optional>

#include "tools/common/device_memory.h"
#include "tools/common/interrupt.h"
#include "tools/perf/pair_end.h"

namespace tools::perf {
namespace {

namespace abi = uct::cuda::abi;
using Clock = std::chrono::steady_clock;

int64_t nanoseconds_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

// Memory of one side.
class Side {
  public:
    Side(const std::string& text, bool is_first, size_t length)
        : place_(MemoryPlace::parse(text)), length_(length) {
        if (place_.is_device || place_.is_pinned) device_.emplace(place_, is_first);
        if (place_.is_device) {
            address_ = reinterpret_cast<uintptr_t>(device_->allocate(length));
            return;
        }
        void* const memory = std::aligned_alloc(kPage, (length + kPage - 1) / kPage * kPage);
        if (memory == nullptr) throw std::bad_alloc();
        std::fill_n(static_cast<char*>(memory), length, 0);
        address_ = reinterpret_cast<uintptr_t>(memory);
        if (place_.is_pinned) device_->pin(memory, length);
    }
    ~Side() {
        void* const memory = reinterpret_cast<void*>(address_);
        if (place_.is_device) {
            device_->free(memory, length_);
            return;
        }
        if (place_.is_pinned) device_->unpin(memory);
        std::free(memory);
    }
    Side(Side&&) = delete;

    bool is_device() const { return place_.is_device; }
    const std::optional<CudaDevice>& device() const { return device_; }
    uint64_t address() const { return address_; }

  private:
    static constexpr size_t kPage = 4096;
    MemoryPlace place_;
    size_t length_;
    std::optional<CudaDevice> device_;
    uint64_t address_ = 0;
};

class Copies {
  public:
    explicit Copies(const Options& options)
        : options_(options),
          from_(options.memory, true, options.buffer_length()),
          to_(options.target_memory, false, options.buffer_length()) {
        // Copies run in the context of a device's memory, the first one's if there are two.
        const Side& runs = from_.is_device() || !to_.is_device() ? from_ : to_;
        if (!runs.device()) throw std::runtime_error("neither memory is a device's or pinned");
        if (from_.is_device() && to_.is_device())
            CudaDevice::connect(*from_.device(), *to_.device());
        runs.device()->make_current();
        check_cuda(cuda_driver().stream_create(&stream_, abi::kStreamNonBlocking),
                   "cuStreamCreate");
    }
    ~Copies() { (void)cuda_driver().stream_destroy(stream_); }
    Copies(Copies&&) = delete;

    Sample measure(uint64_t size, uint64_t window) {
        for (unsigned i = 0; i < options_.warmup; ++i) copy_window(size, window);
        Sample sample;
        const auto began = Clock::now();
        while (options_.iterations != 0 ? sample.operations < options_.iterations
                                        : nanoseconds_since(began) < options_.time) {
            const auto start = Clock::now();
            copy_window(size, window);
            if (window == 1) sample.latencies.push_back(nanoseconds_since(start));
            sample.operations += window;
        }
        sample.messages = sample.operations;
        sample.elapsed = nanoseconds_since(began);
        return sample;
    }

  private:
    void copy_window(uint64_t size, uint64_t window) {
        const uct::cuda::Driver& cuda = cuda_driver();
        for (uint64_t i = 0; i < window && size != 0; ++i) {
            const uint64_t offset = i % options_.slots(size) * size;
            check_cuda(
                cuda.copy_async(to_.address() + offset, from_.address() + offset, size, stream_),
                "cuMemcpyAsync");
        }
        check_cuda(cuda.stream_synchronize(stream_), "cuStreamSynchronize");
    }

    const Options& options_;
    Side from_;
    Side to_;
    abi::Stream stream_ = nullptr;
};

}  // namespace

std::vector<Row> measure_driver_copies(const Options& options,
                                       const std::function<void(const Row&)>& on_row) {
    Copies copies(options);
    std::vector<Row> rows;
    for (const uint64_t size : options.sizes()) {
        if (Interrupt::is_requested()) break;
        Row row{.size = size};
        if (options.latency) {
            const Sample sample = copies.measure(size, 1);
            add_latency(row, {&sample, 1});
        }
        if (options.bandwidth) {
            const uint64_t used = process_usage();
            const auto began = Clock::now();
            const Sample sample = copies.measure(size, options.window);
            row.cpu_initiator = static_cast<double>(process_usage() - used) /
                                static_cast<double>(nanoseconds_since(began));
            add_bandwidth(row, {&sample, 1});
        }
        on_row(row);
        rows.push_back(row);
    }
    return rows;
}

}  // namespace tools::perf

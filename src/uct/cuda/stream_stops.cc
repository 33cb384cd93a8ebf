// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/stream_stops.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>

#include "ucs/log/log.h"
#include "ucs/runtime/runtime.h"
#include "uct/cuda/config.h"

namespace uct::cuda {

namespace {

static_assert(kStopReached == ucs::StreamStop::kReached &&
              kStopPassed == ucs::StreamStop::kPassed && kStopGo == ucs::StreamStop::kGo &&
              kStopIdle == ucs::StreamStop::kIdle);

// As many connections to the device as it has at most; the driver takes 8 and 4 by itself.
constexpr const char* kConnections[] = {"CUDA_DEVICE_MAX_CONNECTIONS",
                                        "CUDA_DEVICE_MAX_COPY_CONNECTIONS"};
constexpr int kEnoughConnections = 16;

// Streams share the connections. One that waits holds those that the work behind it takes, so that
// with too few of them the copy that it waits for never gets one.
void warn_of_few_connections() {
    static const bool is_said = [] {
        const bool is_enough = std::ranges::all_of(kConnections, [](const char* name) {
            const std::optional<std::string> value = ucs::runtime().environment->get(name);
            return value && std::atoi(value->c_str()) >= kEnoughConnections;
        });
        if (!is_enough) {
            ucs::log_warn(
                "few connections to CUDA devices: a stream that waits may stand in the way of the "
                "copies that it waits for. Start the program with {}=32 {}=32",
                kConnections[0], kConnections[1]);
        }
        return true;
    }();
    (void)is_said;
}

// While it lives, calls of this thread are refused for no capture's sake.
class RelaxedCapture {
  public:
    explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
        (void)driver_.exchange_capture_mode(&mode_);
    }
    ~RelaxedCapture() { (void)driver_.exchange_capture_mode(&mode_); }
    RelaxedCapture(RelaxedCapture&&) = delete;

  private:
    const Driver& driver_;
    unsigned mode_ = abi::kCaptureRelaxed;
};

}  // namespace

std::unique_ptr<StopWords> StopWords::create(const Driver& driver, abi::Context context,
                                             abi::Device device) {
    std::unique_ptr<StopWords> made(new StopWords(driver, context));
    const RelaxedCapture relaxed(driver);
    const CurrentContext current(driver, context);
    if (current.result() != abi::kSuccess || !made->make(device)) {
        ucs::log_info("CUDA device {} cannot wait within its streams", device);
        return nullptr;
    }
    (void)driver.context_get_id(context, &made->id_);
    return made;
}

StopWords::~StopWords() {
    if (words_ != nullptr) (void)munmap(words_, bytes_);
}

bool StopWords::make(abi::Device device) {
    count_ = Config::get().stream_ops;
    bytes_ = 2 * count_ * sizeof(uint32_t);
    void* const memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    words_ = static_cast<uint32_t*>(memory);
    if (!driver_.pin(memory, bytes_, &device_words_)) return false;
    free_.reserve(count_);
    retired_.reserve(count_);
    for (uint32_t index = count_; index > 0; --index) free_.push_back(index - 1);
    if (Config::get().stream_writes && can_wait()) return true;
    ucs::log_info("operations on streams of CUDA device {}: kernels wait", device);
    int one_address = 0;
    (void)driver_.device_get_attribute(&one_address, abi::kHostAddressesOnDevice, device);
    return one_address != 0 && load_kernel();
}

// Tries it, which also takes what is slow at first.
bool StopWords::can_wait() const {
    const ucs::StreamStop stop{words_, words_ + count_};
    stop.set(ucs::StreamStop::kGo);
    abi::Stream stream = nullptr;
    if (driver_.stream_create(&stream, abi::kStreamNonBlocking) != abi::kSuccess) return false;
    const bool is_enqueued = enqueue(stream, stop) == abi::kSuccess &&
                             driver_.stream_synchronize(stream) == abi::kSuccess;
    (void)driver_.stream_destroy(stream);
    return is_enqueued && stop.look() == ucs::StreamStop::kPassed;
}

bool StopWords::load_kernel() {
    abi::Result result = driver_.module_load(&module_, kernel_image);
    if (result == abi::kSuccess)
        result = driver_.load_function(&kernel_, module_, kStopKernel, true);
    if (result != abi::kSuccess) kernel_ = nullptr;
    return kernel_ != nullptr;
}

bool StopWords::take(ucs::StreamStop* stop) {
    if (free_.empty()) {
        std::erase_if(retired_, [&](uint32_t index) {
            const ucs::StreamStop passed{words_ + index, words_ + count_ + index};
            if (passed.look() != ucs::StreamStop::kPassed) return false;
            free_.push_back(index);
            return true;
        });
        if (free_.empty()) return false;
    }
    stop->reached = words_ + free_.back();
    stop->go = stop->reached + count_;
    stop->place = this;
    free_.pop_back();
    std::atomic_ref(*stop->reached).store(0, std::memory_order_relaxed);
    stop->set(stop->is_captured ? ucs::StreamStop::kIdle : 0);
    return true;
}

bool StopWords::any() const {
    return free_.size() + retired_.size() + lost_ < count_ ||
           std::ranges::any_of(retired_, [&](uint32_t index) {
               const ucs::StreamStop stop{words_ + index, words_ + count_ + index};
               return stop.look() != ucs::StreamStop::kPassed;
           });
}

abi::Result StopWords::enqueue(abi::Stream stream, const ucs::StreamStop& stop) const {
    abi::DevicePointer reached = on_device(stop.reached), go = on_device(stop.go);
    if (kernel_ != nullptr) {
        unsigned is_captured = stop.is_captured ? 1 : 0;
        void* arguments[] = {&reached, &go, &is_captured};
        return driver_.launch(kernel_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
    }
    abi::StreamBatchEntry entries[] = {
        {abi::kStreamWait32, go, ucs::StreamStop::kIdle, abi::kStreamWaitAnd, 0, 0},
        {abi::kStreamWrite32, reached, ucs::StreamStop::kReached, 0, 0, 0},
        {abi::kStreamWait32, go, ucs::StreamStop::kGo, abi::kStreamWaitAnd, 0, 0},
        {abi::kStreamWrite32, reached, ucs::StreamStop::kPassed, 0, 0, 0},
    };
    const std::span<abi::StreamBatchEntry> used =
        std::span(entries).subspan(stop.is_captured ? 0 : 1);
    return driver_.stream_batch(stream, static_cast<unsigned>(used.size()), used.data(), 0);
}

// --- the contexts of the process ---

StopWords* StreamStops::find(abi::Context context, abi::Device device) {
    const auto known = std::ranges::find_if(
        words_, [&](const std::unique_ptr<StopWords>& one) { return one->context() == context; });
    if (known != words_.end()) {
        if ((*known)->is_alive()) return known->get();
        lost_.push_back(std::move(*known));
        words_.erase(known);
    }
    std::unique_ptr<StopWords> made = StopWords::create(engine_.driver(), context, device);
    return made == nullptr ? nullptr : words_.emplace_back(std::move(made)).get();
}

void StreamStops::prepare() {
    engine_.for_each_context([&](abi::Context context, abi::Device device) {
        std::lock_guard lock(mutex_);
        (void)find(context, device);
    });
}

ucs_status_t StreamStops::insert(void* stream, bool may_be_captured, ucs::StreamStop* stop) {
    const Driver& driver = engine_.driver();
    auto* const handle = static_cast<abi::Stream>(stream);
    abi::Context context = nullptr;
    unsigned capture = abi::kCaptureNone;
    abi::Result result = driver.stream_get_context(handle, &context);
    if (result == abi::kSuccess) result = driver.stream_is_capturing(handle, &capture);
    if (result != abi::kSuccess || context == nullptr) {
        ucs::log_error("{} is no CUDA stream to wait on: {}", stream, driver.name_of(result));
        return UCS_ERR_INVALID_PARAM;
    }
    stop->is_captured = capture != abi::kCaptureNone;
    if (stop->is_captured && (capture != abi::kCaptureActive || !may_be_captured)) {
        ucs::log_error(
            "CUDA stream {}: {}", stream,
            may_be_captured ? "its capture is broken" : "such an operation cannot be captured");
        return UCS_ERR_INVALID_PARAM;
    }
    const CurrentContext current(driver, context);
    abi::Device device = 0;
    result = current.result();
    if (result == abi::kSuccess) result = driver.context_get_device(&device);
    StopWords* words = nullptr;
    {
        std::lock_guard lock(mutex_);
        if (result == abi::kSuccess) words = find(context, device);
        if (words == nullptr) return UCS_ERR_UNSUPPORTED;
        if (!words->take(stop)) return UCS_ERR_NO_RESOURCE;
    }
    warn_of_few_connections();
    result = words->enqueue(handle, *stop);
    if (result == abi::kSuccess) return UCS_OK;
    ucs::log_error("CUDA stream {} takes no wait: {}", stream, driver.name_of(result));
    std::lock_guard lock(mutex_);
    words->give_back(*stop);
    return result == abi::kOutOfMemory ? UCS_ERR_NO_MEMORY : UCS_ERR_INVALID_PARAM;
}

void StreamStops::remove(const ucs::StreamStop& stop, bool is_lost) {
    auto* const words = static_cast<StopWords*>(stop.place);
    std::lock_guard lock(mutex_);
    if (is_lost) {
        words->lose();
    } else if (stop.is_captured) {
        // Nothing comes to it any more.
        words->give_back(stop);
    } else {
        words->retire(stop);
    }
}

}  // namespace uct::cuda

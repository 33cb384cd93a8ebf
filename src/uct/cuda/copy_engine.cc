// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/copy_engine.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "ucs/log/log.h"
#include "uct/cuda/config.h"

namespace uct::cuda {

namespace {

constexpr size_t kFlagsBytes = 4096;
constexpr size_t kFlagDistance = 128;  // a line that is polled is nobody else's
constexpr unsigned kListBlocks = 264, kListThreads = 256;

abi::DevicePointer device_pointer(const void* address) {
    return reinterpret_cast<uintptr_t>(address);
}

}  // namespace

std::unique_ptr<CopyContext> CopyContext::create(const Driver& driver, abi::Context context,
                                                 abi::Device device) {
    std::unique_ptr<CopyContext> made(new CopyContext(driver, context, device));
    CurrentContext current(driver, context);
    if (current.result() != abi::kSuccess || !made->make_lanes()) {
        ucs::log_error("no copies in a context of CUDA device {}: it gives no streams", device);
        return nullptr;
    }
    (void)driver.context_get_id(context, &made->id_);
    ucs::log_debug("copies on CUDA device {}: ready in context {}", device, made->id_);
    return made;
}

CopyContext::~CopyContext() {
    if (flags_ != nullptr) (void)munmap(flags_, kFlagsBytes);
}

bool CopyContext::make_lanes() {
    void* const flags =
        mmap(nullptr, kFlagsBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (flags == MAP_FAILED) return false;
    flags_ = flags;
    abi::DevicePointer on_device = 0;
    writes_values_ = Config::get().stream_writes && driver_.pin(flags, kFlagsBytes, &on_device);
    for (size_t i = 0; i < kDirections; ++i) {
        Lane& lane = lanes_[i];
        if (driver_.stream_create(&lane.stream, abi::kStreamNonBlocking) != abi::kSuccess)
            return false;
        lane.flag = reinterpret_cast<uint32_t*>(static_cast<std::byte*>(flags) + i * kFlagDistance);
        lane.device_flag = on_device + i * kFlagDistance;
        // A first write shows whether the device can, and bears the cost of the first call.
        if (writes_values_ &&
            driver_.stream_write_value(lane.stream, lane.device_flag, 0, 0) != abi::kSuccess)
            writes_values_ = false;
    }
    return writes_values_ ||
           std::ranges::all_of(lanes_, [&](Lane& lane) { return make_events(lane); });
}

bool CopyContext::make_events(Lane& lane) {
    lane.events.resize(kEvents);
    return std::ranges::all_of(lane.events, [&](abi::Event& event) {
        return driver_.event_create(&event, abi::kEventDisableTiming) == abi::kSuccess;
    });
}

bool CopyContext::is_alive() {
    if (!works()) return false;
    if (driver_.is_alive(handle_, id_)) return true;
    int none = UCS_OK;  // the program destroyed it: not to be asked again
    error_.compare_exchange_strong(none, UCS_ERR_CANCELED);
    return false;
}

ucs_status_t CopyContext::failed(abi::Result result, const char* what) {
    const ucs_status_t status = to_status(result);
    int none = UCS_OK;
    if (error_.compare_exchange_strong(none, status))
        ucs::log_error("{} on CUDA device {} failed: {}", what, device_, driver_.name_of(result));
    return status;
}

abi::Result CopyContext::mark(Lane& lane) {
    const uint32_t number = lane.begun + 1;
    const abi::Result result =
        writes_values_ ? driver_.stream_write_value(lane.stream, lane.device_flag, number, 0)
                       : driver_.event_record(lane.events[number % kEvents], lane.stream);
    if (result == abi::kSuccess) lane.begun = number;
    return result;
}

ucs_status_t CopyContext::begin(Direction direction, void* to, const void* from, size_t length,
                                Ticket* ticket) {
    if (const int error = error_.load(std::memory_order_relaxed); error != UCS_OK)
        return static_cast<ucs_status_t>(error);
    CurrentContext current(driver_, handle_);
    if (current.result() != abi::kSuccess) return failed(current.result(), "entering the context");
    Lane& lane = lane_of(direction);
    std::lock_guard lock(lane.mutex);
    abi::Result result =
        driver_.copy_async(device_pointer(to), device_pointer(from), length, lane.stream);
    // What is refused at the call concerns this copy alone: lengths past an allocation, say.
    if (result == abi::kInvalidValue) return UCS_ERR_INVALID_ADDR;
    if (result == abi::kSuccess) result = mark(lane);
    if (result != abi::kSuccess) return failed(result, "a copy");
    *ticket = {this, direction, lane.begun};
    return UCS_OK;
}

// The registration of staging memory ends with the context that was current when it was made.
// Copies work without it, but a kernel would fault.
bool CopyContext::is_mapped(const void* host) const {
    unsigned type = 0;
    return driver_.ask(abi::kPointerMemoryType, device_pointer(host), &type) &&
           type == abi::kMemoryTypeHost;
}

ucs_status_t CopyContext::begin_list(Direction direction, std::span<const KernelPiece> pieces,
                                     Ticket* ticket) {
    const abi::Function function = copy_pieces_.load(std::memory_order_acquire);
    if (function == nullptr) return UCS_ERR_UNSUPPORTED;
    if (const int error = error_.load(std::memory_order_relaxed); error != UCS_OK)
        return static_cast<ucs_status_t>(error);
    CurrentContext current(driver_, handle_);
    if (current.result() != abi::kSuccess) return failed(current.result(), "entering the context");
    if (!is_mapped(pieces.data())) return UCS_ERR_UNSUPPORTED;
    abi::DevicePointer list = device_pointer(pieces.data());
    auto count = static_cast<unsigned>(pieces.size());
    Lane& lane = lane_of(direction);
    std::lock_guard lock(lane.mutex);
    ListEnd end{.flag = writes_values_ ? lane.device_flag : 0,
                .number = lane.begun + 1,
                .lane = static_cast<uint32_t>(direction)};
    void* arguments[] = {&list, &count, &end};
    abi::Result result = driver_.launch(function, std::min(count, kListBlocks), 1, 1, kListThreads,
                                        1, 1, 0, lane.stream, arguments, nullptr);
    if (result == abi::kSuccess && !writes_values_) result = mark(lane);
    if (result != abi::kSuccess) return failed(result, "a kernel");
    lane.begun = end.number;
    *ticket = {this, direction, lane.begun};
    return UCS_OK;
}

ucs_status_t CopyContext::ask_stream(Lane& lane) {
    const abi::Result result = driver_.stream_query(lane.stream);
    if (result == abi::kSuccess) return UCS_OK;
    return result == abi::kNotReady ? UCS_INPROGRESS : failed(result, "a copy");
}

ucs_status_t CopyContext::test(const Ticket& ticket) {
    Lane& lane = lane_of(ticket.direction);
    if (writes_values_) {
        const uint32_t ended = std::atomic_ref(*lane.flag).load(std::memory_order_acquire);
        if (static_cast<int32_t>(ticket.number - ended) <= 0) return UCS_OK;
    } else {
        // A later copy may have taken the place of the event: if that has ended so has this one.
        const abi::Result result = driver_.event_query(lane.events[ticket.number % kEvents]);
        if (result == abi::kSuccess) return UCS_OK;
        if (result != abi::kNotReady) return failed(result, "a copy");
    }
    const int error = error_.load(std::memory_order_relaxed);
    return error != UCS_OK ? static_cast<ucs_status_t>(error) : UCS_INPROGRESS;
}

ucs_status_t CopyContext::wait(const Ticket& ticket) {
    for (uint32_t polls = 1;; ++polls) {
        ucs_status_t status = test(ticket);
        if (status != UCS_INPROGRESS) return status;
        // A device that has failed writes no flag any more.
        if (polls % kPollsPerQuery == 0) {
            status = ask_stream(lane_of(ticket.direction));
            if (status != UCS_INPROGRESS) return status;
            sched_yield();
        }
    }
}

ucs_status_t CopyContext::allocate(size_t length, abi::DevicePointer* memory) {
    if (const int error = error_.load(std::memory_order_relaxed); error != UCS_OK)
        return static_cast<ucs_status_t>(error);
    CurrentContext current(driver_, handle_);
    if (current.result() != abi::kSuccess) return failed(current.result(), "entering the context");
    Lane& lane = lane_of(kOfAllocations);
    std::lock_guard lock(lane.mutex);
    return to_status(driver_.memory_allocate_async(memory, length, lane.stream));
}

void CopyContext::free(abi::DevicePointer memory) {
    if (!is_alive()) return;  // it went with its context
    CurrentContext current(driver_, handle_);
    if (current.result() != abi::kSuccess) return;
    Lane& lane = lane_of(kOfAllocations);
    std::lock_guard lock(lane.mutex);
    (void)driver_.memory_free_async(memory, lane.stream);
}

bool CopyContext::takes_lists() {
    if (!Config::get().preload) load_kernels();
    return copy_pieces_.load(std::memory_order_acquire) != nullptr;
}

void CopyContext::load_kernels() {
    std::lock_guard lock(kernels_mutex_);
    if (module_ != nullptr) return;
    int one_address = 0;
    (void)driver_.device_get_attribute(&one_address, abi::kHostAddressesOnDevice, device_);
    if (one_address == 0) return;
    CurrentContext current(driver_, handle_);
    abi::Function function = nullptr;
    abi::Result result = driver_.module_load(&module_, kernel_image);
    if (result == abi::kSuccess) {
        result =
            driver_.load_function(&function, module_, kCopyPiecesKernel, Config::get().preload);
    }
    if (result != abi::kSuccess) {
        ucs::log_info("no kernels on CUDA device {} ({}): many small pieces go one by one", device_,
                      driver_.name_of(result));
        return;
    }
    copy_pieces_.store(function, std::memory_order_release);
    if (!Config::get().resident) return;
    owned_resident_ = Resident::create(driver_, handle_, module_);
    resident_.store(owned_resident_.get(), std::memory_order_release);
}

// --- the contexts of the process ---

CopyEngine* CopyEngine::get() {
    static CopyEngine* const engine = [] {
        const Driver* const driver = Driver::get();
        if (driver != nullptr) return new CopyEngine(*driver);
        ucs::log(Driver::is_installed() ? ucs::LogLevel::kInfo : ucs::LogLevel::kDebug,
                 "device memory is not supported: {}", Driver::problem());
        return static_cast<CopyEngine*>(nullptr);
    }();
    return engine;
}

// With the mutex.
CopyContext* CopyEngine::find(abi::Context context, abi::Device device) {
    for (std::unique_ptr<CopyContext>& known : contexts_) {
        if (known->handle() != context) continue;
        if (known->is_alive()) return known.get();
        lost_.push_back(std::move(known));
        std::erase(contexts_, nullptr);
        break;
    }
    std::unique_ptr<CopyContext> made = CopyContext::create(driver_, context, device);
    if (made == nullptr) return nullptr;
    return contexts_.emplace_back(std::move(made)).get();
}

// With the mutex; for memory that belongs to a device and no context.
CopyContext* CopyEngine::find_for_device(abi::Device device) {
    abi::Context current = nullptr;
    abi::Device current_device = -1;
    if (driver_.get_current(&current, &current_device) && current_device == device)
        return find(current, device);
    for (const std::unique_ptr<CopyContext>& known : contexts_) {
        if (known->device() == device && known->is_alive()) return known.get();
    }
    if (!driver_.retain_in_use(&current, device)) return nullptr;
    CopyContext* const found = find(current, device);
    (void)driver_.primary_context_release(device);
    return found;
}

namespace {

// Allocations that this thread has looked up last. An entry still holds if an operation holds the
// allocation, or if the driver gives the same number for the address: numbers are never used again.
class LookedUp {
  public:
    const CopyEngine::Found* find(const Driver& driver, const ucs::HeldAllocations& held,
                                  abi::DevicePointer address) {
        for (CopyEngine::Found& entry : entries_) {
            if (address - entry.base >= entry.length) continue;
            if ((entry.may_be_held() && held.is_held(entry.number)) ||
                driver.allocation_at(address) == entry.number)
                return &entry;
            entry = {};
        }
        return nullptr;
    }
    // The entry, if an operation holds the allocation: the driver is not asked.
    const CopyEngine::Found* find_held(const ucs::HeldAllocations& held,
                                       abi::DevicePointer address) {
        const auto known = std::ranges::find_if(entries_, [&](const CopyEngine::Found& entry) {
            return address - entry.base < entry.length && entry.may_be_held() &&
                   held.is_held(entry.number);
        });
        return known == std::end(entries_) ? nullptr : known;
    }
    void keep(const CopyEngine::Found& found) {
        entries_[next_] = found;
        next_ = (next_ + 1) % std::size(entries_);
    }

  private:
    CopyEngine::Found entries_[4];
    unsigned next_ = 0;
};

thread_local LookedUp looked_up;

}  // namespace

uint64_t CopyEngine::number_at(const void* address) const {
    const Found* const known = looked_up.find_held(held_, device_pointer(address));
    return known != nullptr ? known->number : driver_.allocation_at(device_pointer(address));
}

// Of memory that belongs to no context: pools, whose ranges are allocations, and virtual memory,
// whose ranges may hold many.
void CopyEngine::narrow(abi::DevicePointer address, Found& found) {
    const uint64_t number = std::exchange(found.number, 0);
    CopyContext* const context = context_of(found);
    if (context == nullptr) return;
    // Of pools the driver says nothing without a context.
    const CurrentContext current(driver_, context->handle());
    abi::Pool pool = nullptr;
    if (current.result() != abi::kSuccess || !driver_.ask(abi::kPointerPool, address, &pool))
        return;
    if (pool == nullptr) {
        abi::DevicePointer base = 0;
        size_t length = 0;
        if (!driver_.ask(abi::kPointerMappingStart, address, &base) ||
            !driver_.ask(abi::kPointerMappingSize, address, &length) || base == 0)
            return;
        found.reserved -= base - found.base;
        found.base = base;
        found.length = length;
        found.is_virtual = true;
    }
    found.number = number;
}

CopyEngine::Found CopyEngine::look_up(const void* address) {
    if (const Found* const known = looked_up.find(driver_, held_, device_pointer(address)))
        return *known;
    Found found;
    unsigned type = 0;
    unsigned is_managed = 0;
    unsigned long long number = 0;
    abi::PointerAttribute attributes[] = {abi::kPointerMemoryType, abi::kPointerIsManaged,
                                          abi::kPointerContext,    abi::kPointerDeviceOrdinal,
                                          abi::kPointerRangeStart, abi::kPointerRangeSize,
                                          abi::kPointerBufferId};
    void* values[] = {&type,       &is_managed,   &found.context, &found.device,
                      &found.base, &found.length, &number};
    const abi::Result result = driver_.pointer_get_attributes(std::size(attributes), attributes,
                                                              values, device_pointer(address));
    if (result != abi::kSuccess || (type != abi::kMemoryTypeDevice && is_managed == 0)) return {};
    found.type = is_managed != 0 ? UCS_MEMORY_TYPE_CUDA_MANAGED : UCS_MEMORY_TYPE_CUDA;
    found.reserved = found.length;
    found.number = number;
    if (found.context == nullptr) narrow(device_pointer(address), found);
    if (found.number != 0) looked_up.keep(found);
    return found;
}

CopyContext* CopyEngine::context_of(const Found& found) {
    // The context that this thread asked for last, as long as it works.
    thread_local struct {
        uint64_t allocation = 0;
        CopyContext* context = nullptr;
    } last;
    if (found.device < 0) return nullptr;
    if (found.number != 0 && found.number == last.allocation) {
        // What belongs to the device outlives the context that it was copied in.
        if (found.context != nullptr ? last.context->works() : last.context->is_alive())
            return last.context;
    }
    std::lock_guard lock(mutex_);
    CopyContext* const context = found.context != nullptr ? find(found.context, found.device)
                                                          : find_for_device(found.device);
    if (context != nullptr && found.number != 0) last = {found.number, context};
    return context;
}

CopyContext* CopyEngine::context_near(const char (&device)[16]) {
    std::lock_guard lock(mutex_);
    CopyContext* any = nullptr;
    for (const std::unique_ptr<CopyContext>& known : contexts_) {
        if (!known->is_alive()) continue;
        abi::Uuid name{};
        (void)driver_.device_get_uuid(&name, known->device());
        if (std::memcmp(name.bytes, device, sizeof(device)) == 0) return known.get();
        if (any == nullptr) any = known.get();
    }
    return any;
}

std::span<std::byte> CopyEngine::pinned_range(const void* address) const {
    unsigned type = 0;
    abi::DevicePointer base = 0;
    size_t size = 0;
    abi::PointerAttribute attributes[] = {abi::kPointerMemoryType, abi::kPointerRangeStart,
                                          abi::kPointerRangeSize};
    void* values[] = {&type, &base, &size};
    const abi::DevicePointer first = device_pointer(address);
    const bool is_known = driver_.pointer_get_attributes(std::size(attributes), attributes, values,
                                                         first) == abi::kSuccess &&
                          type == abi::kMemoryTypeHost && first >= base && first - base < size;
    if (!is_known) return {};
    return {reinterpret_cast<std::byte*>(base), size};
}

void CopyEngine::prepare() {
    int devices = 0;
    if (driver_.device_get_count(&devices) != abi::kSuccess) return;
    const auto make_ready = [&](abi::Context context, abi::Device device) {
        CopyContext* const found = find(context, device);
        if (found != nullptr && Config::get().preload) found->load_kernels();
    };
    std::lock_guard lock(mutex_);
    abi::Context current = nullptr;
    abi::Device device = -1;
    if (driver_.get_current(&current, &device)) make_ready(current, device);
    for (device = 0; device < devices; ++device) {
        if (!driver_.retain_in_use(&current, device)) continue;
        make_ready(current, device);
        (void)driver_.primary_context_release(device);
    }
}

}  // namespace uct::cuda

// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/stand_in.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/device_job.h"
#include "cuda/kernels.h"
#include "uct/cuda/abi.h"
#include "uct/cuda/kernels.h"
#include "uct/cuda/resident_queue.h"

namespace uct::cuda {

using abi::Result;

// --- what the driver's handles point to; never freed, so that a stale one is recognised ---

namespace abi {

struct ContextObject {
    Device device = 0;
    unsigned long long id = 0;
    std::atomic<bool> is_alive{true};
    std::atomic<Result> error{kSuccess};  // sticky
    std::atomic<int> running{0};          // kernels
    StreamObject* null_stream = nullptr;
};

// Operations of a stream in their order; a launch gives them to another.
struct GraphObject {
    std::vector<std::function<void()>> operations;
};

struct StreamObject {
    ContextObject* context = nullptr;
    GraphObject* capture = nullptr;  // gets what is put into the stream
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    uint64_t put = 0, done = 0;
    bool is_started = false;
};

struct EventObject {
    StreamObject* stream = nullptr;
    uint64_t number = 0;
};

struct FunctionObject {
    std::string name;
    std::atomic<bool> is_loaded{false};
};

struct ModuleObject {
    std::deque<FunctionObject> functions;
};

struct PoolObject {
    int fd = -1;
    Device device = 0;
    int handle_types = 0;
    bool is_exported = false;
};

}  // namespace abi

namespace {

using abi::ContextObject;
using abi::EventObject;
using abi::FunctionObject;
using abi::GraphObject;
using abi::ModuleObject;
using abi::PoolObject;
using abi::StreamObject;

enum class Kind { kDevice, kPool, kVirtual, kManaged, kPinned, kRegistered, kImported };

struct Region {
    uintptr_t base;
    size_t size;
    Kind kind;
    std::byte* bytes;  // where the stand-in, and for host kinds everybody, reaches them
    ContextObject* context;
    abi::Device device;
    uint64_t id;
    int fd = -1;  // of the block, and the place in it
    size_t place = 0;
    bool has_access = true;
    PoolObject* pool = nullptr;
    abi::AllocationHandle allocation = 0;  // of virtual memory
};

// Memory of a device: addresses for the program, and the same bytes for the stand-in.
struct Block {
    uintptr_t base;
    std::byte* shadow;
    size_t size;
    int fd;
    abi::Device device;
    std::map<size_t, size_t> holes;  // offset, length
    PoolObject* pool = nullptr;      // it is all of the pool's
};

// Of virtual memory: lives as long as somebody holds it, or it is mapped.
struct Physical {
    int fd;
    size_t size;
    abi::Device device;
    int handle_types = 0;
    int holders = 1;
    bool is_imported = false;
};

struct State {
    std::recursive_mutex mutex;
    std::atomic<bool> is_initialized{false};
    std::map<uintptr_t, Region> regions;
    std::deque<Block> blocks;
    std::map<uintptr_t, size_t> reservations;
    std::map<abi::AllocationHandle, Physical> physical;
    std::deque<PoolObject> pools;
    std::deque<ContextObject> contexts;
    std::deque<StreamObject> streams;
    std::deque<EventObject> events;
    std::deque<GraphObject> graphs;
    std::deque<ModuleObject> modules;
    std::map<abi::Device, std::pair<ContextObject*, int>> primary;
    uint64_t ids = 0;
    std::map<std::string, std::vector<std::pair<Result, int>>> faults;
    std::map<std::string, int> calls;
    std::map<std::string, uint64_t> counts;
};

State& state() {
    static auto* const instance = new State;
    return *instance;
}

using Lock = std::lock_guard<std::recursive_mutex>;
thread_local std::vector<ContextObject*> current_contexts;

constexpr size_t kBlock = 2 << 20;
constexpr size_t kUnit = 512;

int setting(const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
}

int devices() {
    static const int count = setting("STAND_IN_CUDA_DEVICES", 2);
    return count;
}

void set_faults(const char* list) {
    State& s = state();
    s.faults.clear();
    s.calls.clear();
    std::string rest = list == nullptr ? "" : list;
    while (!rest.empty()) {
        const size_t comma = std::min(rest.find(','), rest.size());
        const std::string one = rest.substr(0, comma);
        rest.erase(0, std::min(comma + 1, rest.size()));
        const size_t colon = one.find(':');
        const size_t at = one.find('@');
        if (colon == std::string::npos) continue;
        s.faults[one.substr(0, colon)].emplace_back(
            std::atoi(one.c_str() + colon + 1),
            at == std::string::npos ? 0 : std::atoi(one.c_str() + at + 1));
    }
}

// The error that this call is to give.
Result fault(const char* call) {
    State& s = state();
    Lock lock(s.mutex);
    ++s.counts[call];
    const auto found = s.faults.find(call);
    if (found == s.faults.end()) return abi::kSuccess;
    const int number = ++s.calls[call];
    for (const auto& [error, nth] : found->second) {
        if (nth == 0 || nth == number) return error;
    }
    return abi::kSuccess;
}

ContextObject* current() {
    return current_contexts.empty() ? nullptr : current_contexts.back();
}

Result check_context() {
    if (!state().is_initialized) return abi::kNotInitialized;
    ContextObject* const context = current();
    if (context == nullptr) return abi::kInvalidContext;
    if (!context->is_alive) return abi::kContextIsDestroyed;
    return context->error.load();
}

#define STAND_IN_CALL(name) \
    if (const Result injected = fault(name); injected != abi::kSuccess) return injected

#define STAND_IN_CONTEXT() \
    if (const Result problem = check_context(); problem != abi::kSuccess) return problem

// --- memory ---

Region* find_region(uintptr_t address) {
    State& s = state();
    auto next = s.regions.upper_bound(address);
    if (next == s.regions.begin()) return nullptr;
    Region& region = std::prev(next)->second;
    return address < region.base + region.size ? &region : nullptr;
}

int memory_file(size_t size) {
    const int fd = memfd_create("stand-in-gpu", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(size)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

void* map(int fd, size_t size, int access, size_t place = 0, void* where = nullptr) {
    const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void* const address = mmap(where, size, access, flags | (where != nullptr ? MAP_FIXED : 0), fd,
                               static_cast<off_t>(place));
    return address == MAP_FAILED ? nullptr : address;
}

Block* new_block(size_t size, abi::Device device) {
    const int fd = memory_file(size);
    if (fd < 0) return nullptr;
    void* const shadow = map(fd, size, PROT_READ | PROT_WRITE);
    void* const base = map(-1, size, PROT_NONE);
    if (shadow == nullptr || base == nullptr) return nullptr;
    state().blocks.push_back({reinterpret_cast<uintptr_t>(base),
                              static_cast<std::byte*>(shadow),
                              size,
                              fd,
                              device,
                              {{0, size}}});
    return &state().blocks.back();
}

constexpr size_t up_to(size_t value, size_t unit) {
    return (value + unit - 1) / unit * unit;
}

// Addresses of a block that nothing lies at. @return where in it; nothing: it has no such hole
std::optional<size_t> take_hole(Block& block, size_t size, size_t alignment) {
    const auto hole = std::ranges::find_if(block.holes, [&](const auto& one) {
        return up_to(one.first, alignment) + size <= one.first + one.second;
    });
    if (hole == block.holes.end()) return std::nullopt;
    const auto [begin, length] = *hole;
    const size_t place = up_to(begin, alignment);
    block.holes.erase(hole);
    if (place > begin) block.holes[begin] = place - begin;
    if (const size_t left = begin + length - place - size; left > 0)
        block.holes[place + size] = left;
    return place;
}

Result allocate(abi::DevicePointer* pointer, size_t size, Kind kind, ContextObject* context,
                PoolObject* pool = nullptr) {
    if (size == 0) return abi::kInvalidValue;
    State& s = state();
    const size_t rounded = up_to(size, kUnit);
    const auto take = [&](Block& block) {
        const std::optional<size_t> place = take_hole(block, rounded, kUnit);
        if (!place) return false;
        const uintptr_t base = block.base + *place;
        Region region{base,    size,     kind,  block.shadow + *place, context, context->device,
                      ++s.ids, block.fd, *place};
        region.pool = pool;
        s.regions[base] = region;
        *pointer = base;
        return true;
    };
    for (Block& block : s.blocks) {
        if (block.device == context->device && block.pool == pool && take(block))
            return abi::kSuccess;
    }
    if (pool != nullptr) return abi::kOutOfMemory;
    Block* const block =
        new_block(std::max(kBlock, (rounded + kBlock - 1) / kBlock * kBlock), context->device);
    return block != nullptr && take(*block) ? abi::kSuccess : abi::kOutOfMemory;
}

void give_back(const Region& region) {
    State& s = state();
    const size_t rounded = up_to(region.size, kUnit);
    const auto block =
        std::ranges::find_if(s.blocks, [&](const Block& one) { return one.fd == region.fd; });
    if (block == s.blocks.end()) return;
    auto hole = block->holes.emplace(region.place, rounded).first;
    if (const auto next = std::next(hole);
        next != block->holes.end() && hole->first + hole->second == next->first) {
        hole->second += next->second;
        block->holes.erase(next);
    }
    if (hole != block->holes.begin()) {
        const auto before = std::prev(hole);
        if (before->first + before->second == hole->first) {
            before->second += hole->second;
            block->holes.erase(hole);
        }
    }
    if (block->size > kBlock && block->pool == nullptr &&
        block->holes.begin()->second == block->size) {
        (void)munmap(reinterpret_cast<void*>(block->base), block->size);
        (void)munmap(block->shadow, block->size);
        close(block->fd);
        s.blocks.erase(block);
    }
}

// Where the stand-in finds [address, address + length); null: it may not be touched.
std::byte* reach(uintptr_t address, size_t length) {
    Lock lock(state().mutex);
    Region* const region = find_region(address);
    if (region != nullptr) {
        const size_t place = address - region->base;
        return length <= region->size - place && region->has_access ? region->bytes + place
                                                                    : nullptr;
    }
    for (const Block& block : state().blocks) {
        if (address >= block.base && address < block.base + block.size) return nullptr;
    }
    return reinterpret_cast<std::byte*>(address);
}

// --- streams ---

// Held by calls that wait for the whole device, and taken by those that give it work.
std::mutex mappings_change;

void run(StreamObject& stream) {
    static const int delay = setting("STAND_IN_CUDA_DELAY", 20);
    for (;;) {
        std::function<void()> operation;
        {
            std::unique_lock lock(stream.mutex);
            stream.changed.wait(lock, [&] { return !stream.queue.empty(); });
            operation = std::move(stream.queue.front());
            stream.queue.pop_front();
        }
        if (delay > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
        if (stream.context->error.load() == abi::kSuccess) {
            const Result injected = fault("run");
            if (injected != abi::kSuccess) {
                stream.context->error = injected;
            } else {
                operation();
            }
        }
        std::lock_guard lock(stream.mutex);
        ++stream.done;
        stream.changed.notify_all();
    }
}

void enqueue(StreamObject& stream, std::function<void()> operation) {
    std::lock_guard lock(stream.mutex);
    if (stream.capture != nullptr) {
        stream.capture->operations.push_back(std::move(operation));
        return;
    }
    stream.queue.push_back(std::move(operation));
    ++stream.put;
    if (!stream.is_started) std::thread(run, std::ref(stream)).detach();
    stream.is_started = true;
    stream.changed.notify_all();
}

void wait_for(StreamObject& stream, uint64_t number) {
    std::unique_lock lock(stream.mutex);
    stream.changed.wait(lock, [&] { return stream.done >= number; });
}

// For all that it has been given so far.
void wait_for(StreamObject& stream) {
    std::unique_lock lock(stream.mutex);
    stream.changed.wait(lock, [&, number = stream.put] { return stream.done >= number; });
}

// The same of all streams of a context.
void wait_for_streams(const ContextObject& context) {
    std::vector<std::pair<StreamObject*, uint64_t>> awaited;
    {
        Lock lock(state().mutex);
        for (StreamObject& stream : state().streams) {
            std::lock_guard of_stream(stream.mutex);
            if (stream.context == &context) awaited.emplace_back(&stream, stream.put);
        }
    }
    for (const auto& [stream, number] : awaited) wait_for(*stream, number);
}

StreamObject* stream_or_null(abi::Stream stream) {
    if (stream != nullptr) return stream;
    State& s = state();
    Lock lock(s.mutex);
    ContextObject* const context = current();
    if (context->null_stream == nullptr) {
        context->null_stream = &s.streams.emplace_back();
        context->null_stream->context = context;
    }
    return context->null_stream;
}

void copy_bytes(ContextObject& context, uintptr_t to, uintptr_t from, size_t length) {
    std::byte* const target = reach(to, length);
    const std::byte* const source = reach(from, length);
    if (target == nullptr || source == nullptr) {
        context.error = abi::kIllegalAddress;
    } else {
        std::memmove(target, source, length);
    }
}

// --- the interface ---

Result get_error_name(Result error, const char** name) {
    switch (error) {
        case abi::kSuccess:
            *name = "CUDA_SUCCESS";
            break;
        case abi::kOutOfMemory:
            *name = "CUDA_ERROR_OUT_OF_MEMORY";
            break;
        case abi::kIllegalAddress:
            *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
            break;
        default:
            *name = "CUDA_ERROR";
    }
    return abi::kSuccess;
}

Result init(unsigned) {
    STAND_IN_CALL("cuInit");
    Lock lock(state().mutex);
    if (devices() == 0) return abi::kNoDevice;
    if (!state().is_initialized) set_faults(std::getenv("STAND_IN_CUDA_FAULTS"));
    // As the real one, it maps memory of its own.
    if (!state().is_initialized) (void)map(-1, kBlock, PROT_NONE);
    state().is_initialized = true;
    return abi::kSuccess;
}

Result driver_get_version(int* version) {
    *version = 13000;
    return abi::kSuccess;
}

Result device_get_count(int* count) {
    if (!state().is_initialized) return abi::kNotInitialized;
    *count = devices();
    return abi::kSuccess;
}

Result device_get_name(char* name, int length, abi::Device device) {
    (void)std::snprintf(name, length, "Stand-in %d", device);
    return abi::kSuccess;
}

Result device_get_uuid(abi::Uuid* uuid, abi::Device device) {
    std::memset(uuid, device + 1, sizeof(*uuid));
    return abi::kSuccess;
}

Result device_get_attribute(int* value, abi::DeviceAttribute attribute, abi::Device) {
    switch (attribute) {
        case abi::kComputeCapabilityMajor:
            *value = 9;
            break;
        case abi::kHostAddressesOnDevice:
        case abi::kDmaBufSupported:
            *value = 1;
            break;
        default:
            *value = 0;
    }
    return abi::kSuccess;
}

Result device_total_memory(size_t* bytes, abi::Device) {
    *bytes = size_t{8} << 30;
    return abi::kSuccess;
}

Result device_can_access_peer(int* can, abi::Device a, abi::Device b) {
    *can = a != b;
    return abi::kSuccess;
}

Result device_get_p2p_attribute(int* value, int, abi::Device, abi::Device) {
    *value = 1;
    return abi::kSuccess;
}

ContextObject* new_context(abi::Device device) {
    State& s = state();
    (void)map(-1, kBlock, PROT_NONE);
    ContextObject& context = s.contexts.emplace_back();
    context.device = device;
    context.id = ++s.ids;
    return &context;
}

Result primary_context_retain(abi::Context* context, abi::Device device) {
    State& s = state();
    Lock lock(s.mutex);
    if (!s.is_initialized) return abi::kNotInitialized;
    if (device < 0 || device >= devices()) return abi::kInvalidDevice;
    auto& [object, count] = s.primary[device];
    if (count++ == 0) object = new_context(device);
    *context = object;
    return abi::kSuccess;
}

Result primary_context_release(abi::Device device) {
    State& s = state();
    Lock lock(s.mutex);
    auto& [object, count] = s.primary[device];
    if (count == 0) return abi::kInvalidContext;
    if (--count == 0) object->is_alive = false;
    return abi::kSuccess;
}

Result primary_context_state(abi::Device device, unsigned* flags, int* is_active) {
    State& s = state();
    Lock lock(s.mutex);
    if (!s.is_initialized) return abi::kNotInitialized;
    *flags = 0;
    *is_active = s.primary[device].second > 0;
    return abi::kSuccess;
}

Result context_create(abi::Context* context, unsigned, abi::Device device) {
    Lock lock(state().mutex);
    if (!state().is_initialized) return abi::kNotInitialized;
    if (device < 0 || device >= devices()) return abi::kInvalidDevice;
    *context = new_context(device);
    current_contexts.push_back(*context);
    return abi::kSuccess;
}

Result context_destroy(abi::Context context) {
    Lock lock(state().mutex);
    context->is_alive = false;
    if (current() == context) current_contexts.pop_back();
    return abi::kSuccess;
}

Result context_push(abi::Context context) {
    STAND_IN_CALL("cuCtxPushCurrent");
    if (context == nullptr) return abi::kInvalidContext;
    if (!context->is_alive) return abi::kContextIsDestroyed;
    current_contexts.push_back(context);
    return abi::kSuccess;
}

Result context_pop(abi::Context* context) {
    if (current_contexts.empty()) return abi::kInvalidContext;
    *context = current_contexts.back();
    current_contexts.pop_back();
    return abi::kSuccess;
}

Result context_set(abi::Context context) {
    if (!current_contexts.empty()) current_contexts.pop_back();
    if (context != nullptr) current_contexts.push_back(context);
    return abi::kSuccess;
}

Result context_get(abi::Context* context) {
    if (!state().is_initialized) return abi::kNotInitialized;
    *context = current();
    return abi::kSuccess;
}

Result context_get_device(abi::Device* device) {
    STAND_IN_CONTEXT();
    *device = current()->device;
    return abi::kSuccess;
}

Result context_get_id(abi::Context context, unsigned long long* id) {
    if (context == nullptr) context = current();
    if (context == nullptr || !context->is_alive) return abi::kContextIsDestroyed;
    *id = context->id;
    return abi::kSuccess;
}

Result context_synchronize() {
    STAND_IN_CONTEXT();
    wait_for_streams(*current());
    return current()->error.load();
}

Result context_enable_peer(abi::Context, unsigned) {
    STAND_IN_CONTEXT();
    return abi::kSuccess;
}

bool is_host(Kind kind) {
    return kind == Kind::kPinned || kind == Kind::kRegistered;
}

// Of virtual memory it is what was reserved together, whatever is mapped there.
std::pair<uintptr_t, size_t> range_of(const Region& region) {
    const auto next = state().reservations.upper_bound(region.base);
    if (region.kind != Kind::kVirtual || next == state().reservations.begin())
        return {region.base, region.size};
    return *std::prev(next);
}

// Imported memory cannot be passed on.
uint64_t handle_types_of(const Region& region) {
    if (region.kind == Kind::kImported) return 0;
    if (region.pool != nullptr) return region.pool->handle_types;
    const auto physical = state().physical.find(region.allocation);
    return physical == state().physical.end() || physical->second.is_imported
               ? 0
               : physical->second.handle_types;
}

PoolObject* pool_of(const Region& region) {
    static PoolObject of_device;  // what cuMemAllocAsync takes
    return region.kind == Kind::kPool && region.pool == nullptr ? &of_device : region.pool;
}

Result fill_attribute(const Region* region, abi::PointerAttribute attribute, void* value) {
    const auto set = [&](auto known) { std::memcpy(value, &known, sizeof(known)); };
    const bool belongs = region != nullptr && region->kind != Kind::kPool &&
                         region->kind != Kind::kVirtual && region->pool == nullptr;
    switch (attribute) {
        case abi::kPointerContext:
            set(belongs ? region->context : nullptr);
            return abi::kSuccess;
        case abi::kPointerMemoryType:
            set(region == nullptr
                    ? 0u
                    : (is_host(region->kind) ? abi::kMemoryTypeHost : abi::kMemoryTypeDevice));
            return abi::kSuccess;
        case abi::kPointerIsManaged:
            set(unsigned{region != nullptr && region->kind == Kind::kManaged});
            return abi::kSuccess;
        case abi::kPointerBufferId:
            set(region == nullptr ? uint64_t{0} : region->id);
            return abi::kSuccess;
        case abi::kPointerDeviceOrdinal:
            set(region == nullptr ? -2 : region->device);
            return abi::kSuccess;
        case abi::kPointerRangeStart:
            set(region == nullptr ? uint64_t{0} : uint64_t{range_of(*region).first});
            return abi::kSuccess;
        case abi::kPointerRangeSize:
            set(region == nullptr ? size_t{0} : range_of(*region).second);
            return abi::kSuccess;
        case abi::kPointerMappingStart:
            set(region == nullptr ? uint64_t{0} : uint64_t{region->base});
            return abi::kSuccess;
        case abi::kPointerMappingSize:
            set(region == nullptr ? size_t{0} : region->size);
            return abi::kSuccess;
        case abi::kPointerPool:
            set(region == nullptr || current() == nullptr ? nullptr : pool_of(*region));
            return abi::kSuccess;
        case abi::kPointerHandleTypes:
            set(region == nullptr ? uint64_t{0} : handle_types_of(*region));
            return abi::kSuccess;
    }
    return abi::kInvalidValue;
}

Result pointer_get_attributes(unsigned count, abi::PointerAttribute* attributes, void** values,
                              abi::DevicePointer pointer) {
    if (count > 1) {
        STAND_IN_CALL("cuPointerGetAttributes");
    }
    Lock lock(state().mutex);
    if (!state().is_initialized) return abi::kNotInitialized;
    if (count == 1) ++state().counts["one of cuPointerGetAttributes"];
    const Region* const region = find_region(pointer);
    for (unsigned i = 0; i < count; ++i) {
        const Result result = fill_attribute(region, attributes[i], values[i]);
        if (result != abi::kSuccess) return result;
    }
    return abi::kSuccess;
}

Result memory_allocate(abi::DevicePointer* pointer, size_t size) {
    STAND_IN_CALL("cuMemAlloc");
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    return allocate(pointer, size, Kind::kDevice, current());
}

// Both mappings are of whole pages around it.
void drop_import(const Region& region) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t before = region.place % page;
    (void)munmap(region.bytes - before, before + region.size);
    (void)munmap(reinterpret_cast<void*>(region.base - before), before + region.size);
    if (region.fd >= 0) close(region.fd);
}

Result memory_free(abi::DevicePointer pointer) {
    State& s = state();
    Lock lock(s.mutex);
    const auto found = s.regions.find(pointer);
    if (found == s.regions.end() || is_host(found->second.kind)) return abi::kInvalidValue;
    const Region region = found->second;
    s.regions.erase(found);
    if (region.kind == Kind::kManaged) {
        (void)munmap(region.bytes, region.size);
    } else if (region.kind == Kind::kImported) {
        drop_import(region);
    } else {
        give_back(region);
    }
    return abi::kSuccess;
}

Result memory_get_info(size_t* unused, size_t* total) {
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    (void)device_total_memory(total, current()->device);
    *unused = *total;
    for (const Block& block : state().blocks) *unused -= block.pool == nullptr ? block.size : 0;
    for (const auto& [handle, physical] : state().physical) *unused -= physical.size;
    return abi::kSuccess;
}

Result memory_get_range(abi::DevicePointer* base, size_t* size, abi::DevicePointer pointer) {
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    const Region* const region = find_region(pointer);
    if (region == nullptr) return abi::kNotFound;
    if (base != nullptr) *base = region->base;
    if (size != nullptr) *size = region->size;
    return abi::kSuccess;
}

Result new_host_memory(void** pointer, size_t size, Kind kind, int fd) {
    State& s = state();
    void* const bytes = map(fd, size, PROT_READ | PROT_WRITE);
    if (bytes == nullptr) return abi::kOutOfMemory;
    const auto base = reinterpret_cast<uintptr_t>(bytes);
    s.regions[base] = {
        base, size, kind, static_cast<std::byte*>(bytes), current(), current()->device, ++s.ids};
    *pointer = bytes;
    return abi::kSuccess;
}

Result memory_allocate_managed(abi::DevicePointer* pointer, size_t size, unsigned) {
    STAND_IN_CALL("cuMemAllocManaged");
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    const int fd = memory_file(size);
    if (fd < 0) return abi::kOutOfMemory;
    void* address = nullptr;
    const Result result = new_host_memory(&address, size, Kind::kManaged, fd);
    close(fd);
    *pointer = reinterpret_cast<uintptr_t>(address);
    return result;
}

Result memory_allocate_async(abi::DevicePointer* pointer, size_t size, abi::Stream) {
    STAND_IN_CALL("cuMemAllocAsync");
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    return allocate(pointer, size, Kind::kPool, current());
}

Result memory_free_async(abi::DevicePointer pointer, abi::Stream stream) {
    STAND_IN_CALL("cuMemFreeAsync");
    STAND_IN_CONTEXT();
    enqueue(*stream_or_null(stream), [pointer] { (void)memory_free(pointer); });
    return abi::kSuccess;
}

// A descriptor that cannot be mapped with a real driver; here nobody tries.
Result handle_for_range(void* handle, abi::DevicePointer pointer, size_t size, int type,
                        unsigned long long) {
    STAND_IN_CALL("cuMemGetHandleForAddressRange");
    Lock lock(state().mutex);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (type != abi::kRangeDmaBuf || size == 0 || pointer % page != 0 || size % page != 0)
        return abi::kInvalidValue;
    const Region* region = find_region(pointer);
    if (region == nullptr) region = find_region(pointer + size - 1);
    if (region == nullptr || region->kind == Kind::kManaged || is_host(region->kind))
        return abi::kNotSupported;
    const auto physical = state().physical.find(region->allocation);
    const int of_memory = physical == state().physical.end() ? region->fd : physical->second.fd;
    const int fd = fcntl(of_memory, F_DUPFD_CLOEXEC, 0);
    std::memcpy(handle, &fd, sizeof(fd));
    return fd < 0 ? abi::kOutOfMemory : abi::kSuccess;
}

// As the real driver does: pinned memory at addresses that memory of a device had, or will have.
bool new_host_memory_in_a_block(void** pointer, size_t size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    State& s = state();
    const size_t rounded = up_to(size, page);
    for (Block& block : s.blocks) {
        if (block.pool != nullptr) continue;
        const std::optional<size_t> place = take_hole(block, rounded, page);
        if (!place) continue;
        const uintptr_t base = block.base + *place;
        auto* const bytes = static_cast<std::byte*>(
            map(-1, rounded, PROT_READ | PROT_WRITE, 0, reinterpret_cast<void*>(base)));
        const Region region{base,    rounded,  Kind::kPinned, bytes, current(), current()->device,
                            ++s.ids, block.fd, *place};
        if (bytes == nullptr) {
            give_back(region);
            return false;
        }
        s.regions[base] = region;
        *pointer = bytes;
        return true;
    }
    return false;
}

Result host_allocate(void** pointer, size_t size, unsigned) {
    STAND_IN_CALL("cuMemHostAlloc");
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    if (new_host_memory_in_a_block(pointer, size)) return abi::kSuccess;
    return new_host_memory(pointer, size, Kind::kPinned, -1);
}

Result host_free(void* pointer) {
    State& s = state();
    Lock lock(s.mutex);
    const auto found = s.regions.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == s.regions.end() || found->second.kind != Kind::kPinned) return abi::kInvalidValue;
    const Region region = found->second;
    s.regions.erase(found);
    if (region.fd < 0) {
        (void)munmap(pointer, region.size);
    } else {
        (void)map(-1, region.size, PROT_NONE, 0, pointer);
        give_back(region);
    }
    return abi::kSuccess;
}

Result host_register(void* pointer, size_t size, unsigned) {
    STAND_IN_CALL("cuMemHostRegister");
    STAND_IN_CONTEXT();
    State& s = state();
    Lock lock(s.mutex);
    const auto base = reinterpret_cast<uintptr_t>(pointer);
    if (find_region(base) != nullptr) return abi::kAlreadyRegistered;
    s.regions[base] = {base,
                       size,
                       Kind::kRegistered,
                       static_cast<std::byte*>(pointer),
                       current(),
                       current()->device,
                       ++s.ids};
    return abi::kSuccess;
}

Result host_unregister(void* pointer) {
    Lock lock(state().mutex);
    return state().regions.erase(reinterpret_cast<uintptr_t>(pointer)) == 1 ? abi::kSuccess
                                                                            : abi::kInvalidValue;
}

Result host_get_device_pointer(abi::DevicePointer* pointer, void* host, unsigned) {
    Lock lock(state().mutex);
    // The start of a registration only, as the real one.
    if (state().regions.count(reinterpret_cast<uintptr_t>(host)) == 0) return abi::kInvalidValue;
    *pointer = reinterpret_cast<uintptr_t>(host);
    return abi::kSuccess;
}

Result address_reserve(abi::DevicePointer* pointer, size_t size, size_t, abi::DevicePointer,
                       unsigned long long) {
    STAND_IN_CALL("cuMemAddressReserve");
    Lock lock(state().mutex);
    void* const address = map(-1, size, PROT_NONE);
    if (address == nullptr) return abi::kOutOfMemory;
    *pointer = reinterpret_cast<uintptr_t>(address);
    state().reservations[*pointer] = size;
    return abi::kSuccess;
}

Result address_free(abi::DevicePointer pointer, size_t size) {
    Lock lock(state().mutex);
    state().reservations.erase(pointer);
    (void)munmap(reinterpret_cast<void*>(pointer), size);
    return abi::kSuccess;
}

Result allocation_create(abi::AllocationHandle* handle, size_t size,
                         const abi::AllocationProperties* properties, unsigned long long) {
    STAND_IN_CALL("cuMemCreate");
    State& s = state();
    Lock lock(s.mutex);
    if (size % kBlock != 0 || properties->location.id >= devices()) return abi::kInvalidValue;
    const int fd = memory_file(size);
    if (fd < 0) return abi::kOutOfMemory;
    *handle = ++s.ids;
    s.physical[*handle] = {fd, size, properties->location.id, properties->handle_types};
    return abi::kSuccess;
}

void let_go(std::map<abi::AllocationHandle, Physical>::iterator physical) {
    if (--physical->second.holders > 0) return;
    close(physical->second.fd);
    state().physical.erase(physical);
}

Result allocation_release(abi::AllocationHandle handle) {
    State& s = state();
    Lock lock(s.mutex);
    const auto found = s.physical.find(handle);
    if (found == s.physical.end()) return abi::kInvalidValue;
    let_go(found);
    return abi::kSuccess;
}

Result allocation_retain(abi::AllocationHandle* handle, void* address) {
    STAND_IN_CALL("cuMemRetainAllocationHandle");
    State& s = state();
    Lock lock(s.mutex);
    const Region* const region = find_region(reinterpret_cast<uintptr_t>(address));
    if (region == nullptr || region->kind != Kind::kVirtual) return abi::kInvalidValue;
    *handle = region->allocation;
    ++s.physical[*handle].holders;
    return abi::kSuccess;
}

Result allocation_export(void* shareable, abi::AllocationHandle handle, int type,
                         unsigned long long) {
    STAND_IN_CALL("cuMemExportToShareableHandle");
    State& s = state();
    Lock lock(s.mutex);
    const auto found = s.physical.find(handle);
    // What has been freed meanwhile ends the program, as with the real one.
    if (found == s.physical.end()) std::abort();
    if (type != abi::kHandleDescriptor || (found->second.handle_types & type) == 0 ||
        found->second.is_imported)
        return abi::kInvalidValue;
    const int fd = fcntl(found->second.fd, F_DUPFD_CLOEXEC, 0);
    std::memcpy(shareable, &fd, sizeof(fd));
    return fd < 0 ? abi::kOutOfMemory : abi::kSuccess;
}

Result allocation_import(abi::AllocationHandle* handle, void* shareable, int type) {
    STAND_IN_CALL("cuMemImportFromShareableHandle");
    State& s = state();
    Lock lock(s.mutex);
    const int fd =
        fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), F_DUPFD_CLOEXEC, 0);
    struct stat file {};
    if (type != abi::kHandleDescriptor || fd < 0 || fstat(fd, &file) != 0)
        return abi::kInvalidValue;
    *handle = ++s.ids;
    s.physical[*handle] = {fd, static_cast<size_t>(file.st_size), 0, 0, 1, true};
    return abi::kSuccess;
}

Result allocation_map(abi::DevicePointer pointer, size_t size, size_t place,
                      abi::AllocationHandle handle, unsigned long long) {
    State& s = state();
    Lock lock(s.mutex);
    const auto found = s.physical.find(handle);
    if (found == s.physical.end() || place + size > found->second.size) return abi::kInvalidValue;
    if (found->second.is_imported && size != found->second.size) return abi::kNotSupported;
    void* const shadow = map(found->second.fd, size, PROT_READ | PROT_WRITE, place);
    if (shadow == nullptr) return abi::kOutOfMemory;
    // The number is the allocation's, wherever and how often it is mapped.
    Region region{pointer,        size,
                  Kind::kVirtual, static_cast<std::byte*>(shadow),
                  nullptr,        found->second.device,
                  handle};
    region.has_access = false;
    region.allocation = handle;
    ++found->second.holders;
    s.regions[pointer] = region;
    return abi::kSuccess;
}

Result allocation_unmap(abi::DevicePointer pointer, size_t size) {
    STAND_IN_CALL("cuMemUnmap");
    State& s = state();
    Lock lock(s.mutex);
    const auto found = s.regions.find(pointer);
    if (found == s.regions.end()) return abi::kInvalidValue;
    (void)munmap(found->second.bytes, size);
    let_go(s.physical.find(found->second.allocation));
    s.regions.erase(found);
    return abi::kSuccess;
}

Result allocation_set_access(abi::DevicePointer pointer, size_t, const abi::AccessDescriptor*,
                             size_t) {
    STAND_IN_CALL("cuMemSetAccess");
    Lock lock(state().mutex);
    Region* const region = find_region(pointer);
    if (region == nullptr) return abi::kInvalidValue;
    region->has_access = true;
    return abi::kSuccess;
}

// --- pools ---

constexpr size_t kPoolBytes = 256 << 20;  // of addresses

Result pool_create(abi::Pool* pool, const abi::PoolProperties* properties) {
    State& s = state();
    Lock lock(s.mutex);
    Block* const block = new_block(kPoolBytes, properties->location.id);
    if (block == nullptr) return abi::kOutOfMemory;
    PoolObject& made = s.pools.emplace_back();
    made.fd = block->fd;
    made.device = properties->location.id;
    made.handle_types = properties->handle_types;
    block->pool = &made;
    *pool = &made;
    return abi::kSuccess;
}

// Of an import it ends the descriptor.
Result pool_destroy(abi::Pool pool) {
    STAND_IN_CALL("cuMemPoolDestroy");
    Lock lock(state().mutex);
    const bool is_imported = std::ranges::none_of(
        state().blocks, [&](const Block& block) { return block.pool == pool; });
    if (is_imported) close(std::exchange(pool->fd, -1));
    return abi::kSuccess;
}

Result pool_allocate(abi::DevicePointer* pointer, size_t size, abi::Pool pool, abi::Stream) {
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    return allocate(pointer, size, Kind::kPool, current(), pool);
}

Result pool_set_access(abi::Pool, const abi::AccessDescriptor*, size_t) {
    STAND_IN_CALL("cuMemPoolSetAccess");
    return abi::kSuccess;
}

Result pool_export(void* shareable, abi::Pool pool, int type, unsigned long long) {
    STAND_IN_CALL("cuMemPoolExportToShareableHandle");
    if ((pool->handle_types & type) == 0) return abi::kInvalidValue;
    const int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    std::memcpy(shareable, &fd, sizeof(fd));
    pool->is_exported = fd >= 0;
    return fd < 0 ? abi::kOutOfMemory : abi::kSuccess;
}

Result pool_import(abi::Pool* pool, void* shareable, int, unsigned long long) {
    STAND_IN_CALL("cuMemPoolImportFromShareableHandle");
    Lock lock(state().mutex);
    const int fd =
        fcntl(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return abi::kInvalidValue;
    PoolObject& made = state().pools.emplace_back();
    made.fd = fd;
    *pool = &made;
    return abi::kSuccess;
}

struct PoolPlace {
    size_t place, size;
    ino_t inode;
};
static_assert(sizeof(PoolPlace) <= sizeof(abi::PoolPointer));

Result pool_export_pointer(abi::PoolPointer* exported, abi::DevicePointer pointer) {
    STAND_IN_CALL("cuMemPoolExportPointer");
    Lock lock(state().mutex);
    const Region* const region = find_region(pointer);
    if (region == nullptr || region->pool == nullptr || !region->pool->is_exported)
        return abi::kInvalidValue;
    struct stat file {};
    (void)fstat(region->fd, &file);
    const PoolPlace place{region->place, region->size, file.st_ino};
    *exported = {};
    std::memcpy(exported, &place, sizeof(place));
    return abi::kSuccess;
}

Result import_region(abi::DevicePointer* pointer, int fd, size_t place, size_t size,
                     abi::Device device, PoolObject* pool);

Result pool_import_pointer(abi::DevicePointer* pointer, abi::Pool pool,
                           abi::PoolPointer* exported) {
    STAND_IN_CALL("cuMemPoolImportPointer");
    STAND_IN_CONTEXT();
    PoolPlace place{};
    std::memcpy(&place, exported, sizeof(place));
    struct stat file {};
    if (fstat(pool->fd, &file) != 0 || file.st_ino != place.inode) return abi::kInvalidValue;
    const int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
    return import_region(pointer, fd, place.place, place.size, current()->device, pool);
}

Result stream_create(abi::Stream* stream, unsigned) {
    STAND_IN_CALL("cuStreamCreate");
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    StreamObject& made = state().streams.emplace_back();
    made.context = current();
    *stream = &made;
    return abi::kSuccess;
}

Result stream_synchronize(abi::Stream stream) {
    STAND_IN_CONTEXT();
    StreamObject& object = *stream_or_null(stream);
    if (object.capture != nullptr) return abi::kCaptureUnsupported;
    wait_for(object);
    return object.context->error.load();
}

Result stream_destroy(abi::Stream stream) {
    wait_for(*stream);
    return abi::kSuccess;
}

Result stream_query(abi::Stream stream) {
    StreamObject& object = *stream_or_null(stream);
    if (object.context->error.load() != abi::kSuccess) return object.context->error.load();
    if (!object.context->is_alive) return abi::kContextIsDestroyed;
    std::lock_guard lock(object.mutex);
    return object.done == object.put ? abi::kSuccess : abi::kNotReady;
}

Result stream_wait_event(abi::Stream stream, abi::Event event, unsigned) {
    STAND_IN_CONTEXT();
    StreamObject* const awaited = event->stream;
    if (awaited == nullptr) return abi::kSuccess;
    enqueue(*stream_or_null(stream),
            [awaited, number = event->number] { wait_for(*awaited, number); });
    return abi::kSuccess;
}

Result stream_write_value(abi::Stream stream, abi::DevicePointer address, uint32_t value,
                          unsigned) {
    STAND_IN_CALL("cuStreamWriteValue32");
    STAND_IN_CONTEXT();
    StreamObject& object = *stream_or_null(stream);
    enqueue(object, [&object, address, value] {
        std::byte* const target = reach(address, sizeof(value));
        if (target == nullptr) {
            object.context->error = abi::kIllegalAddress;
        } else {
            std::atomic_ref(*reinterpret_cast<uint32_t*>(target)).store(value);
        }
    });
    return abi::kSuccess;
}

void run_batch_entry(StreamObject& stream, const abi::StreamBatchEntry& entry) {
    std::byte* const target = reach(entry.address, sizeof(uint32_t));
    if (target == nullptr) {
        stream.context->error = abi::kIllegalAddress;
        return;
    }
    const std::atomic_ref word(*reinterpret_cast<uint32_t*>(target));
    const auto value = static_cast<uint32_t>(entry.value);
    if (entry.operation == abi::kStreamWrite32) {
        word.store(value);
        return;
    }
    while ((word.load() & value) == 0 && stream.context->error.load() == abi::kSuccess)
        std::this_thread::sleep_for(std::chrono::microseconds(20));
}

Result stream_batch(abi::Stream stream, unsigned count, abi::StreamBatchEntry* entries, unsigned) {
    STAND_IN_CALL("cuStreamBatchMemOp");
    STAND_IN_CONTEXT();
    for (unsigned i = 0; i < count; ++i) {
        const bool is_known =
            (entries[i].operation == abi::kStreamWrite32 && entries[i].flags == 0) ||
            (entries[i].operation == abi::kStreamWait32 && entries[i].flags == abi::kStreamWaitAnd);
        if (!is_known) return abi::kInvalidValue;
    }
    StreamObject& object = *stream_or_null(stream);
    enqueue(object,
            [&object, batch = std::vector<abi::StreamBatchEntry>(entries, entries + count)] {
                for (const abi::StreamBatchEntry& entry : batch) run_batch_entry(object, entry);
            });
    return abi::kSuccess;
}

bool is_stream(const StreamObject* stream) {
    Lock lock(state().mutex);
    return std::ranges::any_of(state().streams,
                               [&](const StreamObject& known) { return &known == stream; });
}

Result stream_get_context(abi::Stream stream, abi::Context* context) {
    if (stream != nullptr && !is_stream(stream)) return abi::kInvalidHandle;
    *context = stream == nullptr ? current() : stream->context;
    return *context == nullptr ? abi::kInvalidContext : abi::kSuccess;
}

Result stream_is_capturing(abi::Stream stream, unsigned* state) {
    *state =
        stream != nullptr && stream->capture != nullptr ? abi::kCaptureActive : abi::kCaptureNone;
    return abi::kSuccess;
}

Result exchange_capture_mode(unsigned* mode) {
    thread_local unsigned of_thread = 0;
    std::swap(*mode, of_thread);
    return abi::kSuccess;
}

// --- graphs: their operations in the order of the capture ---

Result stream_begin_capture(abi::Stream stream, unsigned) {
    Lock lock(state().mutex);
    if (stream == nullptr || stream->capture != nullptr) return abi::kInvalidValue;
    stream->capture = &state().graphs.emplace_back();
    return abi::kSuccess;
}

Result stream_end_capture(abi::Stream stream, GraphObject** graph) {
    if (stream->capture == nullptr) return abi::kInvalidValue;
    *graph = std::exchange(stream->capture, nullptr);
    return abi::kSuccess;
}

Result graph_instantiate(GraphObject** executable, GraphObject* graph, unsigned long long) {
    *executable = graph;
    return abi::kSuccess;
}

Result graph_launch(GraphObject* executable, abi::Stream stream) {
    STAND_IN_CALL("cuGraphLaunch");
    STAND_IN_CONTEXT();
    for (const std::function<void()>& operation : executable->operations)
        enqueue(*stream, operation);
    return abi::kSuccess;
}

Result graph_destroy(GraphObject*) {
    return abi::kSuccess;
}

Result event_create(abi::Event* event, unsigned) {
    STAND_IN_CALL("cuEventCreate");
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    *event = &state().events.emplace_back();
    return abi::kSuccess;
}

Result event_destroy(abi::Event) {
    return abi::kSuccess;
}

Result event_record(abi::Event event, abi::Stream stream) {
    STAND_IN_CONTEXT();
    StreamObject& object = *stream_or_null(stream);
    enqueue(object, [] {});
    std::lock_guard lock(object.mutex);
    event->stream = &object;
    event->number = object.put;
    return abi::kSuccess;
}

Result event_query(abi::Event event) {
    if (event->stream == nullptr) return abi::kSuccess;
    if (const Result error = event->stream->context->error.load(); error != abi::kSuccess)
        return error;
    std::lock_guard lock(event->stream->mutex);
    return event->stream->done >= event->number ? abi::kSuccess : abi::kNotReady;
}

Result event_synchronize(abi::Event event) {
    if (event->stream != nullptr) wait_for(*event->stream, event->number);
    return event_query(event);
}

Result copy_async(abi::DevicePointer to, abi::DevicePointer from, size_t length,
                  abi::Stream stream) {
    STAND_IN_CALL("cuMemcpyAsync");
    STAND_IN_CONTEXT();
    std::lock_guard busy(mappings_change);
    if (reach(to, length) == nullptr || reach(from, length) == nullptr) return abi::kInvalidValue;
    StreamObject& object = *stream_or_null(stream);
    enqueue(object, [=, &object] { copy_bytes(*object.context, to, from, length); });
    return abi::kSuccess;
}

Result copy(abi::DevicePointer to, abi::DevicePointer from, size_t length) {
    const Result result = copy_async(to, from, length, nullptr);
    return result == abi::kSuccess ? stream_synchronize(nullptr) : result;
}

Result set_bytes(abi::DevicePointer to, unsigned char value, size_t length) {
    STAND_IN_CONTEXT();
    StreamObject& object = *stream_or_null(nullptr);
    enqueue(object, [=, &object] {
        std::byte* const target = reach(to, length);
        if (target == nullptr) {
            object.context->error = abi::kIllegalAddress;
        } else {
            std::memset(target, value, length);
        }
    });
    return stream_synchronize(nullptr);
}

// --- kernels ---

Result module_load(abi::Module* module, const void*) {
    STAND_IN_CALL("cuModuleLoadData");
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    *module = &state().modules.emplace_back();
    return abi::kSuccess;
}

Result module_unload(abi::Module) {
    return abi::kSuccess;
}

Result module_get_function(abi::Function* function, abi::Module module, const char* name) {
    STAND_IN_CALL("cuModuleGetFunction");
    Lock lock(state().mutex);
    const std::string wanted = name;
    if (wanted != uct::cuda::kCopyPiecesKernel && wanted != uct::cuda::kResidentKernel &&
        wanted != uct::cuda::kStopKernel && wanted != kSpinKernel &&
        std::ranges::find(kJobKernels, wanted) == std::end(kJobKernels))
        return abi::kNotFound;
    FunctionObject& made = module->functions.emplace_back();
    made.name = name;
    *function = &made;
    return abi::kSuccess;
}

// Loading waits until no kernel runs: what makes a first launch behind a resident one hang.
void load_function(FunctionObject& function, ContextObject& context) {
    static const char* const lazy = std::getenv("STAND_IN_CUDA_LAZY");
    if (function.is_loaded.load()) return;
    const bool waits = lazy == nullptr || *lazy != 'n';
    while (waits && context.running.load() > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    function.is_loaded = true;
}

Result function_load(abi::Function function) {
    STAND_IN_CALL("cuFuncLoad");
    STAND_IN_CONTEXT();
    load_function(*function, *current());
    return abi::kSuccess;
}

void run_stop(StreamObject& stream, const std::vector<uint64_t>& arguments) {
    const uint64_t reached = arguments[0], go = arguments[1];
    if (arguments[2] != 0)
        run_batch_entry(stream, {abi::kStreamWait32, go, uct::cuda::kStopIdle, 0, 0, 0});
    run_batch_entry(stream, {abi::kStreamWrite32, reached, uct::cuda::kStopReached, 0, 0, 0});
    run_batch_entry(stream, {abi::kStreamWait32, go, uct::cuda::kStopGo, 0, 0, 0});
    run_batch_entry(stream, {abi::kStreamWrite32, reached, uct::cuda::kStopPassed, 0, 0, 0});
}

// As the kernel of that name does; the fault "resident" has it end without the copy it has seen.
void copy_resident(ContextObject& context, const std::vector<uint64_t>& arguments) {
    using Clock = std::chrono::steady_clock;
    auto& queue = *reinterpret_cast<uct::cuda::ResidentQueue*>(
        reach(arguments[0], sizeof(uct::cuda::ResidentQueue)));
    const auto run = static_cast<uint32_t>(arguments[1]);
    const auto idle = std::chrono::nanoseconds(arguments[3]);
    const auto end = Clock::now() + std::chrono::nanoseconds(arguments[4]);
    std::atomic_ref(queue.started).store(run);
    auto last = Clock::now();
    for (auto next = static_cast<uint32_t>(arguments[2]);;) {
        auto& slot = queue.slots[next % uct::cuda::ResidentQueue::kSlots];
        const auto now = Clock::now();
        if (std::atomic_ref(slot.number_too).load() == next) {
            if (fault("resident") != abi::kSuccess) break;
            copy_bytes(context, slot.to, slot.from, slot.length);
            std::atomic_ref(queue.done).store(next++);
            last = Clock::now();
        } else if (now - last > idle || now > end) {
            break;
        } else {
            std::this_thread::yield();
        }
    }
    std::atomic_ref(queue.ended).store(run);
}

bool is_job(const FunctionObject& function) {
    return std::ranges::find(kJobKernels, function.name) != std::end(kJobKernels);
}

// Gives device memory its bytes at the address that the program knows.
void show(const Region& region) {
    const auto bytes = reinterpret_cast<uintptr_t>(region.bytes);
    if (bytes == region.base || !region.has_access) return;
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t before = region.base % page;
    // Of length 0, it gives the same pages of a shared mapping a second address.
    (void)mremap(reinterpret_cast<void*>(bytes - before), 0, before + region.size,
                 MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(region.base - before));
}

// Kernels that communicate are compiled for the host, and use addresses of devices. They run in a
// process of their own, where those are the bytes; what they write to host memory is lost.
void run_job_apart(ContextObject& context, const cuda_test::DeviceJob& job) {
    std::unique_lock lock(state().mutex);
    const pid_t process = fork();
    if (process == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (const auto& [base, region] : state().regions) show(region);
        cuda_test::run_job<UCS_DEVICE_LEVEL_THREAD>(job);
        _exit(0);
    }
    lock.unlock();
    int status = 1;
    if (process < 0 || waitpid(process, &status, 0) != process || status != 0)
        context.error = abi::kIllegalAddress;
}

void run_kernel(const FunctionObject& function, StreamObject& stream,
                const std::vector<uint64_t>& arguments) {
    ContextObject& context = *stream.context;
    if (function.name == uct::cuda::kStopKernel) {
        run_stop(stream, arguments);
        return;
    }
    if (function.name == kSpinKernel) {
        auto* const words = reinterpret_cast<uint32_t*>(reach(arguments[0], 2 * sizeof(uint32_t)));
        std::atomic_ref(words[0]).store(1);
        while (std::atomic_ref(words[1]).load() == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        return;
    }
    if (function.name == uct::cuda::kResidentKernel) return copy_resident(context, arguments);
    const auto count = static_cast<unsigned>(arguments[1]);
    const auto* const list = reinterpret_cast<const uct::cuda::KernelPiece*>(
        reach(arguments[0], count * sizeof(uct::cuda::KernelPiece)));
    for (unsigned i = 0; i < count; ++i)
        copy_bytes(context, list[i].to, list[i].from, list[i].length);
    if (arguments[2] == 0 || context.error != abi::kSuccess) return;
    auto* const flag = reinterpret_cast<uint32_t*>(reach(arguments[2], sizeof(uint32_t)));
    std::atomic_ref(*flag).store(static_cast<uint32_t>(arguments[3]));
}

Result launch(abi::Function function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
              unsigned, abi::Stream stream, void** parameters, void**) {
    STAND_IN_CALL("cuLaunchKernel");
    STAND_IN_CONTEXT();
    if (is_job(*function)) {
        StreamObject& object = *stream_or_null(stream);
        enqueue(object,
                [&object, function, job = *static_cast<cuda_test::DeviceJob*>(parameters[0])] {
                    load_function(*function, *object.context);
                    ++object.context->running;
                    run_job_apart(*object.context, job);
                    --object.context->running;
                });
        return abi::kSuccess;
    }
    std::vector<uint64_t> arguments{*static_cast<uint64_t*>(parameters[0])};
    if (function->name == uct::cuda::kCopyPiecesKernel) {
        const auto& end = *static_cast<uct::cuda::ListEnd*>(parameters[2]);
        arguments = {arguments[0], *static_cast<unsigned*>(parameters[1]), end.flag, end.number};
    }
    if (function->name == uct::cuda::kStopKernel) {
        arguments.push_back(*static_cast<uint64_t*>(parameters[1]));
    } else if (function->name == uct::cuda::kResidentKernel) {
        arguments.push_back(*static_cast<unsigned*>(parameters[1]));
    }
    if (function->name == uct::cuda::kStopKernel || function->name == uct::cuda::kResidentKernel)
        arguments.push_back(*static_cast<unsigned*>(parameters[2]));
    if (function->name == uct::cuda::kResidentKernel) {
        for (int i = 3; i < 5; ++i) arguments.push_back(*static_cast<uint64_t*>(parameters[i]));
    }
    StreamObject& object = *stream_or_null(stream);
    enqueue(object, [&object, function, arguments] {
        ContextObject& context = *object.context;
        load_function(*function, context);
        ++context.running;
        run_kernel(*function, object, arguments);
        --context.running;
    });
    return abi::kSuccess;
}

Result launch_cooperatively(abi::Function function, unsigned x, unsigned y, unsigned z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            abi::Stream stream, void** parameters) {
    return launch(function, x, y, z, block_x, block_y, block_z, shared, stream, parameters,
                  nullptr);
}

// --- between processes ---

// As the real one may in calls that change what is mapped: others wait meanwhile who give the
// streams more.
void wait_for_device(const ContextObject& context) {
    std::lock_guard busy(mappings_change);
    wait_for_streams(context);
}

struct Exported {
    pid_t process;
    int fd;
    size_t place, size;
    abi::Device device;
    uint64_t id;
    ino_t inode;  // a descriptor's number may be another file's by now
};
static_assert(sizeof(Exported) <= sizeof(abi::IpcHandle));

Result ipc_get_handle(abi::IpcHandle* handle, abi::DevicePointer pointer) {
    STAND_IN_CALL("cuIpcGetMemHandle");
    STAND_IN_CONTEXT();
    Lock lock(state().mutex);
    const Region* const region = find_region(pointer);
    if (region == nullptr || region->kind != Kind::kDevice) return abi::kInvalidValue;
    struct stat file {};
    (void)fstat(region->fd, &file);
    const Exported exported{getpid(),       region->fd, region->place, region->size,
                            region->device, region->id, file.st_ino};
    std::memset(handle, 0, sizeof(*handle));
    std::memcpy(handle, &exported, sizeof(exported));
    return abi::kSuccess;
}

Result ipc_open(abi::DevicePointer* pointer, abi::IpcHandle handle, unsigned) {
    STAND_IN_CALL("cuIpcOpenMemHandle");
    STAND_IN_CONTEXT();
    wait_for_device(*current());
    Exported exported;
    std::memcpy(&exported, &handle, sizeof(exported));
    if (exported.process == getpid()) return abi::kInvalidContext;
    const std::string path =
        "/proc/" + std::to_string(exported.process) + "/fd/" + std::to_string(exported.fd);
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd < 0) return abi::kInvalidHandle;
    struct stat file {};
    if (fstat(fd, &file) != 0 || file.st_ino != exported.inode) {
        close(fd);
        return abi::kInvalidHandle;
    }
    return import_region(pointer, fd, exported.place, exported.size, exported.device, nullptr);
}

// The descriptor is the region's.
Result import_region(abi::DevicePointer* pointer, int fd, size_t place, size_t size,
                     abi::Device device, PoolObject* pool) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t first = place / page * page;
    const size_t length = place - first + size;
    State& s = state();
    Lock lock(s.mutex);
    void* const shadow = map(fd, length, PROT_READ | PROT_WRITE, first);
    void* const base = map(-1, length, PROT_NONE);
    if (shadow == nullptr || base == nullptr) return abi::kOutOfMemory;
    const uintptr_t start = reinterpret_cast<uintptr_t>(base) + (place - first);
    Region region{
        start,     size,   Kind::kImported, static_cast<std::byte*>(shadow) + (place - first),
        current(), device, ++s.ids,         fd,
        place};
    region.pool = pool;
    s.regions[start] = region;
    *pointer = start;
    return abi::kSuccess;
}

Result ipc_close(abi::DevicePointer pointer) {
    STAND_IN_CALL("cuIpcCloseMemHandle");
    STAND_IN_CONTEXT();
    wait_for_device(*current());
    State& s = state();
    Lock lock(s.mutex);
    const auto found = s.regions.find(pointer);
    if (found == s.regions.end() || found->second.kind != Kind::kImported)
        return abi::kInvalidValue;
    drop_import(found->second);
    s.regions.erase(found);
    return abi::kSuccess;
}

std::atomic<uint64_t> all_calls{0};

// What a program is given for a function.
template <auto kFunction>
struct Counted;
template <typename... Arguments, Result (*kFunction)(Arguments...)>
struct Counted<kFunction> {
    static Result call(Arguments... arguments) {
        ++calls;
        ++all_calls;
        return kFunction(arguments...);
    }
    static inline std::atomic<uint64_t> calls{0};
};

struct Entry {
    void* address;
    const std::atomic<uint64_t>* calls;
};

template <auto kFunction>
Entry entry_of() {
    return {reinterpret_cast<void*>(Counted<kFunction>::call), &Counted<kFunction>::calls};
}

const std::map<std::string, Entry>& entries() {
    static const std::map<std::string, Entry> known = {
        {"cuGetErrorName", entry_of<get_error_name>()},
        {"cuGetErrorString", entry_of<get_error_name>()},
        {"cuInit", entry_of<init>()},
        {"cuDriverGetVersion", entry_of<driver_get_version>()},
        {"cuDeviceGetCount", entry_of<device_get_count>()},
        {"cuDeviceGetName", entry_of<device_get_name>()},
        {"cuDeviceGetUuid", entry_of<device_get_uuid>()},
        {"cuDeviceGetAttribute", entry_of<device_get_attribute>()},
        {"cuDeviceTotalMem", entry_of<device_total_memory>()},
        {"cuDeviceCanAccessPeer", entry_of<device_can_access_peer>()},
        {"cuDeviceGetP2PAttribute", entry_of<device_get_p2p_attribute>()},
        {"cuDevicePrimaryCtxRetain", entry_of<primary_context_retain>()},
        {"cuDevicePrimaryCtxRelease", entry_of<primary_context_release>()},
        {"cuDevicePrimaryCtxGetState", entry_of<primary_context_state>()},
        {"cuCtxCreate", entry_of<context_create>()},
        {"cuCtxDestroy", entry_of<context_destroy>()},
        {"cuCtxPushCurrent", entry_of<context_push>()},
        {"cuCtxPopCurrent", entry_of<context_pop>()},
        {"cuCtxSetCurrent", entry_of<context_set>()},
        {"cuCtxGetCurrent", entry_of<context_get>()},
        {"cuCtxGetDevice", entry_of<context_get_device>()},
        {"cuCtxGetId", entry_of<context_get_id>()},
        {"cuCtxSynchronize", entry_of<context_synchronize>()},
        {"cuCtxEnablePeerAccess", entry_of<context_enable_peer>()},
        {"cuPointerGetAttributes", entry_of<pointer_get_attributes>()},
        {"cuMemAlloc", entry_of<memory_allocate>()},
        {"cuMemFree", entry_of<memory_free>()},
        {"cuMemGetInfo", entry_of<memory_get_info>()},
        {"cuMemGetAddressRange", entry_of<memory_get_range>()},
        {"cuMemAllocManaged", entry_of<memory_allocate_managed>()},
        {"cuMemAllocAsync", entry_of<memory_allocate_async>()},
        {"cuMemFreeAsync", entry_of<memory_free_async>()},
        {"cuMemGetHandleForAddressRange", entry_of<handle_for_range>()},
        {"cuMemHostAlloc", entry_of<host_allocate>()},
        {"cuMemFreeHost", entry_of<host_free>()},
        {"cuMemHostRegister", entry_of<host_register>()},
        {"cuMemHostUnregister", entry_of<host_unregister>()},
        {"cuMemHostGetDevicePointer", entry_of<host_get_device_pointer>()},
        {"cuMemAddressReserve", entry_of<address_reserve>()},
        {"cuMemAddressFree", entry_of<address_free>()},
        {"cuMemCreate", entry_of<allocation_create>()},
        {"cuMemRelease", entry_of<allocation_release>()},
        {"cuMemMap", entry_of<allocation_map>()},
        {"cuMemUnmap", entry_of<allocation_unmap>()},
        {"cuMemSetAccess", entry_of<allocation_set_access>()},
        {"cuMemRetainAllocationHandle", entry_of<allocation_retain>()},
        {"cuMemExportToShareableHandle", entry_of<allocation_export>()},
        {"cuMemImportFromShareableHandle", entry_of<allocation_import>()},
        {"cuMemPoolCreate", entry_of<pool_create>()},
        {"cuMemPoolDestroy", entry_of<pool_destroy>()},
        {"cuMemAllocFromPoolAsync", entry_of<pool_allocate>()},
        {"cuMemPoolSetAccess", entry_of<pool_set_access>()},
        {"cuMemPoolExportToShareableHandle", entry_of<pool_export>()},
        {"cuMemPoolImportFromShareableHandle", entry_of<pool_import>()},
        {"cuMemPoolExportPointer", entry_of<pool_export_pointer>()},
        {"cuMemPoolImportPointer", entry_of<pool_import_pointer>()},
        {"cuStreamCreate", entry_of<stream_create>()},
        {"cuStreamDestroy", entry_of<stream_destroy>()},
        {"cuStreamQuery", entry_of<stream_query>()},
        {"cuStreamSynchronize", entry_of<stream_synchronize>()},
        {"cuStreamWaitEvent", entry_of<stream_wait_event>()},
        {"cuStreamWriteValue32", entry_of<stream_write_value>()},
        {"cuStreamBatchMemOp", entry_of<stream_batch>()},
        {"cuStreamGetCtx", entry_of<stream_get_context>()},
        {"cuStreamIsCapturing", entry_of<stream_is_capturing>()},
        {"cuThreadExchangeStreamCaptureMode", entry_of<exchange_capture_mode>()},
        {"cuStreamBeginCapture", entry_of<stream_begin_capture>()},
        {"cuStreamEndCapture", entry_of<stream_end_capture>()},
        {"cuGraphInstantiateWithFlags", entry_of<graph_instantiate>()},
        {"cuGraphLaunch", entry_of<graph_launch>()},
        {"cuGraphExecDestroy", entry_of<graph_destroy>()},
        {"cuGraphDestroy", entry_of<graph_destroy>()},
        {"cuEventCreate", entry_of<event_create>()},
        {"cuEventDestroy", entry_of<event_destroy>()},
        {"cuEventRecord", entry_of<event_record>()},
        {"cuEventQuery", entry_of<event_query>()},
        {"cuEventSynchronize", entry_of<event_synchronize>()},
        {"cuMemcpy", entry_of<copy>()},
        {"cuMemcpyAsync", entry_of<copy_async>()},
        {"cuMemsetD8", entry_of<set_bytes>()},
        {"cuModuleLoadData", entry_of<module_load>()},
        {"cuModuleUnload", entry_of<module_unload>()},
        {"cuModuleGetFunction", entry_of<module_get_function>()},
        {"cuFuncLoad", entry_of<function_load>()},
        {"cuLaunchKernel", entry_of<launch>()},
        {"cuLaunchCooperativeKernel", entry_of<launch_cooperatively>()},
        {"cuIpcGetMemHandle", entry_of<ipc_get_handle>()},
        {"cuIpcOpenMemHandle", entry_of<ipc_open>()},
        {"cuIpcCloseMemHandle", entry_of<ipc_close>()},
    };
    return known;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) Result cuGetProcAddress_v2(const char* name, void** address,
                                                                  int, uint64_t, int* found) {
    const auto entry = entries().find(name);
    *address = entry == entries().end() ? nullptr : entry->second.address;
    if (found != nullptr) *found = *address == nullptr ? 1 : 0;
    return *address == nullptr ? abi::kNotFound : abi::kSuccess;
}

__attribute__((visibility("default"))) uint64_t stand_in_cuda_calls_of(const char* function) {
    if (*function == '\0') return all_calls;
    Lock lock(state().mutex);
    const auto found = state().counts.find(function);
    if (found != state().counts.end()) return found->second;
    const auto entry = entries().find(function);
    return entry == entries().end() ? 0 : entry->second.calls->load();
}

__attribute__((visibility("default"))) void stand_in_cuda_set_faults(const char* faults) {
    Lock lock(state().mutex);
    set_faults(faults);
}

}  // extern "C"

}  // namespace uct::cuda

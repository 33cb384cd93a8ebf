// SPDX-License-Identifier: BSD-3-Clause
#include "softhca/adapter/gpu_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

namespace softhca::gpu {

std::atomic<uintptr_t> first_registered{UINTPTR_MAX};
std::atomic<uintptr_t> end_registered{0};

namespace {

using Result = int;
using Address = uint64_t;
using Context = struct ContextObject*;
using Stream = struct StreamObject*;

constexpr Result kSuccess = 0;
constexpr unsigned kMemoryOfHost = 1;  // pinned
constexpr unsigned kMemoryOfDevice = 2;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kCaptureRelaxed = 2;

enum Attribute : int {
    kContext = 1,
    kMemoryType = 2,
    kBufferId = 7,
    kIsManaged = 8,
    kDevice = 9,
};

// The driver's functions, of a library that the program has loaded.
class GpuDriver {
    void* const library_;

    struct Found {
        void* address;
        template <typename Function>
        operator Function() const {
            return reinterpret_cast<Function>(address);
        }
    };
    // As it is since that version.
    Found find(const char* name, int version) const {
        using GetAddress = Result (*)(const char*, void**, int, uint64_t, int*);
        const auto get = reinterpret_cast<GetAddress>(dlsym(library_, "cuGetProcAddress_v2"));
        void* address = nullptr;
        int found = 0;
        if (get == nullptr || get(name, &address, version, 0, &found) != kSuccess)
            address = nullptr;
        is_whole_ = is_whole_ && address != nullptr;
        return {address};
    }
    mutable bool is_whole_ = true;

    template <typename... Arguments>
    using Call = Result (*)(Arguments...);

  public:
    explicit GpuDriver(void* library) : library_(library) {}
    bool is_whole() const { return is_whole_; }

    Call<unsigned, Attribute*, void**, Address> get_attributes =
        find("cuPointerGetAttributes", 7000);
    Call<Context> push = find("cuCtxPushCurrent", 4000);
    Call<Context*> pop = find("cuCtxPopCurrent", 4000);
    Call<Context, unsigned long long*> get_id = find("cuCtxGetId", 12000);
    Call<Context*, int> retain_primary = find("cuDevicePrimaryCtxRetain", 7000);
    Call<int> release_primary = find("cuDevicePrimaryCtxRelease", 11000);
    Call<int, unsigned*, int*> primary_state = find("cuDevicePrimaryCtxGetState", 7000);
    Call<Stream*, unsigned> create_stream = find("cuStreamCreate", 2000);
    Call<Stream> synchronize = find("cuStreamSynchronize", 2000);
    Call<Address, Address, size_t, Stream> copy = find("cuMemcpyAsync", 4000);
    Call<unsigned*> exchange_capture_mode = find("cuThreadExchangeStreamCaptureMode", 10010);
};

// Null: the program has loaded none.
const GpuDriver* driver() {
    static std::atomic<const GpuDriver*> known{nullptr};
    if (const GpuDriver* const found = known.load(std::memory_order_acquire); found != nullptr)
        return found;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    if (library == nullptr) return nullptr;
    static const GpuDriver loaded(library);
    if (!loaded.is_whole()) return nullptr;
    known.store(&loaded, std::memory_order_release);
    return &loaded;
}

// What the driver says of an address; all 0 if it knows nothing.
struct Found {
    Context context = nullptr;  // null also for memory that belongs to a device alone
    unsigned type = 0;
    unsigned long long allocation = 0;
    unsigned is_managed = 0;
    int device = 0;

    bool is_of_device() const { return type == kMemoryOfDevice && is_managed == 0; }
};

Found look_up(const GpuDriver& cuda, const void* address) {
    Found found;
    Attribute what[] = {kContext, kMemoryType, kBufferId, kIsManaged, kDevice};
    void* values[] = {&found.context, &found.type, &found.allocation, &found.is_managed,
                      &found.device};
    if (cuda.get_attributes(std::size(what), what, values, reinterpret_cast<uintptr_t>(address)) !=
        kSuccess)
        return {};
    return found;
}

// An allocation that has registrations, which lie between first and end.
struct Allocation {
    uintptr_t first = UINTPTR_MAX;
    uintptr_t end = 0;
    unsigned holds = 0;
};

// A stream of the adapter's own, which waits for nothing that the program does.
struct OwnStream {
    Context context;
    unsigned long long id;  // of the context, whose address may be another one's by now
    Stream stream;
};

struct State {
    std::mutex mutex;
    std::map<uint64_t, Allocation> allocations;  // by their numbers
    std::vector<OwnStream> streams;
};

State& state() {
    static auto* const instance = new State;  // other static objects deregister at exit
    return *instance;
}

// A context current on this thread, whatever was, for as long as this lives. Where memory belongs
// to a device alone it is the primary one, if the program uses it.
class Current {
  public:
    Current(const GpuDriver& cuda, const Found& found) : cuda_(cuda) {
        Context context = found.context;
        unsigned flags = 0;
        int is_active = 0;
        if (context == nullptr &&
            cuda.primary_state(found.device, &flags, &is_active) == kSuccess && is_active != 0 &&
            cuda.retain_primary(&context, found.device) == kSuccess) {
            retained_ = found.device;
        }
        if (context == nullptr || cuda.push(context) != kSuccess) return;
        context_ = context;
        // A capture of the program's on another thread forbids nothing here.
        (void)cuda.exchange_capture_mode(&capture_mode_);
    }
    ~Current() {
        if (context_ != nullptr) {
            (void)cuda_.exchange_capture_mode(&capture_mode_);
            Context popped = nullptr;
            (void)cuda_.pop(&popped);
        }
        if (retained_ >= 0) (void)cuda_.release_primary(retained_);
    }
    Current(Current&&) = delete;

    // The adapter's stream in it; null: there is no such context, or it has failed.
    Stream stream() const {
        unsigned long long id = 0;
        if (context_ == nullptr || cuda_.get_id(context_, &id) != kSuccess) return nullptr;
        State& all = state();
        std::lock_guard lock(all.mutex);
        for (const OwnStream& known : all.streams) {
            if (known.context == context_ && known.id == id) return known.stream;
        }
        Stream stream = nullptr;
        if (cuda_.create_stream(&stream, kStreamNonBlocking) != kSuccess) return nullptr;
        std::erase_if(all.streams,
                      [&](const OwnStream& known) { return known.context == context_; });
        all.streams.push_back({context_, id, stream});
        return stream;
    }

  private:
    const GpuDriver& cuda_;
    Context context_ = nullptr;
    int retained_ = -1;
    unsigned capture_mode_ = kCaptureRelaxed;
};

// What an address of a copy is.
enum class Place { kHost, kGpu, kGone };

Place place_of(const Found& found, const void* address) {
    State& all = state();
    std::lock_guard lock(all.mutex);
    if (all.allocations.contains(found.allocation)) return Place::kGpu;
    // Adapters find memory by its registration, not by its address: where memory of a GPU was
    // registered, and freed, the driver may pin memory of the host.
    if (found.type == kMemoryOfHost) return Place::kHost;
    const auto place = reinterpret_cast<uintptr_t>(address);
    const bool was_registered = std::ranges::any_of(all.allocations, [&](const auto& entry) {
        const Allocation& allocation = entry.second;
        return place >= allocation.first && place < allocation.end;
    });
    return was_registered || found.is_of_device() ? Place::kGone : Place::kHost;
}

}  // namespace

Hold::~Hold() {
    if (allocation_ == 0) return;
    State& all = state();
    std::lock_guard lock(all.mutex);
    const auto found = all.allocations.find(allocation_);
    if (--found->second.holds == 0) all.allocations.erase(found);
}

Kind kind_of(const void* address, size_t length) {
    const GpuDriver* const cuda = driver();
    if (cuda == nullptr || length == 0) return Kind::kHost;
    const Found found = look_up(*cuda, address);
    if (found.type != kMemoryOfDevice) return Kind::kHost;
    if (found.is_managed != 0) return Kind::kManaged;
    const Found last = look_up(*cuda, static_cast<const char*>(address) + length - 1);
    return last.allocation == found.allocation ? Kind::kGpu : Kind::kPartly;
}

Hold hold(const void* address, size_t length) {
    const GpuDriver* const cuda = driver();
    const Found found = cuda == nullptr ? Found() : look_up(*cuda, address);
    if (!found.is_of_device() || found.allocation == 0) return {};
    if (Current(*cuda, found).stream() == nullptr) return {};
    State& all = state();
    std::lock_guard lock(all.mutex);
    const auto first = reinterpret_cast<uintptr_t>(address);
    Allocation& allocation = all.allocations[found.allocation];
    allocation.first = std::min(allocation.first, first);
    allocation.end = std::max(allocation.end, first + length);
    ++allocation.holds;
    first_registered.store(std::min(first_registered.load(), first));
    end_registered.store(std::max(end_registered.load(), first + length));
    return Hold(found.allocation);
}

bool is_gone(const void* address) {
    if (!may_hold(address)) return false;
    const GpuDriver* const cuda = driver();
    return cuda == nullptr || place_of(look_up(*cuda, address), address) == Place::kGone;
}

bool copy_any(void* to, const void* from, size_t length) {
    const GpuDriver* const cuda = driver();
    if (cuda == nullptr) return false;
    const Found target = look_up(*cuda, to);
    const Found source = look_up(*cuda, from);
    const Place into = place_of(target, to);
    const Place out_of = place_of(source, from);
    if (into == Place::kGone || out_of == Place::kGone) return false;
    if (into == Place::kHost && out_of == Place::kHost) {
        std::memcpy(to, from, length);
        return true;
    }
    const Current current(*cuda, into == Place::kGpu ? target : source);
    const Stream stream = current.stream();
    return stream != nullptr &&
           cuda->copy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), length,
                      stream) == kSuccess &&
           cuda->synchronize(stream) == kSuccess;
}

}  // namespace softhca::gpu

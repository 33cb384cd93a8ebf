// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/device.h"

#include <dlfcn.h>
#include <algorithm>

#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include "cuda/stand_in.h"

namespace cuda_test {

namespace abi = uct::cuda::abi;

namespace {

void* stand_in_library = nullptr;
constexpr size_t kGranularity = 2 << 20;

uint64_t pointer(const void* address) {
    return reinterpret_cast<uintptr_t>(address);
}

// One a device, for the life of the process.
abi::Pool shared_pool(abi::Device device) {
    static std::map<abi::Device, abi::Pool> pools;
    abi::Pool& pool = pools[device];
    if (pool == nullptr) {
        abi::PoolProperties properties{};
        properties.type = abi::kAllocationPinned;
        properties.handle_types = abi::kHandleDescriptor;
        properties.location = {abi::kLocationDevice, device};
        check(driver().pool_create(&pool, &properties), "cuMemPoolCreate");
    }
    return pool;
}

}  // namespace

void choose_driver() {
    // Streams that wait hold some (docs/gpu.md).
    for (const char* name : {"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_COPY_CONNECTIONS"})
        (void)setenv(name, "32", 0);
    const char* const wish = std::getenv("SWIFTLANE_TEST_GPU");
    if (wish != nullptr && std::strcmp(wish, "real") == 0) return;
    stand_in_library = dlopen(STAND_IN_LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    if (stand_in_library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        std::abort();
    }
}

bool is_real() {
    return stand_in_library == nullptr;
}

void set_faults(const char* faults) {
    const auto function =
        reinterpret_cast<stand_in::SetFaults>(dlsym(stand_in_library, stand_in::kSetFaults));
    function(faults);
}

uint64_t calls_of(const char* function) {
    if (is_real()) return 0;
    const auto count =
        reinterpret_cast<stand_in::CallsOf>(dlsym(stand_in_library, stand_in::kCallsOf));
    return count(function);
}

void check(abi::Result result, const char* what) {
    if (result != abi::kSuccess)
        throw std::runtime_error(std::string(what) + ": " + driver().name_of(result));
}

void* driver_function(const char* name, int version) {
    using GetAddress = abi::Result (*)(const char*, void**, int, uint64_t, int*);
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto get = reinterpret_cast<GetAddress>(dlsym(library, "cuGetProcAddress_v2"));
    void* address = nullptr;
    check(get(name, &address, version, 0, nullptr), name);
    return address;
}

int device_count() {
    check(driver().init(0), "cuInit");
    int count = 0;
    check(driver().device_get_count(&count), "cuDeviceGetCount");
    return count;
}

abi::Context use_device(abi::Device device) {
    (void)device_count();
    abi::Context context = nullptr;
    check(driver().primary_context_retain(&context, device), "cuDevicePrimaryCtxRetain");
    check(driver().context_set(context), "cuCtxSetCurrent");
    return context;
}

const char* name_of(Kind kind) {
    static constexpr const char* kNames[] = {"heap",    "pinned",        "registered",
                                             "device",  "pool",          "sharedPool",
                                             "virtual", "sharedVirtual", "managed"};
    return kNames[static_cast<size_t>(kind)];
}

Buffer::Buffer(Kind kind, size_t length) : kind_(kind), length_(length) {
    abi::DevicePointer address = 0;
    void* host = nullptr;
    abi::Device device = 0;
    switch (kind) {
        case Kind::kHeap:
            host = std::malloc(length);
            break;
        case Kind::kPinned:
            check(driver().host_allocate(&host, length, abi::kHostAllocPortable), "cuMemHostAlloc");
            break;
        case Kind::kRegistered:
            mapped_ = (length + 4095) / 4096 * 4096;
            host = std::aligned_alloc(4096, mapped_);
            check(driver().host_register(host, mapped_, 1), "cuMemHostRegister");
            break;
        case Kind::kDevice:
            check(driver().memory_allocate(&address, length), "cuMemAlloc");
            break;
        case Kind::kPool:
            check(driver().memory_allocate_async(&address, length, nullptr), "cuMemAllocAsync");
            check(driver().stream_synchronize(nullptr), "cuStreamSynchronize");
            break;
        case Kind::kSharedPool:
            check(driver().context_get_device(&device), "cuCtxGetDevice");
            check(driver().pool_allocate(&address, length, shared_pool(device), nullptr),
                  "cuMemAllocFromPoolAsync");
            check(driver().stream_synchronize(nullptr), "cuStreamSynchronize");
            break;
        case Kind::kVirtual:
        case Kind::kSharedVirtual: {
            mapped_ = (length + kGranularity - 1) / kGranularity * kGranularity;
            check(driver().context_get_device(&device), "cuCtxGetDevice");
            abi::AllocationProperties properties{};
            properties.type = abi::kAllocationPinned;
            if (kind == Kind::kSharedVirtual) properties.handle_types = abi::kHandleDescriptor;
            properties.location = {abi::kLocationDevice, device};
            check(driver().allocation_create(&handle_, mapped_, &properties, 0), "cuMemCreate");
            check(driver().address_reserve(&address, mapped_, 0, 0, 0), "cuMemAddressReserve");
            check(driver().allocation_map(address, mapped_, 0, handle_, 0), "cuMemMap");
            const abi::AccessDescriptor access{{abi::kLocationDevice, device},
                                               abi::kAccessReadWrite};
            check(driver().allocation_set_access(address, mapped_, &access, 1), "cuMemSetAccess");
            break;
        }
        case Kind::kManaged:
            check(driver().memory_allocate_managed(&address, length, abi::kMemAttachGlobal),
                  "cuMemAllocManaged");
            break;
    }
    data_ = host != nullptr ? static_cast<std::byte*>(host) : reinterpret_cast<std::byte*>(address);
    clear();
}

Buffer::~Buffer() {
    const uint64_t address = pointer(data_);
    switch (kind_) {
        case Kind::kHeap:
            std::free(data_);
            break;
        case Kind::kPinned:
            (void)driver().host_free(data_);
            break;
        case Kind::kRegistered:
            (void)driver().host_unregister(data_);
            std::free(data_);
            break;
        case Kind::kPool:
        case Kind::kSharedPool:
            (void)driver().memory_free_async(address, nullptr);
            (void)driver().stream_synchronize(nullptr);
            break;
        case Kind::kVirtual:
        case Kind::kSharedVirtual:
            (void)driver().allocation_unmap(address, mapped_);
            (void)driver().address_free(address, mapped_);
            (void)driver().allocation_release(handle_);
            break;
        case Kind::kDevice:
        case Kind::kManaged:
            (void)driver().memory_free(address);
            break;
    }
}

std::byte Buffer::expected(uint32_t seed, size_t place) {
    const uint64_t mixed = (place + 1) * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u;
    return static_cast<std::byte>(mixed >> 56);
}

void Buffer::set(const std::vector<std::byte>& bytes) {
    if (length_ == 0) return;
    ASSERT_NE(data_, nullptr);
    if (is_on_device(kind_)) {
        check(driver().copy(pointer(data_), pointer(bytes.data()), length_), "cuMemcpy");
        // From pageable memory it returns before the bytes have landed.
        check(driver().stream_synchronize(nullptr), "cuStreamSynchronize");
    } else {
        std::memcpy(data_, bytes.data(), length_);
    }
}

void Buffer::fill(uint32_t seed) {
    std::vector<std::byte> bytes(length_);
    for (size_t i = 0; i < length_; ++i) bytes[i] = expected(seed, i);
    set(bytes);
}

void Buffer::clear() {
    set(std::vector<std::byte>(length_));
}

std::vector<std::byte> Buffer::bytes() const {
    std::vector<std::byte> bytes(length_);
    if (length_ == 0) return bytes;
    if (is_on_device(kind_)) {
        check(driver().copy(pointer(bytes.data()), pointer(data_), length_), "cuMemcpy");
    } else {
        std::memcpy(bytes.data(), data_, length_);
    }
    return bytes;
}

::testing::AssertionResult Buffer::holds(uint32_t seed, size_t first, size_t length,
                                         size_t shift) const {
    const std::vector<std::byte> all = bytes();
    for (size_t i = first; i < first + length; ++i) {
        if (all[i] == expected(seed, i + shift)) continue;
        return ::testing::AssertionFailure()
               << name_of(kind_) << " memory differs at byte " << i << " of " << length_;
    }
    return ::testing::AssertionSuccess();
}

VirtualRange::VirtualRange(size_t room) : room_(room), mapped_(room) {
    abi::DevicePointer address = 0;
    check(driver().address_reserve(&address, room * kEach, 0, 0, 0), "cuMemAddressReserve");
    data_ = reinterpret_cast<std::byte*>(address);
}

VirtualRange::~VirtualRange() {
    for (size_t place = 0; place < room_; ++place) {
        if (mapped_[place]) (void)driver().allocation_unmap(pointer(at(place)), kEach);
    }
    (void)driver().address_free(pointer(data_), room_ * kEach);
}

void VirtualRange::map(size_t place, abi::AllocationHandle allocation) {
    abi::Device device = 0;
    check(driver().context_get_device(&device), "cuCtxGetDevice");
    check(driver().allocation_map(pointer(at(place)), kEach, 0, allocation, 0), "cuMemMap");
    const abi::AccessDescriptor access{{abi::kLocationDevice, device}, abi::kAccessReadWrite};
    check(driver().allocation_set_access(pointer(at(place)), kEach, &access, 1), "cuMemSetAccess");
    // What is mapped keeps the allocation.
    check(driver().allocation_release(allocation), "cuMemRelease");
    mapped_[place] = true;
}

void VirtualRange::map(size_t place) {
    abi::Device device = 0;
    check(driver().context_get_device(&device), "cuCtxGetDevice");
    abi::AllocationProperties properties{};
    properties.type = abi::kAllocationPinned;
    properties.location = {abi::kLocationDevice, device};
    abi::AllocationHandle allocation = 0;
    check(driver().allocation_create(&allocation, kEach, &properties, 0), "cuMemCreate");
    map(place, allocation);
}

void VirtualRange::map_too(size_t place, size_t other) {
    abi::AllocationHandle allocation = 0;
    check(driver().allocation_retain(&allocation, at(other)), "cuMemRetainAllocationHandle");
    map(place, allocation);
}

void VirtualRange::unmap(size_t place) {
    check(driver().allocation_unmap(pointer(at(place)), kEach), "cuMemUnmap");
    mapped_[place] = false;
}

void VirtualRange::fill(size_t place, size_t length, uint32_t seed) {
    std::vector<std::byte> bytes(length);
    for (size_t i = 0; i < length; ++i) bytes[i] = Buffer::expected(seed, i);
    for (size_t i = 0; i < length; i += kEach) {
        check(driver().copy(pointer(at(place) + i), pointer(bytes.data() + i),
                            std::min(kEach, length - i)),
              "cuMemcpy");
    }
    check(driver().stream_synchronize(nullptr), "cuStreamSynchronize");
}

::testing::AssertionResult VirtualRange::holds(size_t place, size_t length, uint32_t seed) const {
    std::vector<std::byte> bytes(length);
    for (size_t i = 0; i < length; i += kEach) {
        check(driver().copy(pointer(bytes.data() + i), pointer(at(place) + i),
                            std::min(kEach, length - i)),
              "cuMemcpy");
    }
    for (size_t i = 0; i < length; ++i) {
        if (bytes[i] != Buffer::expected(seed, i))
            return ::testing::AssertionFailure() << "virtual memory differs at byte " << i;
    }
    return ::testing::AssertionSuccess();
}

}  // namespace cuda_test

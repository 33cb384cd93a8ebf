// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// The binary interface of the CUDA driver, as far as it is used here: written down from its
// documentation, so that host code builds where no toolkit is installed. abi_check.cc compares it
// with the toolkit's cuda.h where there is one.
namespace uct::cuda::abi {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNotInitialized = 3;
inline constexpr Result kDeviceUnavailable = 46;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kPeerAccessAlreadyEnabled = 704;
inline constexpr Result kContextIsDestroyed = 709;
inline constexpr Result kAlreadyRegistered = 712;
inline constexpr Result kLaunchFailed = 719;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kCaptureUnsupported = 900;

using Device = int;
using DevicePointer = uint64_t;
using AllocationHandle = uint64_t;
using Context = struct ContextObject*;
using Stream = struct StreamObject*;
using Event = struct EventObject*;
using Module = struct ModuleObject*;
using Function = struct FunctionObject*;
using Pool = struct PoolObject*;

enum PointerAttribute : int {
    kPointerContext = 1,
    kPointerMemoryType = 2,
    kPointerBufferId = 7,
    kPointerIsManaged = 8,
    kPointerDeviceOrdinal = 9,
    kPointerRangeStart = 11,
    kPointerRangeSize = 12,
    kPointerHandleTypes = 14,  // by which others may open it, as bits
    kPointerPool = 17,
    kPointerMappingSize = 18,  // of virtual memory: what was mapped together
    kPointerMappingStart = 19,
};

inline constexpr unsigned kMemoryTypeHost = 1;
inline constexpr unsigned kMemoryTypeDevice = 2;

enum DeviceAttribute : int {
    kPciBusId = 33,
    kPciDeviceId = 34,
    kPciDomainId = 50,
    kComputeCapabilityMajor = 75,
    kComputeCapabilityMinor = 76,
    kHostAddressesOnDevice = 91,  // registered memory has one address for both
    kDmaBufSupported = 124,
};

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kCaptureNone = 0;
inline constexpr unsigned kCaptureActive = 1;
inline constexpr unsigned kCaptureRelaxed = 2;  // a mode: nothing is refused for captures' sake
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocMapped = 2;
inline constexpr unsigned kMemAttachGlobal = 1;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr int kAllocationPinned = 1;
inline constexpr int kLocationDevice = 1;
inline constexpr int kAccessReadWrite = 3;
inline constexpr int kHandleDescriptor = 1;
inline constexpr int kHandleFabric = 8;
inline constexpr int kRangeDmaBuf = 1;  // of cuMemGetHandleForAddressRange()

struct IpcHandle {
    char reserved[64];
};

struct FabricHandle {
    unsigned char data[64];
};

struct PoolPointer {
    unsigned char reserved[64];
};

struct Uuid {
    char bytes[16];
};

struct Location {
    int type;
    int id;
};

enum StreamMemoryOperation : unsigned {
    kStreamWait32 = 1,
    kStreamWrite32 = 2,
};
inline constexpr unsigned kStreamWaitAnd = 2;  // until (word & value) != 0

// One operation of cuStreamBatchMemOp(); all have the same layout as far as it is used.
struct StreamBatchEntry {
    StreamMemoryOperation operation;
    DevicePointer address;
    uint64_t value;
    unsigned flags;
    DevicePointer alias;
    uint64_t padding;
};

struct AllocationProperties {
    int type;
    int handle_types;
    Location location;
    void* win32;
    struct {
        unsigned char compression;
        unsigned char gpu_direct_rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct PoolProperties {
    int type;
    int handle_types;
    Location location;
    void* win32;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
};

struct AccessDescriptor {
    Location location;
    int flags;
};

}  // namespace uct::cuda::abi

// SPDX-License-Identifier: BSD-3-Clause

// Built where the toolkit is installed: the interface written down in abi.h is the toolkit's.

#include <cuda.h>

#include "uct/cuda/abi.h"

namespace uct::cuda {

static_assert(abi::kSuccess == CUDA_SUCCESS && abi::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(abi::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(abi::kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(abi::kDeviceUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
static_assert(abi::kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(abi::kInvalidDevice == CUDA_ERROR_INVALID_DEVICE);
static_assert(abi::kInvalidContext == CUDA_ERROR_INVALID_CONTEXT);
static_assert(abi::kInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
static_assert(abi::kNotFound == CUDA_ERROR_NOT_FOUND && abi::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(abi::kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(abi::kPeerAccessAlreadyEnabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(abi::kContextIsDestroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED);
static_assert(abi::kAlreadyRegistered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
static_assert(abi::kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(abi::kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(abi::kCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);

static_assert(sizeof(abi::Device) == sizeof(CUdevice));
static_assert(sizeof(abi::DevicePointer) == sizeof(CUdeviceptr));
static_assert(sizeof(abi::AllocationHandle) == sizeof(CUmemGenericAllocationHandle));
static_assert(sizeof(abi::IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(abi::Uuid) == sizeof(CUuuid));
static_assert(sizeof(abi::AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(abi::AllocationProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(sizeof(abi::PoolProperties) == sizeof(CUmemPoolProps));
static_assert(offsetof(abi::PoolProperties, usage) == offsetof(CUmemPoolProps, usage));
static_assert(sizeof(abi::FabricHandle) == sizeof(CUmemFabricHandle));
static_assert(sizeof(abi::PoolPointer) == sizeof(CUmemPoolPtrExportData));
static_assert(sizeof(abi::AccessDescriptor) == sizeof(CUmemAccessDesc));
static_assert(offsetof(abi::AccessDescriptor, flags) == offsetof(CUmemAccessDesc, flags));

static_assert(abi::kPointerContext == +CU_POINTER_ATTRIBUTE_CONTEXT);
static_assert(abi::kPointerMemoryType == +CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(abi::kPointerBufferId == +CU_POINTER_ATTRIBUTE_BUFFER_ID);
static_assert(abi::kPointerIsManaged == +CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(abi::kPointerDeviceOrdinal == +CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(abi::kPointerRangeStart == +CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
static_assert(abi::kPointerRangeSize == +CU_POINTER_ATTRIBUTE_RANGE_SIZE);
static_assert(abi::kPointerHandleTypes == +CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
static_assert(abi::kPointerPool == +CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
static_assert(abi::kPointerMappingSize == +CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
static_assert(abi::kPointerMappingStart == +CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
static_assert(abi::kMemoryTypeHost == CU_MEMORYTYPE_HOST);
static_assert(abi::kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(abi::kPciBusId == +CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
static_assert(abi::kPciDeviceId == +CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
static_assert(abi::kPciDomainId == +CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
static_assert(abi::kComputeCapabilityMajor == +CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(abi::kComputeCapabilityMinor == +CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(abi::kHostAddressesOnDevice ==
              +CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
static_assert(abi::kDmaBufSupported == +CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
static_assert(abi::kRangeDmaBuf == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
static_assert(abi::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(abi::kCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(abi::kCaptureActive == CU_STREAM_CAPTURE_STATUS_ACTIVE);
static_assert(abi::kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(abi::kStreamWait32 == +CU_STREAM_MEM_OP_WAIT_VALUE_32);
static_assert(abi::kStreamWrite32 == +CU_STREAM_MEM_OP_WRITE_VALUE_32);
static_assert(abi::kStreamWaitAnd == CU_STREAM_WAIT_VALUE_AND);
static_assert(sizeof(abi::StreamBatchEntry) == sizeof(CUstreamBatchMemOpParams));
static_assert(offsetof(abi::StreamBatchEntry, address) ==
                  offsetof(CUstreamBatchMemOpParams, waitValue.address) &&
              offsetof(abi::StreamBatchEntry, address) ==
                  offsetof(CUstreamBatchMemOpParams, writeValue.address));
static_assert(offsetof(abi::StreamBatchEntry, value) ==
                  offsetof(CUstreamBatchMemOpParams, waitValue.value) &&
              offsetof(abi::StreamBatchEntry, value) ==
                  offsetof(CUstreamBatchMemOpParams, writeValue.value));
static_assert(offsetof(abi::StreamBatchEntry, flags) ==
                  offsetof(CUstreamBatchMemOpParams, waitValue.flags) &&
              offsetof(abi::StreamBatchEntry, flags) ==
                  offsetof(CUstreamBatchMemOpParams, writeValue.flags));
static_assert(abi::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(abi::kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE);
static_assert(abi::kHostAllocMapped == CU_MEMHOSTALLOC_DEVICEMAP);
static_assert(abi::kMemAttachGlobal == CU_MEM_ATTACH_GLOBAL);
static_assert(abi::kIpcLazyEnablePeerAccess == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
static_assert(abi::kAllocationPinned == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(abi::kLocationDevice == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(abi::kHandleDescriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(abi::kHandleFabric == CU_MEM_HANDLE_TYPE_FABRIC);
static_assert(abi::kAccessReadWrite == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

}  // namespace uct::cuda

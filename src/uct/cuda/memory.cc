// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/memory.h"

#include "ucs/log/log.h"
#include "ucs/memory/pages.h"
#include "ucs/type/bits.h"
#include "uct/cuda/config.h"
#include "uct/cuda/kernel_memory.h"

namespace uct::cuda {

CudaMemory::CudaMemory(CopyEngine& engine)
    : engine_(engine),
      staging_(engine.driver()),
      exports_(engine),
      stops_(engine),
      mappings_(engine.driver(), stops_, Config::get().mappings),
      relay_(engine, mappings_, Config::get().relay.bytes),
      places_(engine, exports_, mappings_),
      direct_(engine, staging_, places_, mappings_),
      is_direct_(Config::get().direct) {}

CudaMemory* CudaMemory::get() {
    static CudaMemory* const memory = []() -> CudaMemory* {
        CopyEngine* const engine = CopyEngine::get();
        if (engine == nullptr) return nullptr;
        auto* const made = new CudaMemory(*engine);
        ucs::register_memory_detector(*made);
        return made;
    }();
    return memory;
}

bool CudaMemory::detect(const void* address, size_t length, ucs::MemoryInfo& info) const {
    const CopyEngine::Found found = engine_.look_up(address);
    if (found.type == UCS_MEMORY_TYPE_HOST) return false;
    info.type = found.type;
    info.base = reinterpret_cast<const void*>(found.base);
    info.device = found.device;
    // A buffer may lie in several allocations of virtual memory.
    const bool is_in_one = found.holds(address, length);
    info.length = is_in_one ? found.length : found.reserved;
    info.allocation = is_in_one ? found.number : 0;
    info.held = found.may_be_held() ? &engine_.held() : nullptr;
    return true;
}

uint64_t CudaMemory::types() const {
    return UCS_BIT(UCS_MEMORY_TYPE_CUDA) | UCS_BIT(UCS_MEMORY_TYPE_CUDA_MANAGED);
}

uint64_t CudaMemory::readable_types() const {
    return is_direct_ ? types() : 0;
}

// A primary context, held from then on: it lives as long as the process, unless the program resets
// the device. A program that has none gets none: the context that is current has to do.
abi::Context CudaMemory::home() {
    const Driver& driver = engine_.driver();
    std::lock_guard lock(home_mutex_);
    unsigned long long id = 0;
    if (home_ != nullptr && driver.context_get_id(home_, &id) == abi::kSuccess) return home_;
    home_ = nullptr;
    int devices = 0;
    if (driver.device_get_count(&devices) != abi::kSuccess) return nullptr;
    for (abi::Device device = 0; device < devices; ++device) {
        if (driver.retain_in_use(&home_, device)) return home_;
    }
    home_ = nullptr;
    abi::Context current = nullptr;
    return driver.context_get(&current) == abi::kSuccess ? current : nullptr;
}

void CudaMemory::prepare() {
    engine_.prepare();
    stops_.prepare();
    fill_staging(home());
}

void CudaMemory::fill_staging(abi::Context context) {
    if (context == nullptr) return;
    CurrentContext current(engine_.driver(), context);
    if (current.result() == abi::kSuccess) staging_.fill();
}

ucs_status_t CudaMemory::copy_within(const CopyEngine::Found& owner, void* to, const void* from,
                                     size_t length) {
    CopyContext* const context = engine_.context_of(owner);
    if (context == nullptr) return UCS_ERR_UNSUPPORTED;
    CopyContext::Ticket ticket;
    const ucs_status_t status = context->begin(Direction::kWithin, to, from, length, &ticket);
    return status != UCS_OK ? status : context->wait(ticket);
}

ucs_status_t CudaMemory::copy(void* to, const void* from, size_t length) {
    if (length == 0) return UCS_OK;
    const CopyEngine::Found target = engine_.look_up(to);
    const CopyEngine::Found source = engine_.look_up(from);
    const bool to_host = target.type == UCS_MEMORY_TYPE_HOST;
    const bool from_host = source.type == UCS_MEMORY_TYPE_HOST;
    if (to_host && from_host) return UCS_ERR_INVALID_PARAM;
    if (!to_host && !from_host) return copy_within(target, to, from, length);
    const ucs::MemoryPiece piece{to_host ? const_cast<void*>(from) : to, length};
    ucs::StagedCopy* staged = nullptr;
    ucs_status_t status = open_copy({&piece, 1}, nullptr, &staged);
    if (status != UCS_OK) return status;
    status = to_host ? staged->read(0, to, length) : staged->write(0, from, length);
    const ucs_status_t end = staged->finish();
    return status != UCS_OK ? status : end;
}

ucs_status_t CudaMemory::open_copy(std::span<const ucs::MemoryPiece> pieces,
                                   const ucs::MemoryInfo* known, ucs::StagedCopy** copy) {
    StagedTransfer* const transfer = staging_.take_transfer();
    if (transfer == nullptr) return UCS_ERR_NO_MEMORY;
    fill_late(pieces.front().address);
    transfer->open(engine_, pieces, known);
    *copy = transfer;
    return UCS_OK;
}

// A program whose first use of CUDA came after the library's start, and which did nothing since
// that would have made ready: this one message is slow.
void CudaMemory::fill_late_now(const void* address) {
    const abi::Context context = home();
    CopyContext* const owner = engine_.context_of(engine_.look_up(address));
    fill_staging(context != nullptr || owner == nullptr ? context : owner->handle());
}

bool CudaMemory::export_memory(const void* address, size_t length, const ucs::MemoryInfo* known,
                               ucs::MemoryExport& description) {
    if (!is_direct_ || !exports_.describe(address, length, known, description)) return false;
    fill_late(address);  // a peer that has no way to it asks for the data staged
    return true;
}

// Nobody knows before the program has started CUDA.
bool CudaMemory::has_dma_bufs() const {
    const Driver& driver = engine_.driver();
    int devices = 0;
    if (driver.device_get_count(&devices) != abi::kSuccess) return true;
    for (abi::Device device = 0; device < devices; ++device) {
        int is_supported = 0;
        if (driver.device_get_attribute(&is_supported, abi::kDmaBufSupported, device) ==
                abi::kSuccess &&
            is_supported != 0)
            return true;
    }
    return false;
}

// The driver gives whole pages.
ucs_status_t CudaMemory::export_dma_buf(const void* address, size_t length, ucs::DmaBuf* buffer) {
    const CopyEngine::Found found = engine_.look_up(address);
    CopyContext* const context = engine_.context_of(found);
    if (context == nullptr || found.type != UCS_MEMORY_TYPE_CUDA) return UCS_ERR_UNSUPPORTED;
    const CurrentContext current(engine_.driver(), context->handle());
    if (current.result() != abi::kSuccess) return to_status(current.result());
    const auto place = reinterpret_cast<uintptr_t>(address);
    const uintptr_t first = ucs::align_down(place, ucs::page_size());
    const uintptr_t end = ucs::align_up(place + length, ucs::page_size());
    int descriptor = -1;
    const abi::Result result =
        engine_.driver().memory_get_handle(&descriptor, first, end - first, abi::kRangeDmaBuf, 0);
    if (result != abi::kSuccess) return to_status(result);
    *buffer = {ucs::Descriptor(descriptor), place - first};
    return UCS_OK;
}

bool CudaMemory::is_freed(uint64_t buffer, uint64_t base) {
    if (engine_.driver().allocation_at(base) == buffer) return false;
    exports_.forget(buffer);
    return true;
}

ucs_status_t CudaMemory::fetch(const ucs::DevicePiece& piece, const ucs::MemoryInfo* known,
                               ucs::AsyncCopy** copy) {
    if (!is_direct_ || !is_in_use()) return UCS_ERR_UNSUPPORTED;
    fill_late(piece.here);
    return direct_.fetch(piece, known, copy);
}

ucs_status_t CudaMemory::store(const ucs::DevicePiece& piece, const ucs::MemoryInfo* known,
                               ucs::AsyncCopy** copy) {
    if (!is_direct_ || !is_in_use()) return UCS_ERR_UNSUPPORTED;
    fill_late(piece.here);
    return direct_.store(piece, known, copy);
}

ucs_status_t CudaMemory::transfer(std::span<const ucs::DevicePiece> pieces, bool is_store,
                                  size_t* begun, ucs::AsyncCopy** copy) {
    *begun = 0;
    if (!is_direct_ || !is_in_use() || pieces.empty()) return UCS_ERR_UNSUPPORTED;
    fill_late(pieces.front().here);
    return direct_.transfer(pieces, is_store, begun, copy);
}

ucs_status_t CudaMemory::insert_stop(void* stream, bool may_be_captured, ucs::StreamStop* stop) {
    stop->owner = this;
    return stops_.insert(stream, may_be_captured, stop);
}

ucs_status_t CudaMemory::open_for_kernels(ucs::KernelMemory** memory) {
    if (!is_direct_) return UCS_ERR_UNSUPPORTED;
    CopyEngine::Found home;
    if (!is_in_use() || !engine_.driver().get_current(&home.context, &home.device))
        return UCS_ERR_NO_DEVICE;
    home.type = UCS_MEMORY_TYPE_CUDA;
    CopyContext* const context = engine_.context_of(home);
    if (context == nullptr) return UCS_ERR_NO_DEVICE;
    *memory = new KernelMemory(engine_, places_, *context);
    return UCS_OK;
}

ucs_status_t CudaMemory::allocate(ucs_memory_type_t type, size_t length, void** address) {
    const Driver& driver = engine_.driver();
    abi::Context current = nullptr;
    if (driver.context_get(&current) != abi::kSuccess || current == nullptr) {
        ucs::log_error("device memory is allocated in the context that is current: there is none");
        return UCS_ERR_NO_DEVICE;
    }
    abi::DevicePointer pointer = 0;
    const abi::Result result =
        type == UCS_MEMORY_TYPE_CUDA_MANAGED
            ? driver.memory_allocate_managed(&pointer, length, abi::kMemAttachGlobal)
            : driver.memory_allocate(&pointer, length);
    if (result != abi::kSuccess) {
        ucs::log_error("no {} bytes of CUDA memory: {}", length, driver.name_of(result));
        return to_status(result);
    }
    *address = reinterpret_cast<void*>(pointer);
    return UCS_OK;
}

void CudaMemory::free(void* address) {
    const CopyEngine::Found found = engine_.look_up(address);
    CopyContext* const context = engine_.context_of(found);
    if (context == nullptr) return;
    CurrentContext current(engine_.driver(), context->handle());
    (void)engine_.driver().memory_free(reinterpret_cast<uintptr_t>(address));
}

}  // namespace uct::cuda

// SPDX-License-Identifier: BSD-3-Clause
#include "uct/cuda/kernel_memory.h"

namespace uct::cuda {

template <typename Attempt>
ucs_status_t KernelMemory::try_and_wait(Attempt attempt) {
    ucs_status_t status = attempt();
    for (int tries = 1; status == UCS_ERR_NO_RESOURCE && tries < kTries; ++tries) {
        places_.settle();
        status = attempt();
    }
    return status;
}

ucs_status_t KernelMemory::find(const ucs::MemoryExport& memory, void** address) {
    if (!Places::is_sound(memory, 0)) return UCS_ERR_INVALID_PARAM;
    held_.reserve(held_.size() + 1);
    Place place;
    const ucs_status_t status =
        try_and_wait([&] { return places_.find(memory, context_, &place); });
    if (status != UCS_OK) return status;
    held_.push_back(place);
    *address = place.address;
    return UCS_OK;
}

ucs_status_t KernelMemory::check(const void* address, size_t length) {
    const CopyEngine::Found found = engine_.look_up(address);
    if (found.type == UCS_MEMORY_TYPE_HOST)
        return engine_.is_pinned(address, length) ? UCS_OK : UCS_ERR_UNSUPPORTED;
    if (!found.reserves(address, length)) return UCS_ERR_INVALID_PARAM;
    if (found.type == UCS_MEMORY_TYPE_CUDA_MANAGED) return UCS_OK;
    return try_and_wait([&] { return places_.reach(found, context_); });
}

ucs_status_t KernelMemory::allocate(size_t length, void** address) {
    const ucs_status_t status = context_.allocate(length, &memory_);
    *address = reinterpret_cast<void*>(memory_);
    return status;
}

ucs_status_t KernelMemory::write(std::span<const std::byte> bytes) {
    CopyContext::Ticket ticket;
    const ucs_status_t status =
        context_.begin(CopyContext::kOfAllocations, reinterpret_cast<void*>(memory_), bytes.data(),
                       bytes.size(), &ticket);
    return status != UCS_OK ? status : context_.wait(ticket);
}

void KernelMemory::close() {
    for (const Place& place : held_) places_.put(place);
    if (memory_ != 0) context_.free(memory_);
    delete this;
}

}  // namespace uct::cuda

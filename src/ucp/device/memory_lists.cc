// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/device/memory_lists.h"

#include <cstring>
#include <memory>

#include "ucp/api/device/ucp_device_types.h"
#include "ucs/log/log.h"

namespace ucp {

namespace {

struct Closer {
    void operator()(ucs::KernelMemory* memory) const { memory->close(); }
};
using Held = std::unique_ptr<ucs::KernelMemory, Closer>;

static_assert(sizeof(ucp_device_remote_mem_list_t) % alignof(ucp_device_remote_mem_elem_t) == 0);
static_assert(sizeof(ucp_device_local_mem_list_t) % alignof(ucp_device_local_mem_elem_t) == 0);

template <typename T>
void append(std::vector<std::byte>& bytes, const T& value) {
    const auto* const first = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof(value));
}

// Where kernels find each piece; null: it is left out.
ucs_status_t find(ucs::KernelMemory& memory, std::span<const MemoryListElement> pieces,
                  std::vector<void*>* places) {
    for (const MemoryListElement& piece : pieces) {
        void* place = nullptr;
        if (piece.address != 0) {
            place = const_cast<void*>(piece.here);
            const ucs_status_t status = piece.exported ? memory.find(*piece.exported, &place)
                                                       : memory.check(piece.here, piece.length);
            if (status != UCS_OK) {
                ucs::log_info("element {} of a list for kernels, at {:#x}: {}", places->size(),
                              piece.address, ucs_status_string(status));
                return status;
            }
        }
        places->push_back(place);
    }
    return UCS_OK;
}

// The list as kernels read it. @param address  of the list
std::vector<std::byte> lay_out_remote(std::span<const MemoryListElement> pieces,
                                      std::span<void* const> places, uint64_t address) {
    std::vector<std::byte> bytes;
    const ucp_device_remote_mem_list_t head{UCP_DEVICE_MEM_LIST_VERSION_V1, 1,
                                            static_cast<uint32_t>(pieces.size())};
    append(bytes, head);
    // One way for all, behind the elements.
    const uint64_t way =
        address + sizeof(head) + pieces.size() * sizeof(ucp_device_remote_mem_elem_t);
    for (size_t i = 0; i < pieces.size(); ++i) {
        ucp_device_remote_mem_elem_t element{};
        if (places[i] != nullptr) {
            element.addr = pieces[i].address;
            element.way = reinterpret_cast<const ucp_device_way_t*>(way);
            element.mapped_offset =
                static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(places[i]) - pieces[i].address);
        }
        append(bytes, element);
    }
    append(bytes, ucp_device_way_t{UCP_DEVICE_WAY_MAPPED});
    return bytes;
}

std::vector<std::byte> lay_out_local(std::span<void* const> places) {
    std::vector<std::byte> bytes;
    append(bytes, ucp_device_local_mem_list_t{UCP_DEVICE_MEM_LIST_VERSION_V1, 0,
                                              static_cast<uint32_t>(places.size())});
    for (void* place : places) append(bytes, ucp_device_local_mem_elem_t{place});
    return bytes;
}

constexpr size_t kMostOfElement = sizeof(ucp_device_remote_mem_elem_t);
constexpr size_t kBesideElements = sizeof(ucp_device_remote_mem_list_t) + sizeof(ucp_device_way_t);

}  // namespace

MemoryLists& MemoryLists::instance() {
    // Never destroyed: the driver may be gone before.
    static auto* const lists = new MemoryLists;
    return *lists;
}

ucs_status_t MemoryLists::create(Kind kind, std::span<const MemoryListElement> pieces,
                                 void** list) {
    ucs::MemoryDetector* const device = ucs::MemoryDetectors::of_type(UCS_MEMORY_TYPE_CUDA);
    if (device == nullptr) return UCS_ERR_NO_DEVICE;
    ucs::KernelMemory* opened = nullptr;
    ucs_status_t status = device->open_for_kernels(&opened);
    if (status != UCS_OK) return status;
    Held memory(opened);
    std::vector<void*> places;
    status = find(*memory, pieces, &places);
    void* address = nullptr;
    if (status == UCS_OK)
        status = memory->allocate(kBesideElements + pieces.size() * kMostOfElement, &address);
    if (status != UCS_OK) return status;
    const std::vector<std::byte> bytes =
        kind == Kind::kLocal ? lay_out_local(places)
                             : lay_out_remote(pieces, places, reinterpret_cast<uintptr_t>(address));
    status = memory->write(bytes);
    if (status != UCS_OK) return status;
    std::lock_guard lock(mutex_);
    made_[address] = {memory.get(), static_cast<uint32_t>(pieces.size())};
    (void)memory.release();
    *list = address;
    return UCS_OK;
}

uint32_t MemoryLists::length(const void* list) {
    std::lock_guard lock(mutex_);
    const auto found = made_.find(list);
    return found == made_.end() ? 0 : found->second.length;
}

void MemoryLists::release(void* list) {
    std::unique_lock lock(mutex_);
    const auto node = made_.extract(list);
    lock.unlock();
    if (!node.empty()) node.mapped().memory->close();
}

}  // namespace ucp

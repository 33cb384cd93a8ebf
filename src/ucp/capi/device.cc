// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <vector>

#include "ucp/api/device/ucp_host.h"
#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/context/context.h"
#include "ucp/device/memory_lists.h"
#include "ucp/mem/device_memory.h"
#include "ucp/mem/memory.h"
#include "ucp/proto/rma/rma.h"
#include "ucs/log/log.h"

using namespace ucp;

namespace {

// An element as far as its caller knows of fields.
class Element {
  public:
    Element(const ucp_device_mem_list_params_t& params, size_t index)
        : element_(*reinterpret_cast<const ucp_device_mem_list_elem_t*>(
              reinterpret_cast<const std::byte*>(params.elements) + index * params.element_size)) {}

    bool is_left_out() const { return element_.field_mask == 0; }
    ucp_mem_h memh() const { return get<UCP_DEVICE_MEM_LIST_ELEM_FIELD_MEMH>(element_.memh); }
    ucp_rkey_h rkey() const { return get<UCP_DEVICE_MEM_LIST_ELEM_FIELD_RKEY>(element_.rkey); }
    ucp_ep_h ep() const { return get<UCP_DEVICE_MEM_LIST_ELEM_FIELD_EP>(element_.ep); }
    // Where it begins in memory of that place and length, and how long it is.
    MemoryListElement local_piece(uint64_t start, size_t size) const {
        const auto address = reinterpret_cast<uintptr_t>(
            get<UCP_DEVICE_MEM_LIST_ELEM_FIELD_LOCAL_ADDR>(element_.local_addr));
        return piece(address == 0 ? start : address, start, size);
    }
    MemoryListElement remote_piece(uint64_t start, size_t size) const {
        const uint64_t address =
            get<UCP_DEVICE_MEM_LIST_ELEM_FIELD_REMOTE_ADDR>(element_.remote_addr);
        return piece(address == 0 ? start : address, start, size);
    }

  private:
    template <ucp_device_mem_list_elem_field kField, typename T>
    T get(const T& value) const {
        return (element_.field_mask & kField) != 0 ? value : T{};
    }
    MemoryListElement piece(uint64_t address, uint64_t start, size_t size) const {
        const bool has_length = (element_.field_mask & UCP_DEVICE_MEM_LIST_ELEM_FIELD_LENGTH) != 0;
        const uint64_t from_start = address - start;
        MemoryListElement piece;
        piece.address = address;
        // What is not in the memory is found to be so by who covers it.
        piece.length = has_length ? element_.length : size - std::min<uint64_t>(from_start, size);
        return piece;
    }

    const ucp_device_mem_list_elem_t& element_;
};

bool has_elements(const ucp_device_mem_list_params_t* params) {
    constexpr uint64_t kNeeded = UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENTS |
                                 UCP_DEVICE_MEM_LIST_PARAMS_FIELD_ELEMENT_SIZE |
                                 UCP_DEVICE_MEM_LIST_PARAMS_FIELD_NUM_ELEMENTS;
    return params != nullptr && (params->field_mask & kNeeded) == kNeeded &&
           params->elements != nullptr && params->element_size != 0 && params->num_elements != 0 &&
           params->num_elements <= UINT32_MAX;
}

ucs_status_t refuse(size_t index, const char* why, ucs_status_t status) {
    ucs::log_error("element {} of a list for kernels: {}", index, why);
    return status;
}

ucs_status_t describe_local(const Element& element, size_t index, MemoryListElement* piece) {
    if (element.memh() == nullptr) return refuse(index, "no memh", UCS_ERR_INVALID_PARAM);
    const Memory& memory = unwrap(element.memh());
    *piece = element.local_piece(reinterpret_cast<uintptr_t>(memory.address()), memory.length());
    if (!memory.covers(piece->address, piece->length))
        return refuse(index, "not in memh", UCS_ERR_INVALID_PARAM);
    piece->here = reinterpret_cast<const void*>(piece->address);
    return UCS_OK;
}

// Under the endpoint's lock.
ucs_status_t describe_remote(Endpoint& endpoint, const Element& element, size_t index,
                             MemoryListElement* piece) {
    if (!context_of(endpoint).has_feature(UCP_FEATURE_DEVICE))
        return refuse(index, "the context lacks UCP_FEATURE_DEVICE", UCS_ERR_UNSUPPORTED);
    const RemoteMemory& remote = unwrap(element.rkey());
    *piece = element.remote_piece(remote.header().address, remote.header().length);
    if (!remote.covers(piece->address, piece->length))
        return refuse(index, "the key is not for it", UCS_ERR_INVALID_ADDR);
    if (const ucs::MemoryExport* const exported = reach_directly(endpoint, remote)) {
        piece->exported = *exported;
        piece->exported->offset += piece->address - remote.header().address;
        return UCS_OK;
    }
    void* here = nullptr;
    if (remote.pointer(piece->address, &here) == UCS_OK) {
        piece->here = here;
        return UCS_OK;
    }
    ucs::log_info("element {} of a list for kernels: no device here reaches that memory", index);
    return UCS_ERR_UNSUPPORTED;
}

template <typename List>
ucs_status_t create(MemoryLists::Kind kind, const std::vector<MemoryListElement>& pieces,
                    List** list) {
    void* address = nullptr;
    const ucs_status_t status = MemoryLists::instance().create(kind, pieces, &address);
    if (status == UCS_OK) *list = static_cast<List*>(address);
    return status;
}

// What is given of a counter must be true.
ucs_status_t check_counter(const ucp_device_counter_params_t* params, const void* counter) {
    if (counter == nullptr || reinterpret_cast<uintptr_t>(counter) % alignof(uint64_t) != 0)
        return UCS_ERR_INVALID_PARAM;
    if (params != nullptr && (params->field_mask & UCP_DEVICE_COUNTER_PARAMS_FIELD_MEMH) != 0 &&
        (params->memh == nullptr ||
         !unwrap(params->memh).covers(reinterpret_cast<uintptr_t>(counter), sizeof(uint64_t))))
        return UCS_ERR_INVALID_PARAM;
    return UCS_OK;
}

}  // namespace

extern "C" {

ucs_status_t ucp_device_local_mem_list_create(const ucp_device_mem_list_params_t* params,
                                              ucp_device_local_mem_list_h* mem_list_h) try {
    if (!has_elements(params) || mem_list_h == nullptr ||
        (params->field_mask & UCP_DEVICE_MEM_LIST_PARAMS_FIELD_WORKER) == 0 ||
        params->worker == nullptr)
        return UCS_ERR_INVALID_PARAM;
    if (!context_of(params->worker).has_feature(UCP_FEATURE_DEVICE)) {
        ucs::log_error("a list for kernels: the context lacks UCP_FEATURE_DEVICE");
        return UCS_ERR_UNSUPPORTED;
    }
    std::vector<MemoryListElement> pieces(params->num_elements);
    for (size_t i = 0; i < pieces.size(); ++i) {
        const ucs_status_t status = describe_local(Element(*params, i), i, &pieces[i]);
        if (status != UCS_OK) return status;
    }
    return create(MemoryLists::Kind::kLocal, pieces, mem_list_h);
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t ucp_device_remote_mem_list_create(const ucp_device_mem_list_params_t* params,
                                               ucp_device_remote_mem_list_h* mem_list_h) try {
    if (!has_elements(params) || mem_list_h == nullptr) return UCS_ERR_INVALID_PARAM;
    std::vector<MemoryListElement> pieces(params->num_elements);
    bool is_empty = true;
    for (size_t i = 0; i < pieces.size(); ++i) {
        const Element element(*params, i);
        if (element.is_left_out()) continue;
        is_empty = false;
        if (element.rkey() == nullptr || element.ep() == nullptr)
            return refuse(i, "no rkey, or no ep", UCS_ERR_INVALID_PARAM);
        const ucs_status_t status = locked(element.ep(), [&](Endpoint& endpoint) {
            return describe_remote(endpoint, element, i, &pieces[i]);
        });
        if (status != UCS_OK) return status;
    }
    if (is_empty) return UCS_ERR_INVALID_PARAM;
    return create(MemoryLists::Kind::kRemote, pieces, mem_list_h);
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

uint32_t ucp_device_get_mem_list_length(const void* mem_list_h) {
    return MemoryLists::instance().length(mem_list_h);
}

void ucp_device_mem_list_release(void* mem_list_h) {
    MemoryLists::instance().release(mem_list_h);
}

ucs_status_t ucp_device_counter_init(ucp_worker_h, const ucp_device_counter_params_t* params,
                                     void* counter_ptr) try {
    const ucs_status_t status = check_counter(params, counter_ptr);
    const uint64_t zero = 0;
    return status != UCS_OK ? status : copy_memory(counter_ptr, &zero, sizeof(zero));
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

uint64_t ucp_device_counter_read(ucp_worker_h, const ucp_device_counter_params_t* params,
                                 void* counter_ptr) try {
    uint64_t value = UINT64_MAX;
    ucs_status_t status = check_counter(params, counter_ptr);
    if (status == UCS_OK) status = copy_memory(&value, counter_ptr, sizeof(value));
    if (status != UCS_OK) {
        ucs::log_error("a counter of kernels cannot be read: {}", ucs_status_string(status));
        return UINT64_MAX;
    }
    // What was put before is seen behind it.
    std::atomic_thread_fence(std::memory_order_acquire);
    return value;
} catch (const std::bad_alloc&) {
    return UINT64_MAX;
}

}  // extern "C"

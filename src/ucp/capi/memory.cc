// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/mem/memory.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "ucp/base/handles.h"
#include "ucp/capi/compat.h"
#include "ucp/endpoint/endpoint.h"
#include "ucp/mem/domain_set.h"
#include "ucp/mem/packed_key.h"
#include "ucp/mem/remote_memory.h"
#include "ucs/config/values.h"
#include "ucs/log/log.h"

using namespace ucp;

namespace {

// The program has given a key away: see AccessTable about keys that name no memory.
ucs_status_t publish(const Memory& memory) {
    if (memory.region() == 0) return UCS_OK;
    DomainLock lock(memory.domains());
    return memory.domains().regions().publish(memory);
}

// Why PackedKey::parse() refuses bytes that the program hands over.
const char* fault_of_key(const void* bytes) {
    if (bytes == nullptr) return "there is none";
    PackedKeyHeader header;
    std::memcpy(&header, bytes, sizeof(header));
    if (header.magic != PackedKeyHeader::kMagic) return "it is not one of this library's";
    if (header.version != PackedKeyHeader::kVersion) return "it is one of another version";
    return "its bytes have changed on the way";
}

}  // namespace

extern "C" {

ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t* params,
                         ucp_mem_h* memh_p) try {
    if (params == nullptr || memh_p == nullptr) return UCS_ERR_INVALID_PARAM;
    ucp_mem_map_params_t known = *params;
    if ((known.field_mask & UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE) != 0)
        known.memory_type = unwrap(context).memory_type_from_program(known.memory_type);
    Memory* memory = nullptr;
    const ucs_status_t status = Memory::map(unwrap(context).domains(), known, &memory);
    if (status == UCS_OK) *memh_p = wrap(memory);
    return status;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t ucp_mem_unmap(ucp_context_h, ucp_mem_h memh) try {
    if (memh == nullptr) return UCS_ERR_INVALID_PARAM;
    Memory::destroy(&unwrap(memh));
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t ucp_mem_query(const ucp_mem_h memh, ucp_mem_attr_t* attr) {
    if (memh == nullptr || attr == nullptr) return UCS_ERR_INVALID_PARAM;
    const auto wants = wanted_of(attr);
    const Memory& memory = unwrap(memh);
    if (wants(UCP_MEM_ATTR_FIELD_ADDRESS)) attr->address = memory.address();
    if (wants(UCP_MEM_ATTR_FIELD_LENGTH)) attr->length = memory.length();
    if (wants(UCP_MEM_ATTR_FIELD_MEM_TYPE)) attr->mem_type = memory.type();
    return UCS_OK;
}

ucs_status_t ucp_mem_advise(ucp_context_h, ucp_mem_h memh, ucp_mem_advise_params_t* params) try {
    if (memh == nullptr || params == nullptr) return UCS_ERR_INVALID_PARAM;
    return unwrap(memh).advise(*params);
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

void ucp_mem_print_info(const char* mem_size, ucp_context_h context, FILE* stream) {
    const std::string_view text = mem_size == nullptr ? "" : mem_size;
    const size_t comma = text.find(',');
    ucs::config::MemorySize size;
    if (!ucs::config::Codec<ucs::config::MemorySize>::parse(text.substr(0, comma), size) ||
        (comma != text.npos && text.substr(comma + 1) != "host")) {
        fprintf(stream, "# <\"%.*s\" is not a size, with a kind of memory that can be had>\n",
                static_cast<int>(text.size()), text.data());
        return;
    }
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = size;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    ucp_mem_h handle = nullptr;
    const ucs_status_t status = ucp_mem_map(context, &params, &handle);
    fprintf(stream, "#\n# Swiftlane memory, %zu bytes\n#\n", params.length);
    if (status != UCS_OK) {
        fprintf(stream, "#     cannot be mapped: %s\n#\n", ucs_status_string(status));
        return;
    }
    const Memory& memory = unwrap(handle);
    fprintf(stream, "#     address: %p\n#     kind: %s\n#     packed key: %zu bytes\n",
            memory.address(), ucs_memory_type_names[memory.type()], packed_key_size(memory));
    unsigned index = 0;
    for (const Domain& domain : unwrap(context).domains().list()) {
        fprintf(stream, "#     md %u (%s): %s\n", index, domain.device.c_str(),
                memory.handle(index) != nullptr ? "registered" : "not registered");
        ++index;
    }
    fprintf(stream, "#\n");
    ucp_mem_unmap(context, handle);
}

ucs_status_t ucp_memh_pack(ucp_mem_h memh, const ucp_memh_pack_params_t* params, void** buffer_p,
                           size_t* buffer_size_p) try {
    if (memh == nullptr || buffer_p == nullptr || buffer_size_p == nullptr)
        return UCS_ERR_INVALID_PARAM;
    const uint64_t flags =
        params != nullptr && (params->field_mask & UCP_MEMH_PACK_PARAM_FIELD_FLAGS) != 0
            ? params->flags
            : 0;
    if ((flags & ~uint64_t{UCP_MEMH_PACK_FLAG_EXPORT}) != 0) return UCS_ERR_INVALID_PARAM;
    const bool exports = (flags & UCP_MEMH_PACK_FLAG_EXPORT) != 0;
    const Memory& memory = unwrap(memh);
    if (exports && !memory.pages().is_mapped()) return UCS_ERR_UNSUPPORTED;
    const size_t size = exports ? SharedPages::packed_size() : packed_key_size(memory);
    void* buffer = std::malloc(size);
    if (buffer == nullptr) return UCS_ERR_NO_MEMORY;
    if (exports) {
        memory.pages().pack(buffer, memory.length());
    } else {
        pack_key(memory, {static_cast<std::byte*>(buffer), size});
        const ucs_status_t status = publish(memory);
        if (status != UCS_OK) {
            std::free(buffer);
            return status;
        }
    }
    *buffer_p = buffer;
    *buffer_size_p = size;
    return UCS_OK;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

void ucp_memh_buffer_release(void* buffer, const ucp_memh_buffer_release_params_t*) {
    std::free(buffer);
}

ucs_status_t ucp_rkey_pack(ucp_context_h, ucp_mem_h memh, void** rkey_buffer_p, size_t* size_p) {
    return ucp_memh_pack(memh, nullptr, rkey_buffer_p, size_p);
}

void ucp_rkey_buffer_release(void* rkey_buffer) {
    std::free(rkey_buffer);
}

ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void* rkey_buffer, ucp_rkey_h* rkey_p) try {
    if (rkey_p == nullptr) return UCS_ERR_INVALID_PARAM;
    PackedKey packed;
    ucs_status_t status = PackedKey::parse(rkey_buffer, &packed);
    if (status != UCS_OK) {
        ucs::log_error("a remote key is refused: {}", fault_of_key(rkey_buffer));
        return status;
    }
    Endpoint& endpoint = unwrap(ep);
    GateLock lock(endpoint.gate());
    std::unique_ptr<RemoteMemory> remote(new (std::nothrow) RemoteMemory);
    if (!remote) return UCS_ERR_NO_MEMORY;
    std::array<DomainPair, RemoteMemory::kMaxKeys> pairs;
    status = remote->open(endpoint.host().domains, packed, endpoint.domain_pairs(pairs));
    if (status == UCS_OK) {
        *rkey_p = wrap(remote.release());
    } else {
        ucs::log_error("a remote key is refused: {}", ucs_status_string(status));
    }
    return status;
} catch (const std::bad_alloc&) {
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t ucp_rkey_compare(ucp_worker_h, ucp_rkey_h rkey1, ucp_rkey_h rkey2,
                              const ucp_rkey_compare_params_t* params, int* result) {
    if (params == nullptr || params->field_mask != 0 || result == nullptr || rkey1 == nullptr ||
        rkey2 == nullptr)
        return UCS_ERR_INVALID_PARAM;
    *result = RemoteMemory::compare(unwrap(rkey1), unwrap(rkey2));
    return UCS_OK;
}

ucs_status_t ucp_rkey_ptr(ucp_rkey_h rkey, uint64_t raddr, void** addr_p) {
    if (rkey == nullptr || addr_p == nullptr) return UCS_ERR_INVALID_PARAM;
    return unwrap(rkey).pointer(raddr, addr_p);
}

void ucp_rkey_destroy(ucp_rkey_h rkey) {
    if (rkey != nullptr) delete &unwrap(rkey);
}

}  // extern "C"

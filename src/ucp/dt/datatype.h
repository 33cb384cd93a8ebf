// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "ucp/api/ucp.h"

namespace ucp {

enum class DatatypeClass : uint8_t {
    kContig,
    kIov,
    kGeneric,
    kDevice,  // of a buffer: contiguous or pieces, some of it in the memory of a device
    kInvalid,
};

// What the handle of a generic datatype points at; the handle carries the class in its low bits.
struct GenericDatatype {
    ucp_generic_dt_ops_t ops;
    void* context;
};

constexpr DatatypeClass datatype_class(ucp_datatype_t type) {
    switch (type & UCP_DATATYPE_CLASS_MASK) {
        case UCP_DATATYPE_CONTIG:
            return DatatypeClass::kContig;
        case UCP_DATATYPE_IOV:
            return DatatypeClass::kIov;
        case UCP_DATATYPE_GENERIC:
            return DatatypeClass::kGeneric;
        default:
            return DatatypeClass::kInvalid;
    }
}

constexpr size_t contig_element_size(ucp_datatype_t type) {
    return type >> UCP_DATATYPE_SHIFT;
}

inline const GenericDatatype* generic_datatype(ucp_datatype_t type) {
    return reinterpret_cast<const GenericDatatype*>(type & ~uint64_t{UCP_DATATYPE_CLASS_MASK});
}

// Make a generic datatype; the caller owns it until destroy_datatype().
// @return UCS_ERR_INVALID_PARAM if a callback is missing; UCS_ERR_NO_MEMORY
ucs_status_t create_generic_datatype(const ucp_generic_dt_ops_t& ops, void* context,
                                     ucp_datatype_t* type);
// Only generic datatypes own memory; the others are plain values.
void destroy_datatype(ucp_datatype_t type);

// Bytes of a buffer as far as they can be told without its datatype's callbacks: 0 for generic
// ones, and for what is invalid.
size_t known_length(ucp_datatype_t type, const void* buffer, size_t count);

// @return UCS_ERR_INVALID_PARAM for a class that does not exist or a buffer that it cannot
// describe
ucs_status_t query_datatype(ucp_datatype_t type, const void* buffer, size_t count,
                            size_t* packed_size);

}  // namespace ucp

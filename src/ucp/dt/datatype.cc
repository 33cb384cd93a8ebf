// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/dt/datatype.h"

#include <span>

#include <new>

#include "ucp/dt/buffer.h"

namespace ucp {

static_assert(alignof(GenericDatatype) > UCP_DATATYPE_CLASS_MASK,
              "the class lives in the low bits of the handle");

ucs_status_t create_generic_datatype(const ucp_generic_dt_ops_t& ops, void* context,
                                     ucp_datatype_t* type) {
    if (!ops.start_pack || !ops.start_unpack || !ops.packed_size || !ops.pack || !ops.unpack ||
        !ops.finish)
        return UCS_ERR_INVALID_PARAM;
    auto* generic = new (std::nothrow) GenericDatatype{ops, context};
    if (!generic) return UCS_ERR_NO_MEMORY;
    *type = reinterpret_cast<uintptr_t>(generic) | UCP_DATATYPE_GENERIC;
    return UCS_OK;
}

void destroy_datatype(ucp_datatype_t type) {
    if (datatype_class(type) == DatatypeClass::kGeneric) delete generic_datatype(type);
}

size_t known_length(ucp_datatype_t type, const void* buffer, size_t count) {
    switch (datatype_class(type)) {
        case DatatypeClass::kContig:
            return count * contig_element_size(type);
        case DatatypeClass::kIov: {
            if (buffer == nullptr) return 0;
            size_t sum = 0;
            const std::span pieces(static_cast<const ucp_dt_iov_t*>(buffer), count);
            for (const ucp_dt_iov_t& piece : pieces) sum += piece.length;
            return sum;
        }
        default:
            return 0;
    }
}

ucs_status_t query_datatype(ucp_datatype_t type, const void* buffer, size_t count,
                            size_t* packed_size) {
    Packer packer;
    ucs_status_t status = packer.open(buffer, count, type);
    if (status != UCS_OK) return status;
    *packed_size = packer.length();
    packer.close();
    return UCS_OK;
}

}  // namespace ucp

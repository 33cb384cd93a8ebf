// SPDX-License-Identifier: BSD-3-Clause
#include "ucp/dt/datatype.h"

using namespace ucp;

extern "C" {

ucs_status_t ucp_dt_create_generic(const ucp_generic_dt_ops_t* ops, void* context,
                                   ucp_datatype_t* datatype_p) {
    if (ops == nullptr || datatype_p == nullptr) return UCS_ERR_INVALID_PARAM;
    return create_generic_datatype(*ops, context, datatype_p);
}

void ucp_dt_destroy(ucp_datatype_t datatype) {
    destroy_datatype(datatype);
}

ucs_status_t ucp_dt_query(ucp_datatype_t datatype, ucp_datatype_attr_t* attr) {
    if (attr == nullptr) return UCS_ERR_INVALID_PARAM;
    if ((attr->field_mask & UCP_DATATYPE_ATTR_FIELD_PACKED_SIZE) == 0) return UCS_OK;
    const bool has_buffer = (attr->field_mask & UCP_DATATYPE_ATTR_FIELD_BUFFER) != 0;
    const bool has_count = (attr->field_mask & UCP_DATATYPE_ATTR_FIELD_COUNT) != 0;
    const size_t count = has_count ? attr->count : 1;
    // The size of contiguous elements does not depend on where they are.
    if (datatype_class(datatype) == DatatypeClass::kContig) {
        return __builtin_mul_overflow(count, contig_element_size(datatype), &attr->packed_size)
                   ? UCS_ERR_INVALID_PARAM
                   : UCS_OK;
    }
    return query_datatype(datatype, has_buffer ? attr->buffer : nullptr, count, &attr->packed_size);
}

}  // extern "C"
